"""What the converters' tests share: running a script, reading what it wrote."""

import contextlib
import hashlib
import importlib
import io
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import h5py

ROOT = Path(__file__).resolve().parents[2]
DATASETS = ROOT / "datasets"
sys.path.insert(0, str(DATASETS))

import lockstep_images


class ScratchCase(unittest.TestCase):
    """A test with a scratch folder, `self.folder`."""

    def setUp(self):
        scratch = tempfile.TemporaryDirectory(prefix="lockstep-datasets-")
        self.addCleanup(scratch.cleanup)
        self.folder = Path(scratch.name)

    def run_ok(self, script, *arguments):
        done = run_script(script, *arguments)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done

    def run_refused(self, script, *arguments, says):
        """The script exits with 1 and one line that holds every text of `says`."""
        done = run_script(script, *arguments)
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        errors = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
        self.assertEqual(len(errors), 1, done.stderr)
        self.assertNotIn("Traceback", done.stderr)
        for text in says:
            self.assertIn(str(text), errors[0])
        return done


def command(script, *arguments):
    return [sys.executable, "-B", str(DATASETS / script), *map(str, arguments)]


def run_script(script, *arguments):
    """As the command line would run it, but in this process, which spares the imports."""
    module = importlib.import_module(script.removesuffix(".py"))
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            lockstep_images.run(lambda: module.main([str(argument) for argument in arguments]))
        except SystemExit as exit:
            code = exit.code or 0
    return subprocess.CompletedProcess(script, code, out.getvalue(), err.getvalue())


def sha256(path):
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()


def contents(path):
    """Every dataset and root attribute of an HDF5 file."""
    with h5py.File(path, "r") as file:
        found = {}
        file.visititems(
            lambda name, item: found.update({name: item[:]}) if isinstance(item, h5py.Dataset) else None
        )
        return found, dict(file.attrs)
