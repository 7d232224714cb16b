import gzip
import shutil
import struct
import unittest
from pathlib import Path

import h5py
import numpy as np

from support import ScratchCase, contents, sha256

DEBIAN = Path("/usr/share/datasets/fashion-mnist")
SCRIPT = "fashion_mnist.py"


def raw(name, header):
    return np.frombuffer(gzip.decompress((DEBIAN / name).read_bytes())[header:], np.uint8)


@unittest.skipUnless(DEBIAN.is_dir(), "needs the Debian package dataset-fashion-mnist")
class TestRealFiles(ScratchCase):
    def test_whole(self):
        out = self.folder / "deep" / "fashion.h5"
        first = self.run_ok(SCRIPT, "--out", out)
        self.assertIn("train 60,000 images 28x28, test 10,000 images 28x28, 10 classes", first.stdout)
        data, attributes = contents(out)
        for split, prefix, count in (("train", "train", 60000), ("test", "t10k", 10000)):
            images = raw(f"{prefix}-images-idx3-ubyte.gz", 16).reshape(count, 28, 28)
            np.testing.assert_array_equal(data[f"{split}/images"], images)
            np.testing.assert_array_equal(data[f"{split}/labels"], raw(f"{prefix}-labels-idx1-ubyte.gz", 8))
            if split == "train":
                np.testing.assert_allclose(attributes["mean"], [(images / 255).mean()], rtol=1e-12)
                np.testing.assert_allclose(attributes["std"], [(images / 255).std()], rtol=1e-12)
        self.assertAlmostEqual(attributes["mean"][0], 0.2860406, places=7)
        self.assertAlmostEqual(attributes["std"][0], 0.3530242, places=7)
        self.assertEqual(attributes["format"], "lockstep-images-1")
        self.assertEqual(attributes["class_names"][9], "Ankle boot")
        with h5py.File(out) as file:
            self.assertEqual(file["train/images"].attrs["layout"], "NHW")
            self.assertIsNone(file["train/images"].chunks)
            self.assertEqual(file["train/images"].dtype, np.uint8)
        before = out.stat().st_mtime_ns
        self.assertIn("already there", self.run_ok(SCRIPT, "--out", out).stdout)
        self.assertEqual(out.stat().st_mtime_ns, before)
        self.run_refused(SCRIPT, "--out", out, "--limit", 7, says=[out, "limit 0, not 7", "--force"])
        self.run_ok(SCRIPT, "--out", out, "--limit", 7, "--force")
        self.assertEqual(len(contents(out)[0]["test/labels"]), 7)

    def test_plain_files_of_another_folder(self):
        for path in DEBIAN.glob("*.gz"):
            (self.folder / path.stem.replace("-idx", ".idx")).write_bytes(gzip.decompress(path.read_bytes()))
        options = ["--limit", 300, "--chunk", 64, "--compress", "gzip"]
        self.run_ok(SCRIPT, "--from", self.folder, "--out", self.folder / "plain.h5", *options)
        self.run_ok(SCRIPT, "--out", self.folder / "gz.h5", *options)
        self.assertEqual(sha256(self.folder / "plain.h5"), sha256(self.folder / "gz.h5"))

    def test_damaged_files(self):
        for path in DEBIAN.glob("*.gz"):
            shutil.copy(path, self.folder)
        name = "train-labels-idx1-ubyte.gz"
        good = (DEBIAN / name).read_bytes()
        labels = gzip.decompress(good)
        for damage, says in (
            (good[:2000], "cannot be read"),
            (gzip.compress(labels[:-1]), "damaged: 60,007 bytes"),
            (gzip.compress(b"<html>" + labels), "starts with 3c68746d, not 000008"),
            (gzip.compress(labels[:8] + b"\x0b" + labels[9:]), "label 11"),
            (gzip.compress(b"\0\0\x08\x01" + struct.pack(">I", 3) + b"abc"), "Is this another dataset?"),
        ):
            (self.folder / name).write_bytes(damage)
            self.run_refused(
                SCRIPT, "--from", self.folder, "--out", self.folder / "x.h5", says=[self.folder, says]
            )
            self.assertFalse((self.folder / "x.h5").exists())


class TestNoFiles(ScratchCase):
    def test_says_how_to_get_them(self):
        self.run_refused(
            SCRIPT,
            "--from",
            self.folder,
            "--out",
            self.folder / "x.h5",
            says=[self.folder, "apt-get install dataset-fashion-mnist", "--from"],
        )

    def test_help_teaches(self):
        done = self.run_ok(SCRIPT, "--help")
        self.assertIn("examples:", done.stdout)
