"""Made-up images in exactly the official forms: the python ones as Python 2's cPickle wrote them."""

import functools
import io
import pickle
import subprocess
import tarfile

import h5py
import numpy as np

from support import ScratchCase, command, contents

SCRIPT = "cifar.py"
NAMES10 = "airplane automobile bird cat deer dog frog horse ship truck".split()
NAMES100 = [f"fine_{i}" for i in range(100)]
NAMES20 = [f"coarse_{i}" for i in range(20)]


def made_up(count, classes, seed):
    """`count` different images that compress well, as rows of 3,072 bytes, and shuffled labels."""
    rng = np.random.default_rng(seed)
    labels = rng.permutation(np.arange(count) % classes).astype(np.uint8)
    images = np.repeat(rng.integers(0, 256, (count, 48), np.uint8), 64, axis=1)
    return images, labels


def python2_pickle(items):
    """A dictionary as Python 2 wrote it, protocol 2: strings are bytes, arrays numpy.core.multiarray's."""

    class Python2Pickler(pickle._Pickler):  # the Python one, whose parts can be replaced
        dispatch = dict(pickle._Pickler.dispatch)

        def save_bytes(self, value):
            if len(value) < 256:
                self.write(b"U" + bytes([len(value)]) + value)  # SHORT_BINSTRING
            else:
                self.write(b"T" + len(value).to_bytes(4, "little") + value)  # BINSTRING

        dispatch[bytes] = save_bytes
        dispatch[str] = lambda self, value: self.save_bytes(value.encode("latin1"))

        def save_global(self, value, name=None):
            module, name = {
                "_reconstruct": ("numpy.core.multiarray", "_reconstruct"),
                "ndarray": ("numpy", "ndarray"),
                "dtype": ("numpy", "dtype"),
            }[value.__name__]
            self.write(f"c{module}\n{name}\n".encode())

        for kind in (type, type(np.zeros(1).__reduce__()[0]), type(np.dtype)):
            dispatch[kind] = save_global

    out = io.BytesIO()
    Python2Pickler(out, 2).dump(items)
    return out.getvalue()


def batches10():
    parts = [made_up(10000, 10, i) for i in range(6)]
    return parts[:5], parts[5]


