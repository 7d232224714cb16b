"""Runs the built program as a user would, on small real data. Every run has a time limit."""
import json
import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

import h5py
import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[2]
LOCKSTEP = os.environ.get("LOCKSTEP", str(ROOT / "build/release/bin/lockstep"))
CUSTOM = os.environ.get("LOCKSTEP_CUSTOM", str(ROOT / "build/release/bin/custom_model"))
MPIEXEC = os.environ.get("MPIEXEC", shutil.which("mpirun") or "mpirun")
FASHION = pathlib.Path("/usr/share/datasets/fashion-mnist")

ENVIRONMENT = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
ENVIRONMENT.pop("OMP_NUM_THREADS", None)


def mpirun(ranks, *words, program=LOCKSTEP):
    """The command line of a run on `ranks` ranks; 0: without a launcher."""
    head = [] if ranks == 0 else [MPIEXEC, "--oversubscribe", "-n", str(ranks)]
    return [str(word) for word in (*head, program, *words)]


def run(ranks, *words, program=LOCKSTEP, timeout=180, environment=None, cwd=None):
    return subprocess.run(mpirun(ranks, *words, program=program), capture_output=True, text=True, timeout=timeout,
                          env=dict(ENVIRONMENT, **(environment or {})), cwd=cwd)


def read_idx(name):
    import gzip
    for path in (FASHION / name, FASHION / (name + ".gz")):
        if path.exists():
            data = (gzip.open if path.suffix == ".gz" else open)(path, "rb").read()
            dimensions = data[3]
            shape = [int.from_bytes(data[4 + 4 * i:8 + 4 * i], "big") for i in range(dimensions)]
            return np.frombuffer(data, np.uint8, offset=4 + 4 * dimensions).reshape(shape)
    raise unittest.SkipTest(f"{FASHION}: Debian package dataset-fashion-mnist is not installed")


def write_images(path, **splits):
    """An HDF5 file of {split: (images, labels)}, as FORMAT.md says."""
    with h5py.File(path, "w") as file:
        file.attrs["format"] = "lockstep-images-1"
        for split, (images, labels) in splits.items():
            file[f"{split}/images"] = images
            file[f"{split}/labels"] = labels
    return path


class Case(unittest.TestCase):
    """A test with a folder of its own and a small real dataset: the first Fashion-MNIST images."""

    TRAIN, TEST = 512, 200

    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(tempfile.mkdtemp(prefix="lockstep-test-"))
        cls.addClassCleanup(shutil.rmtree, cls.folder, ignore_errors=True)
        cls.data = write_images(
            cls.folder / "fashion.h5",
            train=(read_idx("train-images-idx3-ubyte")[:cls.TRAIN], read_idx("train-labels-idx1-ubyte")[:cls.TRAIN]),
            test=(read_idx("t10k-images-idx3-ubyte")[:cls.TEST], read_idx("t10k-labels-idx1-ubyte")[:cls.TEST]))
        cls.config = cls.folder / "small.yaml"
        cls.config.write_text(f"""
model: {{name: small_cnn}}
data: {{train: {cls.data}, batch: 16}}
train: {{epochs: 1}}
optim: {{name: sgd, lr: 0.05}}
schedule: {{name: constant}}
seed: 7
""")

    counter = 0

    def train(self, ranks, *overrides, program=LOCKSTEP, expect=0, timeout=180, environment=None, config=None):
        """Trains and returns what the run left (Run), or the finished process when a failure is expected."""
        Case.counter += 1
        directory = self.folder / f"run{Case.counter}"
        done = run(ranks, "train", config or self.config, f"run.dir={directory}", *overrides, program=program,
                   timeout=timeout, environment=environment)
        self.assertEqual(done.returncode, expect, f"{done.args}\n{done.stdout}\n{done.stderr}")
        return Run(directory, done) if expect == 0 else done


class Run:
    def __init__(self, directory, process):
        self.directory, self.process = directory, process
        lines = [json.loads(line) for line in (directory / "metrics.jsonl").read_text().splitlines()]
        self.steps = [line for line in lines if line["kind"] == "step"]
        self.evals = [line for line in lines if line["kind"] == "eval"]
        self.summary = json.loads((directory / "summary.json").read_text())

    def losses(self):
        return [step["loss"] for step in self.steps]

    def weights(self, name="weights.safetensors"):
        from safetensors.numpy import load_file
        return load_file(self.directory / name)


def largest_difference(a, b):
    """Largest absolute difference of two weight dictionaries."""
    assert a.keys() == b.keys(), (a.keys(), b.keys())
    return max(float(np.max(np.abs(a[name].astype(np.float64) - b[name].astype(np.float64)), initial=0)) for name in a)
