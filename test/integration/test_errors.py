"""Mistakes are refused before training, once, with the name, the value and the remedy, on any number of ranks."""
import subprocess
import sys
import time
import unittest

import h5py
import numpy as np

from harness import ENVIRONMENT, LOCKSTEP, Case, mpirun, run, write_images


class Errors(Case):
    def refuse(self, *overrides, ranks=2, code=2, words=(), **more):
        start = time.time()
        done = self.train(ranks, *overrides, expect=code, timeout=60, **more)
        self.assertLess(time.time() - start, 30)
        for word in words:
            self.assertIn(word, done.stderr)
        self.assertEqual(done.stderr.count("error: "), 1, f"said more than once:\n{done.stderr}")
        self.assertNotIn("MPI_ABORT", done.stderr)
        return done

    def test_configuration(self):
        self.refuse("optim.lerning_rate=1", words=("lerning_rate", "command line"))
        self.refuse("data.epochs=3", words=("data.epochs", "train.epochs"))
        self.refuse("optim.lr=fast", words=("optim.lr", "fast"))
        self.refuse("model.name=resnet19", words=("resnet19", "resnet18"))
        self.refuse("parallel.strategy=dpp", words=("dpp", "ddp"))
        self.refuse("data.global_batch=64", words=("global_batch",))
        self.refuse("precision=fp8", words=("fp8", "fp32"))
        bad = self.folder / "bad.yaml"
        bad.write_text("model:\n  nmae: small_cnn\n")
        self.refuse(config=bad, words=("bad.yaml:2", "nmae", "name"))
        self.refuse(config=self.folder / "absent.yaml", words=("absent.yaml",))

    def test_data(self):
        self.refuse("data.train=nowhere.h5", code=1, words=("nowhere.h5",))
        self.refuse("data.train_split=trian", words=("trian", "train"))
        with h5py.File(self.data) as file:
            images, labels = file["train/images"][:64], file["train/labels"][:64].astype(np.int64)
        test = (images[:8], labels[:8])

        def file_of(name, *train):
            return "data.train=" + str(write_images(self.folder / f"{name}.h5", train=train, test=test))

        self.refuse(file_of("counts", images, labels[:63]), words=("64", "63"))
        self.refuse(file_of("negative", images, np.where(np.arange(64) == 5, -1, labels)), words=("-1", "5"))
        self.refuse(file_of("empty", images[:0], labels[:0]), words=("empty.h5",))
        self.refuse(file_of("few", images[:3], labels[:3]), ranks=4, words=("few.h5", "4 ranks"))
        self.refuse(file_of("shape", images[:, 0], labels), words=("shape.h5",))
        whole = write_images(self.folder / "whole.h5", train=(images, labels), test=test).read_bytes()
        (self.folder / "cut.h5").write_bytes(whole[: len(whole) // 2])
        (self.folder / "text.h5").write_text("not HDF5 at all" * 100)
        self.refuse(f"data.train={self.folder / 'cut.h5'}", code=1, words=("cut.h5", str(len(whole) // 2)))
        self.refuse(f"data.train={self.folder / 'text.h5'}", code=1, words=("text.h5",))
        self.refuse(f"data.train=[{self.folder / 'whole.h5'}, {self.folder / 'cut.h5'}]", code=1, words=("cut.h5",))

    def test_file_held_by_a_writer(self):
        held = write_images(self.folder / "held.h5", train=(np.zeros((64, 28, 28), np.uint8), np.zeros(64, np.int64)),
                            test=(np.zeros((8, 28, 28), np.uint8), np.arange(8)))
        holder = subprocess.Popen([sys.executable, "-c", f"import h5py,time; f=h5py.File({str(held)!r},'r+'); "
                                   "print('held',flush=True); time.sleep(60)"], stdout=subprocess.PIPE)
        try:
            holder.stdout.readline()
            self.refuse(f"data.train={held}", code=1, words=("held.h5", "lock"))
        finally:
            holder.kill()
            holder.wait()

    def test_ranks_with_different_configurations(self):
        command = [*mpirun(1, "train", self.config, "optim.lr=0.1"), ":", "-n", "1", LOCKSTEP, "train", str(self.config),
                   "optim.lr=0.2"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=ENVIRONMENT)
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn("lr: 0.2", done.stderr)

    def test_run_directory_is_never_overwritten(self):
        first = self.train(1, "train.steps=1")
        done = run(1, "train", self.config, f"run.dir={first.directory}")
        self.assertEqual(done.returncode, 2)
        self.assertIn("already holds a run", done.stderr)

    def test_help_and_versions_need_no_mpi(self):
        for words in (["--help"], ["train", "--help"], ["--version"], ["bench", "--help"], ["eval", "--help"],
                      ["inspect", "--help"], ["doctor", "--help"]):
            done = run(0, *words, timeout=20)
            self.assertEqual(done.returncode, 0, words)
            self.assertEqual(done.stderr, "", words)
            self.assertTrue(done.stdout)
        twice = run(2, "train", "--help", timeout=20)
        self.assertEqual(twice.stdout.count("label_smoothing"), 1)
        self.assertEqual(run(0, "trian").returncode, 2)
        self.assertIn("'train'", run(0, "trian").stderr)
        self.assertEqual(run(0, "train", self.config, "lr").returncode, 2)

    def test_slurm_tasks_that_each_believe_to_be_alone(self):
        done = self.train(0, expect=2, environment={"SLURM_NTASKS": "4", "SLURM_PROCID": "1", "SLURM_STEP_ID": "0"})
        self.assertIn("srun --mpi", done.stderr)


class Inspect(Case):
    def test_inspect(self):
        done = run(0, "inspect", self.data)
        self.assertEqual(done.returncode, 0, done.stderr)
        for word in ("train", "test", "512", "28", "uint8"):
            self.assertIn(word, done.stdout)

    def test_doctor(self):
        done = run(2, "doctor")
        self.assertEqual(done.returncode, 0, done.stderr)
        for word in ("Open MPI", "hdf5", "libtorch", "NCCL"):
            self.assertIn(word, done.stdout)


if __name__ == "__main__":
    unittest.main()