@functools.cache
def files_of(variant):
    """{name: bytes} of an archive, with what it must become: {split: (images, labels...)}."""
    if "10-" in variant.replace("100-", ""):
        train, test = batches10()
        batches = dict(zip([f"data_batch_{i}" for i in range(1, 6)] + ["test_batch"], [*train, test]))
        expected = {"train": tuple(np.concatenate(column) for column in zip(*train)), "test": test}
        if "binary" in variant:
            files = {
                f"{name}.bin": np.concatenate([labels[:, None], images], 1).tobytes()
                for name, (images, labels) in batches.items()
            }
            files["batches.meta.txt"] = ("\n".join(NAMES10) + "\n\n").encode()
        else:
            files = {
                name: python2_pickle(
                    {
                        b"batch_label": b"training batch 1 of 5",
                        b"labels": labels.tolist(),
                        b"data": images,
                        b"filenames": [b"x.png"] * len(labels),
                    }
                )
                for name, (images, labels) in batches.items()
            }
            files["batches.meta"] = python2_pickle(
                {
                    b"num_cases_per_batch": 10000,
                    b"label_names": [n.encode() for n in NAMES10],
                    b"num_vis": 3072,
                }
            )
        files["readme.html"] = b"<html>"
        return files, expected
    splits = {"train": made_up(50000, 100, 8), "test": made_up(10000, 100, 9)}
    expected = {
        split: (images, fine, (fine // 5).astype(np.uint8)) for split, (images, fine) in splits.items()
    }
    if "binary" in variant:
        files = {
            f"{split}.bin": np.concatenate([coarse[:, None], fine[:, None], images], 1).tobytes()
            for split, (images, fine, coarse) in expected.items()
        }
        files["fine_label_names.txt"] = ("\n".join(NAMES100) + "\n").encode()
        files["coarse_label_names.txt"] = ("\n".join(NAMES20) + "\n").encode()
    else:
        files = {
            split: python2_pickle(
                {
                    b"filenames": [b"x.png"] * len(fine),
                    b"batch_label": b"training batch 1 of 1",
                    b"fine_labels": fine.tolist(),
                    b"coarse_labels": coarse.tolist(),
                    b"data": images,
                }
            )
            for split, (images, fine, coarse) in expected.items()
        }
        files["meta"] = python2_pickle(
            {
                b"fine_label_names": [n.encode() for n in NAMES100],
                b"coarse_label_names": [n.encode() for n in NAMES20],
            }
        )
    return files, expected


class CifarCase(ScratchCase):
    def as_folder(self, variant, files):
        folder = self.folder / variant
        folder.mkdir()
        for name, data in files.items():
            (folder / name).write_bytes(data)
        return folder

    def as_archive(self, variant, files):
        path = self.folder / f"{variant}.tar.gz"
        with tarfile.open(path, "w:gz", compresslevel=1) as tar:
            for name, data in files.items():
                member = tarfile.TarInfo(f"{variant}/{name}")
                member.size = len(data)
                tar.addfile(member, io.BytesIO(data))
        return path

    @staticmethod
    def first(count, expected):
        return {split: [part[:count] for part in parts] for split, parts in expected.items()}

    def check(self, out, expected, column, names):
        data, attributes = contents(out)
        for split, parts in expected.items():
            np.testing.assert_array_equal(data[f"{split}/images"], parts[0].reshape(-1, 3, 32, 32))
            np.testing.assert_array_equal(data[f"{split}/labels"], parts[column])
        images = expected["train"][0].reshape(-1, 3, 1024)
        np.testing.assert_allclose(attributes["mean"], images.mean((0, 2)) / 255, rtol=1e-9)
        self.assertEqual(list(attributes["class_names"]), names)
        with h5py.File(out) as file:
            self.assertEqual(file["train/images"].attrs["layout"], "NCHW")


class TestOfficialForms(CifarCase):
    def test_cifar10_binary_archive(self):
        files, expected = files_of("cifar-10-binary")
        out = self.folder / "c.h5"
        self.run_ok(SCRIPT, self.as_archive("cifar-10-batches-bin", files), "--out", out)
        self.check(out, expected, 1, NAMES10)

    def test_cifar10_python_archive(self):
        files, expected = files_of("cifar-10-python")
        out = self.folder / "c.h5"
        source = self.as_archive("cifar-10-batches-py", files)
        self.run_ok(SCRIPT, source, "--out", out, "--limit", 10500)
        self.check(out, self.first(10500, expected), 1, NAMES10)
        self.assertIn("already there", self.run_ok(SCRIPT, source, "--out", out, "--limit", 10500).stdout)
        self.run_refused(
            SCRIPT, source, "--labels", "coarse", "--out", out, says=["CIFAR-10 has no coarse labels"]
        )

    def test_cifar100_binary_folder(self):
        files, expected = files_of("cifar-100-binary")
        folder = self.as_folder("cifar-100-binary", files)
        for labels, column, names in (("fine", 1, NAMES100), ("coarse", 2, NAMES20)):
            out = self.folder / f"{labels}.h5"
            self.run_ok(SCRIPT, folder, "--labels", labels, "--out", out, "--limit", 2000)
            self.check(out, self.first(2000, expected), column, names)

    def test_cifar100_python_folder(self):
        files, expected = files_of("cifar-100-python")
        folder = self.as_folder("cifar-100-python", files)
        self.run_ok(SCRIPT, folder, "--labels", "coarse", "--out", self.folder / "c.h5", "--limit", 2000)
        self.check(self.folder / "c.h5", self.first(2000, expected), 2, NAMES20)


class TestCommand(CifarCase):
    def test_own_process(self):
        done = subprocess.run(
            command(SCRIPT, self.folder / "nowhere"), capture_output=True, text=True, timeout=60
        )
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertRegex(done.stderr, r"^error: .*nowhere does not exist\. Give one of .*\n$")
        self.assertIn("examples:", self.run_ok(SCRIPT, "--help").stdout)


class TestRefusals(CifarCase):
    def refused(self, source, *says):
        self.run_refused(SCRIPT, source, "--out", self.folder / "x.h5", says=says)
        self.assertFalse((self.folder / "x.h5").exists())

    def test_damaged_binary(self):
        files, _ = files_of("cifar-10-binary")
        folder = self.as_folder("bin", files)
        batch = folder / "data_batch_3.bin"
        batch.write_bytes(files["data_batch_3.bin"][:-1])
        self.refused(folder, folder, "data_batch_3.bin has 30,729,999 bytes")
        batch.write_bytes(files["data_batch_3.bin"][:-3073])
        self.refused(folder, "49,999 images", "CIFAR-10 has 50,000")
        batch.write_bytes(b"\x0a" + files["data_batch_3.bin"][1:])
        self.refused(folder, "labels go from 0 to 10")
        other = (files["data_batch_3.bin"][0] + 1) % 10
        batch.write_bytes(bytes([other]) + files["data_batch_3.bin"][1:])
        self.refused(folder, "class", "CIFAR-10 has 5,000 of each")
        batch.unlink()
        self.refused(folder, "lacks data_batch_3.bin")

    def test_cut_or_foreign_archives(self):
        path = self.folder / "cut.tar.gz"
        path.write_bytes(b"\x1f\x8b\x08\x00" + b"\0" * 100)
        self.refused(path, path, "not a whole tar archive")
        self.refused(
            self.as_archive("other", {"readme.txt": b"hello"}), "none of cifar-10-binary", "readme.txt"
        )
        self.refused(self.folder / "nowhere", "does not exist")

    def test_a_pickle_that_would_run_code(self):
        class Evil:
            def __reduce__(self):
                return (open, (str(marker), "w"))

        marker = self.folder / "ran"
        files = {
            name: pickle.dumps({b"data": Evil()}, 2)
            for name in [f"data_batch_{i}" for i in range(1, 6)] + ["test_batch", "batches.meta"]
        }
        folder = self.as_folder("evil", files)
        self.refused(folder, folder, "it asks for", "open, which no CIFAR file needs")
        self.assertFalse(marker.exists())

    def test_an_object_array_in_a_pickle(self):
        files = {
            name: pickle.dumps({b"data": np.array([{}], object)}, 2)
            for name in [f"data_batch_{i}" for i in range(1, 6)] + ["test_batch", "batches.meta"]
        }
        self.refused(self.as_folder("objects", files), "not of bytes")

    def test_member_names_that_climb_out_write_nothing(self):
        files, _ = files_of("cifar-100-binary")
        files = {**files, "../../escaped.txt": b"x"}
        out = self.folder / "c.h5"
        self.run_ok(SCRIPT, self.as_archive("cifar-100-binary", files), "--out", out, "--limit", 5)
        self.assertEqual([p.name for p in self.folder.parent.glob("escaped*")], [])
        self.assertFalse((self.folder / "escaped.txt").exists())
