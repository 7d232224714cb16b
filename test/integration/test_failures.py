"""Nothing hangs: a rank that dies, throws, stops or diverges ends the whole job within seconds, and the message says who."""
import os
import pathlib
import signal
import subprocess
import time
import unittest

import h5py
import numpy as np

from harness import ENVIRONMENT, LOCKSTEP, Case, mpirun, run, write_images


def processes_of(launcher):
    """Process ids of the ranks that a launcher started, by rank."""
    found = {}
    for entry in pathlib.Path("/proc").iterdir():
        try:
            status = (entry / "stat").read_text()
            if int(status.rsplit(")", 1)[1].split()[1]) != launcher or "mpirun" in status:
                continue
            variables = (entry / "environ").read_bytes().split(b"\0")
            rank = [v for v in variables if v.startswith(b"OMPI_COMM_WORLD_RANK=")]
            if rank:
                found[int(rank[0].split(b"=")[1])] = int(entry.name)
        except (OSError, ValueError, IndexError):
            continue
    return found


def alive(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


class Faults(Case):
    def start(self, ranks, *overrides):
        """Starts a long run and waits until it trains."""
        Case.counter += 1
        self.run_dir = self.folder / f"fault{Case.counter}"
        self.log = (self.folder / f"fault{Case.counter}.log").open("w+")
        job = subprocess.Popen(mpirun(ranks, "train", self.config, f"run.dir={self.run_dir}", "train.epochs=100000",
                                      "train.eval_every=-1", *overrides), stderr=self.log, stdout=self.log, env=ENVIRONMENT)
        self.addCleanup(lambda: (job.kill(), job.wait(), self.log.close()))
        deadline = time.time() + 60
        while time.time() < deadline and job.poll() is None:
            metrics = self.run_dir / "metrics.jsonl"
            if metrics.exists() and metrics.stat().st_size > 0:
                return job, processes_of(job.pid)
            time.sleep(0.05)
        self.fail("the run did not start:\n" + self.text())

    def text(self):
        self.log.flush()
        return pathlib.Path(self.log.name).read_text()

    def test_kill_9_of_any_rank(self):
        for victim in range(4):
            job, pids = self.start(4)
            self.assertEqual(sorted(pids), [0, 1, 2, 3])
            os.kill(pids[victim], signal.SIGKILL)
            start = time.time()
            job.wait(timeout=5)
            self.assertLess(time.time() - start, 5)
            self.assertNotEqual(job.returncode, 0)
            self.assertFalse([pid for pid in pids.values() if alive(pid)])
            self.assertIn(f"rank {victim} ", self.text())

    def test_no_child_processes(self):
        job, pids = self.start(2)
        for pid in pids.values():
            children = pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
            self.assertEqual(children, [])
        job.terminate()
        job.wait(timeout=10)

    def test_stopped_rank_is_named(self):
        job, pids = self.start(3, "comm.timeout_s=4", "comm.warn_s=2")
        os.kill(pids[1], signal.SIGSTOP)
        start = time.time()
        job.wait(timeout=30)
        self.assertLess(time.time() - start, 20)
        self.assertNotEqual(job.returncode, 0)
        self.assertRegex(self.text(), r"missing: rank 1 ")
        os.kill(pids[1], signal.SIGKILL) if alive(pids[1]) else None

    def test_rank_that_throws(self):
        # One chunk of the file is damaged after the check at the start could see it: only the rank that reads it fails.
        images = np.random.default_rng(0).integers(0, 255, (512, 28, 28), np.uint8)
        damaged = self.folder / "damaged.h5"
        with h5py.File(damaged, "w") as file:
            data = file.create_dataset("train/images", data=images, chunks=(8, 28, 28), compression="gzip", fletcher32=True)
            file["train/labels"] = np.arange(512) % 10
            file["test/images"], file["test/labels"] = images[:8], np.arange(8)
            place = data.id.get_chunk_info(20)
        with damaged.open("r+b") as raw:
            raw.seek(place.byte_offset + place.size // 2)
            raw.write(b"\xff" * 64)
        start = time.time()
        done = self.train(4, f"data.train={damaged}", "data.batch=8", expect=1, timeout=60)
        self.assertLess(time.time() - start, 30)
        self.assertRegex(done.stderr, r"rank \d on \S+: error: .*damaged.h5")

    def test_loss_that_is_not_finite(self):
        done = self.train(2, "optim.lr=1e30", "optim.momentum=0", expect=1, timeout=60)
        self.assertIn("the loss is not finite at step", done.stderr)
        self.assertEqual(done.stderr.count("not finite"), 1)

    def test_twenty_short_runs_end(self):
        for _ in range(20):
            start = time.time()
            done = run(2, "train", self.config, "train.steps=5", "train.eval_every=-1", "train.save_weights=false",
                       f"run.dir={self.folder / f'short{time.time_ns()}'}", timeout=30)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertLess(time.time() - start, 15)


if __name__ == "__main__":
    unittest.main()
