import contextlib
import io
import os
import re
from fractions import Fraction
from unittest import mock

import h5py
import numpy as np

from support import DATASETS, ScratchCase, contents, sha256

import lockstep_images as li

RNG_SEED = 5


def info(layout, classes=("a", "b"), recipe="{}"):
    return li.FileInfo(list(classes), "a test", recipe, layout)


class TestStatistics(ScratchCase):
    def test_equals_numpy_in_every_layout(self):
        images = np.random.default_rng(RNG_SEED).integers(0, 256, (50, 6, 7, 3), np.uint8)
        for layout, stored in (("NHWC", images), ("NCHW", images.transpose(0, 3, 1, 2))):
            statistics = li.Statistics(3)
            statistics.add(stored[:20], layout)
            statistics.add(stored[20:], layout)
            np.testing.assert_allclose(statistics.mean(), (images / 255).mean((0, 1, 2)), rtol=1e-13)
            np.testing.assert_allclose(statistics.std(), (images / 255).std((0, 1, 2)), rtol=1e-12)

    def test_is_exact_and_independent_of_order(self):
        images = np.random.default_rng(RNG_SEED).integers(0, 256, (40, 5, 5), np.uint8)
        forward, backward = li.Statistics(1), li.Statistics(1)
        for i in range(40):
            forward.add(images[i : i + 1], "NHW")
            part = li.Statistics(1)
            part.add(images[39 - i : 40 - i], "NHW")
            backward.merge(part.to_json())
        self.assertEqual(forward.to_json(), backward.to_json())
        exact = Fraction(int(images.astype(int).sum()), 255 * images.size)
        self.assertEqual(forward.mean()[0], float(exact))

    def test_a_constant_channel_has_std_one(self):
        statistics = li.Statistics(1)
        statistics.add(np.full((3, 4, 4), 7, np.uint8), "NHW")
        self.assertEqual(statistics.std()[0], 1)


class TestWriting(ScratchCase):
    def write(self, path, storage, count=100):
        images = np.random.default_rng(RNG_SEED).integers(0, 256, (count, 8, 9), np.uint8)
        splits = {"train": (images, np.arange(count) % 2), "test": (images[:10], np.zeros(10, np.uint8))}
        with contextlib.redirect_stderr(io.StringIO()):
            li.write_file(path, splits, info("NHW"), storage)
        return images

    def test_storage_forms_hold_the_same_images(self):
        forms = {
            "plain": li.Storage(),
            "chunks": li.Storage(chunk=7),
            "gzip": li.Storage("gzip"),
            "gzip_chunks": li.Storage("gzip", 7),
        }
        for name, storage in forms.items():
            path = self.folder / f"{name}.h5"
            images = self.write(path, storage)
            with h5py.File(path) as file:
                stored = file["train/images"]
                np.testing.assert_array_equal(stored[:], images)
                self.assertEqual(stored.compression, "gzip" if "gzip" in name else None)
                self.assertEqual(stored.chunks, {"plain": None, "gzip": (100, 8, 9)}.get(name, (7, 8, 9)))
                self.assertEqual(file["test/labels"].dtype, np.int64)
                if name == "plain":
                    self.assertEqual(stored.id.get_offset() % 4096, 0)
                    raw = path.read_bytes()[stored.id.get_offset() :][: images.nbytes]
                    self.assertEqual(raw, images.tobytes())

    def test_default_chunks_are_about_a_mebibyte(self):
        self.assertEqual(li.Storage("gzip").rows(28 * 28, 60000), 1024)
        self.assertEqual(li.Storage("gzip").rows(3 * 224 * 224, 60000), 4)
        self.assertEqual(li.Storage("gzip").rows(3 * 2000 * 2000, 60000), 1)

    def test_same_input_same_bytes(self):
        for name in "ab":
            self.write(self.folder / name, li.Storage("gzip", 7))
        self.assertEqual(sha256(self.folder / "a"), sha256(self.folder / "b"))

    def test_nothing_appears_under_the_final_name_before_all_is_written(self):
        path = self.folder / "x.h5"
        path.write_text("old")
        with (
            mock.patch.object(li, "append_blocks", side_effect=OSError("disk full")),
            self.assertRaises(OSError),
        ):
            self.write(path, li.Storage())
        self.assertEqual(path.read_text(), "old")

    def test_as_many_class_names_as_there_may_be(self):
        names = [f"class number {i} \u00e9" for i in range(30000)]
        with li.create_file(self.folder / "n.h5", info("NHW", names), li.Statistics(1)):
            pass
        self.assertEqual(list(contents(self.folder / "n.h5")[1]["class_names"]), names)

    def test_too_little_space_is_said_before_writing(self):
        with self.assertRaisesRegex(li.UserError, r"GB free and x\.h5 needs about 1000000.0 GB"):
            li.check_space(self.folder / "x.h5", 10**15)

    def test_another_file_in_place_is_not_replaced(self):
        path = self.folder / "x.h5"
        self.assertFalse(li.already_done(path, "{}", force=False))
        path.write_text("somebody's thesis")
        with self.assertRaisesRegex(li.UserError, "x.h5 exists and is not a file of this converter.*--force"):
            li.already_done(path, "{}", force=False)
        self.assertFalse(li.already_done(path, "{}", force=True))

    def test_a_file_in_the_place_of_the_folder(self):
        (self.folder / "f").write_text("")
        with self.assertRaisesRegex(li.UserError, "cannot make the folder"):
            li.already_done(self.folder / "f" / "x.h5", "{}", force=False)


class TestDocuments(ScratchCase):
    def test_the_example_of_format_md_runs(self):
        example = re.search(r"```python\n(.*?)```", (DATASETS / "FORMAT.md").read_text(), re.S).group(1)
        here = os.getcwd()
        os.chdir(self.folder)
        self.addCleanup(os.chdir, here)
        exec(example, {})
        data, attributes = contents("mine.h5")
        self.assertEqual(data["train/images"].shape, (900, 32, 48, 3))
        self.assertEqual(data["test/labels"].tolist(), [0, 1] * 50)
        self.assertEqual(list(attributes["class_names"]), ["cat", "dog"])
        self.assertEqual(attributes["mean"].shape, (3,))
        self.assertLess(max(abs(attributes["mean"] - 0.5)), 0.01)

    def test_format_md_names_every_attribute(self):
        text = (DATASETS / "FORMAT.md").read_text()
        with contextlib.redirect_stderr(io.StringIO()):
            li.write_file(
                self.folder / "x.h5",
                {"train": (np.zeros((3, 8, 8), np.uint8), np.arange(3))},
                info("NHW"),
                li.Storage(),
            )
        for name in contents(self.folder / "x.h5")[1]:
            self.assertIn(f"`{name}`", text)
        self.assertIn(f"`{li.FORMAT}`", text)
