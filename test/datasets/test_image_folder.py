import contextlib
import gzip
import io
import json
import operator
import os
import subprocess
import time
import unittest
from pathlib import Path
from unittest import mock

import h5py
import numpy as np
from PIL import Image

from support import ScratchCase, command, contents, sha256

import image_decode
import image_folder
import image_listing

SCRIPT = "image_folder.py"
DEBIAN = Path("/usr/share/datasets/fashion-mnist")
COLOURS = {"blue": (10, 40, 200), "green": (20, 180, 30), "red": (220, 30, 10)}


def save(path, image, **options):
    path.parent.mkdir(parents=True, exist_ok=True)
    image.save(path, **options)
    return path


def noise(height, width, seed=0, channels=3):
    """Smooth, so that JPEG keeps it nearly."""
    small = np.random.default_rng(seed).integers(0, 256, (4, 4, channels), np.uint8)
    return Image.fromarray(small.squeeze()).resize((width, height), Image.Resampling.BICUBIC)


def independent(path, height, width, shorter=0, mode="RGB"):
    """What an image must become, by torchvision's rule: resize the shorter side, crop the centre."""
    image = Image.open(path).convert(mode)
    w, h = image.size
    scale = shorter / min(w, h) if shorter else max(width / w, height / h)
    w, h = max(width, round(w * scale)), max(height, round(h * scale))
    image = image.resize((w, h), Image.Resampling.BILINEAR)
    left, top = (w - width) // 2, (h - height) // 2
    return np.asarray(image)[top : top + height, left : left + width]


class FolderCase(ScratchCase):
    def pets(self, count=20, size=(24, 24), ending="png"):
        for c, name in enumerate(COLOURS):
            for i in range(count):
                save(self.folder / "pets" / name / f"{i}.{ending}", noise(*size, seed=100 * c + i))
        return self.folder / "pets"

    def convert(self, source, *options, out="x.h5"):
        """In this process unless told otherwise; returns datasets and attributes."""
        workers = [] if "--workers" in options else ["--workers", 0]
        self.done = self.run_ok(SCRIPT, source, "--out", self.folder / out, *workers, *options)
        return contents(self.folder / out)

    def refused(self, source, *options, says):
        return self.run_refused(
            SCRIPT, source, "--out", self.folder / "x.h5", "--workers", 0, *options, says=says
        )


class TestContents(FolderCase):
    @unittest.skipUnless(DEBIAN.is_dir(), "needs the Debian package dataset-fashion-mnist")
    def test_real_images_as_jpeg_and_png(self):
        images = np.frombuffer(
            gzip.decompress((DEBIAN / "t10k-images-idx3-ubyte.gz").read_bytes())[16:], np.uint8
        )
        labels = gzip.decompress((DEBIAN / "t10k-labels-idx1-ubyte.gz").read_bytes())[8:]
        for i, image in enumerate(images.reshape(-1, 28, 28)[:300]):
            save(
                self.folder / "f" / f"class{labels[i]}" / f"{i}.{'png' if i % 2 else 'jpg'}",
                Image.fromarray(image),
            )
        data, attributes = self.convert(self.folder / "f", "--mode", "L", "--split", 0.25, "--workers", 2)
        seen = set()
        for split in ("train", "val"):
            for name, label, stored in zip(
                data[f"{split}/files"], data[f"{split}/labels"], data[f"{split}/images"]
            ):
                path = self.folder / "f" / name.decode()
                np.testing.assert_array_equal(stored, np.asarray(Image.open(path)))
                self.assertEqual(attributes["class_names"][label], path.parent.name)
                seen.add(path.name)
        self.assertEqual(len(seen), 300)
        self.assertTrue(45 <= len(data["val/labels"]) <= 105)
        np.testing.assert_allclose(attributes["mean"], [(data["train/images"] / 255).mean()], rtol=1e-12)
        np.testing.assert_allclose(attributes["std"], [(data["train/images"] / 255).std()], rtol=1e-12)
        self.assertEqual(list(self.folder.glob("x.h5*")), [self.folder / "x.h5"])

    def test_resize_and_crop(self):
        root = self.folder / "pets"
        for i, (height, width) in enumerate([(40, 60), (60, 40), (24, 32), (10, 200), (33, 33), (700, 900)]):
            save(root / "ab"[i % 2] / f"{i}.png", noise(height, width, seed=i))
        for options, arguments in (
            (["--size", "24x32"], (24, 32)),
            (["--size", "20", "--shorter", "30"], (20, 20, 30)),
        ):
            data, attributes = self.convert(root, "--split", 0, "--force", *options)
            self.assertEqual(data["train/images"].shape, (6, *arguments[:2], 3))
            self.assertNotIn("val/images", data)
            for name, stored in zip(data["train/files"], data["train/images"]):
                np.testing.assert_array_equal(stored, independent(root / name.decode(), *arguments), name)
            self.assertEqual(len(attributes["mean"]), 3)

    def test_a_large_jpeg_decoded_small_stays_close(self):
        path = save(self.folder / "big.jpg", noise(1200, 1600), quality=95)
        ours = image_decode.decode(path, image_decode.Decoding(100, 100)).astype(int)
        self.assertLess(np.abs(ours - independent(path, 100, 100)).max(), 6)

    def test_order_mixes_classes_and_shards_share_it(self):
        root = self.pets(count=40)
        whole, _ = self.convert(root)
        labels = whole["train/labels"]
        self.assertEqual(set(labels[:20]), {0, 1, 2})
        self.run_ok(SCRIPT, root, "--out", self.folder / "s.h5", "--shards", 3, "--workers", 0)
        shards = sorted(self.folder.glob("s*.h5"))
        self.assertEqual([p.name for p in shards], [f"s-0000{i}-of-00003.h5" for i in range(3)])
        for name in whole:
            np.testing.assert_array_equal(np.concatenate([contents(p)[0][name] for p in shards]), whole[name])
        self.assertEqual(
            {tuple(contents(p)[1]["mean"]) for p in shards},
            {tuple(contents(self.folder / "x.h5")[1]["mean"])},
        )
        self.assertIn(
            "already there", self.run_ok(SCRIPT, root, "--out", self.folder / "s.h5", "--shards", 3).stdout
        )

    def test_own_split_folders(self):
        for split, seed in (("train", 0), ("validation", 1), ("test", 2)):
            for name in "ab":
                save(self.folder / "d" / split / name / "sub" / "1.bmp", noise(8, 8, seed))
        data, _ = self.convert(self.folder / "d")
        self.assertEqual({n.split("/")[0] for n in data}, {"train", "val", "test"})
        np.testing.assert_array_equal(data["val/images"][0], np.asarray(noise(8, 8, 1)))
        self.refused(self.folder / "d", "--split", 0.5, says=["has its own splits"])
        save(self.folder / "d" / "test" / "c" / "1.png", noise(8, 8))
        self.refused(self.folder / "d", "--force", says=["test/c: there is no class 'c' in"])

    def test_split_depends_on_names_alone(self):
        root = self.pets(count=40)
        before, _ = self.convert(root, "--split", 0.3)
        save(root / "red" / "new.png", noise(24, 24, 999))
        after, _ = self.convert(root, "--split", 0.3, "--force")
        for split in ("train", "val"):
            self.assertLessEqual(set(before[f"{split}/files"]), set(after[f"{split}/files"]))

    def test_storage_forms_and_limit(self):
        root = self.pets()
        plain, _ = self.convert(root, "--limit", 30)
        self.assertEqual(len(plain["train/labels"]), 30)
        for options in (["--compress", "gzip"], ["--chunk", 7], ["--compress", "gzip", "--chunk", 8]):
            other, attributes = self.convert(root, "--limit", 30, "--force", *options)
            self.assertEqual(plain.keys(), other.keys())
            for name in plain:
                np.testing.assert_array_equal(other[name], plain[name])
            self.assertGreater(attributes["mean"][0], 0)
            with h5py.File(self.folder / "x.h5") as file:
                self.assertEqual(file["train/images"].chunks is not None, True)
                self.assertEqual(file["train/images"].compression, "gzip" if "gzip" in options else None)


class TestModes(ScratchCase):
    def decoded(self, image, ending="png", mode="RGB", **options):
        path = save(self.folder / f"i.{ending}", image, **options)
        return image_decode.decode(
            path, image_decode.Decoding(image.height, image.width, resize=False, mode=mode)
        )

    def test_grey_palette_bits_cmyk(self):
        for mode, wanted in (
            ("L", [77] * 3),
            ("P", [0, 0, 255]),
            ("1", [255] * 3),
            ("CMYK", [255, 255, 255]),
        ):
            with self.subTest(mode):
                colour = {"L": 77, "P": 1, "1": 1, "CMYK": (0, 0, 0, 0)}[mode]
                image = Image.new(mode, (6, 4), colour)
                if mode == "P":
                    image.putpalette([255, 0, 0, 0, 0, 255])
                out = self.decoded(image, "jpg" if mode == "CMYK" else "png")
                self.assertEqual(out.shape, (4, 6, 3))
                np.testing.assert_array_equal(out[2, 3], wanted)

    def test_cmyk_colours(self):
        out = self.decoded(Image.new("CMYK", (16, 16), (255, 0, 0, 0)), "jpg", quality=100)  # all cyan
        self.assertTrue(out[8, 8, 0] < 60 and out[8, 8, 1:].min() > 150, out[8, 8])

    def test_transparent_becomes_white(self):
        half = Image.new("RGBA", (4, 4), (200, 0, 0, 128))
        np.testing.assert_allclose(self.decoded(half)[0, 0], [227, 127, 127], atol=1)
        np.testing.assert_array_equal(self.decoded(Image.new("LA", (4, 4), (9, 0)))[0, 0], [255] * 3)
        palette = Image.new("P", (4, 4), 0)
        palette.putpalette([1, 2, 3])
        np.testing.assert_array_equal(self.decoded(palette, transparency=0)[0, 0], [255] * 3)
        self.assertEqual(self.decoded(Image.new("LA", (4, 4), (9, 255)), mode="L")[0, 0], 9)

    def test_sixteen_bits(self):
        image = Image.fromarray(np.full((4, 4), 0x7FFF, np.uint16))
        self.assertEqual(self.decoded(image, mode="L")[0, 0], 0x7F)

    def test_thirty_two_bits_are_refused(self):
        with self.assertRaisesRegex(image_decode.BadImage, "32 bits a pixel"):
            self.decoded(Image.new("F", (4, 4), 0.5), "tif")

    def test_exif_orientation(self):
        image = noise(16, 24)
        for orientation, turn in (
            (3, Image.Transpose.ROTATE_180),
            (6, Image.Transpose.ROTATE_270),
            (8, Image.Transpose.ROTATE_90),
            (2, Image.Transpose.FLIP_LEFT_RIGHT),
        ):
            exif = Image.Exif()
            exif[0x0112] = orientation
            path = save(self.folder / "o.png", image, exif=exif)
            wanted = np.asarray(image.transpose(turn))
            self.assertEqual(image_decode.upright_size(path), wanted.shape[:2])
            out = image_decode.decode(path, image_decode.Decoding(*wanted.shape[:2], resize=False))
            np.testing.assert_array_equal(out, wanted)


class TestBadInput(FolderCase):
    def spoil(self, root, ending="jpg"):
        cut = root / "green" / f"3.{ending}"
        cut.write_bytes(cut.read_bytes()[: len(cut.read_bytes()) // 2])
        (root / "red" / f"5.{ending}").write_bytes(b"")
        return cut

    def test_a_corrupt_image_stops_with_its_name_and_the_command_goes_on(self):
        root = self.pets(ending="jpg")
        clean, _ = self.convert(root, out="clean.h5")
        cut = root / "green" / "3.jpg"
        whole = cut.read_bytes()
        cut.write_bytes(whole[:-100])
        self.refused(root, says=[cut, "truncated", "--skip-bad"])
        self.assertFalse((self.folder / "x.h5").exists())
        cut.write_bytes(whole)
        data, _ = self.convert(root)
        self.assertEqual(sha256(self.folder / "clean.h5"), sha256(self.folder / "x.h5"))

    def test_skip_bad_reports_and_leaves_out(self):
        root = self.pets(ending="jpg")
        clean, _ = self.convert(root, out="clean.h5")
        cut = self.spoil(root)
        data, attributes = self.convert(root, "--skip-bad")
        self.assertIn(f"skipped {cut}", self.done.stderr)
        self.assertIn("red/5.jpg: it is not an image", self.done.stderr)
        self.assertEqual(attributes["skipped"], 2)
        gone = {b"green/3.jpg", b"red/5.jpg"}
        for split in ("train", "val"):
            keep = [name not in gone for name in clean[f"{split}/files"]]
            for part in ("images", "labels", "files"):
                np.testing.assert_array_equal(data[f"{split}/{part}"], clean[f"{split}/{part}"][keep])
        np.testing.assert_allclose(
            attributes["mean"], (data["train/images"] / 255).mean((0, 1, 2)), rtol=1e-12
        )

    def test_nothing_but_bad_images(self):
        for name in "ab":
            for i in range(5):
                (self.folder / "d" / name).mkdir(parents=True, exist_ok=True)
                (self.folder / "d" / name / f"{i}.jpg").write_text("no")
        self.refused(
            self.folder / "d",
            "--size",
            8,
            "--skip-bad",
            "--split",
            0,
            says=["none of the 10 images", "can be read"],
        )
        self.refused(self.folder / "d", "--skip-bad", "--split", 0, says=["no training image can be opened"])

    def test_sizes_that_differ_without_size(self):
        root = self.pets()
        save(root / "red" / "odd.png", noise(24, 25))
        self.refused(root, "--skip-bad", says=["odd.png", "24x25", "24x24", "--size"])

    def test_empty_class_folder(self):
        root = self.pets()
        (root / "yellow").mkdir()
        (root / "yellow" / "notes.txt").write_text("")
        self.refused(root, says=[root / "yellow", "no images (1 other files", "--allow-empty"])
        _, attributes = self.convert(root, "--allow-empty")
        self.assertEqual(list(attributes["class_names"]), ["blue", "green", "red", "yellow"])

    def test_folders_that_are_none(self):
        self.refused(self.folder / "nowhere", says=["nowhere is not a folder"])
        save(self.folder / "flat" / "1.png", noise(8, 8))
        self.refused(self.folder / "flat", says=["has no class folders but 1 images", "cat/1.jpg"])
        save(self.folder / "one" / "cat" / "1.png", noise(8, 8))
        self.refused(self.folder / "one", says=["has one class, 'cat'"])

    def test_a_folder_that_may_not_be_read(self):
        root = self.pets(count=2)
        os.chmod(root / "green", 0)
        self.addCleanup(os.chmod, root / "green", 0o755)
        expected = f"cannot read the folder {root / 'green'}: Permission denied. Mend its permissions"
        with self.assertRaises(image_listing.UserError) as raised, self.as_nobody():
            image_listing.list_images(root)
        self.assertIn(expected, str(raised.exception))

    @contextlib.contextmanager
    def as_nobody(self):
        """Root may read everything, so it becomes nobody for a moment."""
        if os.geteuid() != 0:
            yield
            return
        os.chmod(self.folder, 0o755)
        os.seteuid(65534)
        try:
            yield
        finally:
            os.seteuid(0)

    def test_wrong_options(self):
        root = self.pets(count=2)
        self.refused(root, "--shorter", 30, says=["needs --size"])
        self.refused(root, "--size", 40, "--shorter", 30, says=["--shorter 30 is less than", "at least 40"])
        self.refused(root, "--shards", 50, says=["--shards 50", "has only"])
        for option, value in (("--size", "3x"), ("--split", "1"), ("--chunk", "0"), ("--limit", "many")):
            with contextlib.redirect_stderr(io.StringIO()) as err, self.assertRaises(SystemExit) as exit:
                image_folder.parse_arguments(["d", "--out", "x", option, value])
            self.assertEqual(exit.exception.code, 2)
            self.assertIn(f"argument {option}: ", err.getvalue())

    def test_links_in_circles_end(self):
        root = self.pets(count=4)
        (root / "red" / "back").symlink_to(root / "red")
        self.assertEqual(len(image_listing.images_below(root / "red")[0]), 4)

    def test_a_locked_output(self):
        root = self.pets(count=4)
        recipe = "{}"
        held = image_folder.Journal(self.folder / "x.h5.progress", recipe, [])
        self.addCleanup(held.close, False)
        self.refused(root, "--split", 0, says=["another conversion is writing x.h5", "is locked"])


class TestResume(FolderCase):
    """Killed anywhere, the same command makes the same file."""

    def large(self):
        """Enough work for some seconds a core, from few distinct pictures."""
        pictures = [io.BytesIO() for _ in range(8)]
        for i, picture in enumerate(pictures):
            noise(500, 500, i).save(picture, "JPEG", quality=90)
        for i in range(600):
            path = self.folder / "pets" / list(COLOURS)[i % 3] / f"{i}.jpg"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(pictures[i % 8].getvalue())
        return self.folder / "pets"

    def kill_midway(self, arguments):
        """SIGKILL as soon as a block is in the journal. Returns the workers there were."""
        journal = self.folder / "x.h5.progress"
        process = subprocess.Popen(
            command(SCRIPT, *arguments), stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL
        )
        try:
            deadline = time.monotonic() + 60
            while not (journal.exists() and journal.read_bytes().count(b'"block"') >= 1):
                self.assertIsNone(process.poll(), "it ended before it could be killed")
                self.assertLess(time.monotonic(), deadline)
                time.sleep(0.005)
            children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        finally:
            process.kill()
            process.wait()
        self.assertNotIn(b"complete", journal.read_bytes())
        return children

    def test_after_sigkill(self):
        root = self.large()
        self.convert(root, "--size", 96, "--workers", 2, out="whole.h5")
        arguments = [root, "--out", self.folder / "x.h5", "--size", 96, "--workers", 1]
        workers = self.kill_midway(arguments)
        self.assertFalse((self.folder / "x.h5").exists())
        with (self.folder / "x.h5.progress").open("a") as journal:
            journal.write('{"block": 99, "fi')  # as a writer leaves it that dies in a line
        deadline = time.monotonic() + 10
        while any(
            Path(f"/proc/{worker}/exe").exists()
            and "image_folder" in Path(f"/proc/{worker}/cmdline").read_text()
            for worker in workers
        ):
            self.assertLess(time.monotonic(), deadline, "workers outlive their parent")
            time.sleep(0.05)
        done = self.run_ok(SCRIPT, *arguments)
        there = int(done.stderr.split("going on: ")[1].split(" of 600")[0])
        self.assertTrue(0 < there < 600, there)
        self.assertEqual(sha256(self.folder / "x.h5"), sha256(self.folder / "whole.h5"))
        self.assertEqual(sorted(p.name for p in self.folder.glob("x.h5*")), ["x.h5"])

    def interrupt(self, name, after, arguments):
        """Runs until the `after`-th call of image_folder.<name>, where it 'dies'."""
        real, calls = operator.attrgetter(name)(image_folder), iter(range(10**6))

        def dying(*args, **kwargs):
            if next(calls) == after:
                raise KeyboardInterrupt
            return real(*args, **kwargs)

        with (
            mock.patch(f"image_folder.{name}", dying),
            contextlib.redirect_stderr(io.StringIO()),
            self.assertRaises(KeyboardInterrupt),
        ):
            image_folder.main([str(a) for a in arguments])

    def test_after_a_stop_at_every_stage(self):
        root = self.pets(count=60)
        for options in ([], ["--compress", "gzip"]):
            form = ["--shards", 2, *options, "--workers", 0]
            self.run_ok(SCRIPT, root, "--out", self.folder / "whole.h5", *form)
            whole = [sha256(p) for p in sorted(self.folder.glob("whole*.h5"))]
            stages = [
                ("create_partials", 0),
                ("image_decode.decode_block", 2),
                ("finish", 0),
                ("li.commit", 0),
                ("li.commit", 1),
                ("repack", 1) if options else ("li.set_statistics", 1),
            ]
            for name, after in stages:
                with self.subTest(name=name, after=after, options=options):
                    arguments = [root, "--out", self.folder / "x.h5", *form]
                    self.interrupt(name, after, arguments)
                    self.run_ok(SCRIPT, *arguments)
                    self.assertEqual([sha256(p) for p in sorted(self.folder.glob("x*.h5"))], whole)
                    self.assertEqual(len(list(self.folder.glob("x*"))), 2)
                    for path in self.folder.glob("x*"):
                        path.unlink()
            for path in self.folder.glob("whole*"):
                path.unlink()

    def test_a_replaced_image_is_decoded_again(self):
        root = self.pets(count=60)
        arguments = [root, "--out", self.folder / "x.h5", "--workers", 0, "--split", 0]
        self.interrupt("image_decode.decode_block", 2, arguments)
        save(root / "red" / "0.png", noise(24, 24, 4321))
        data, _ = self.convert(root, "--split", 0)
        row = list(data["train/files"]).index(b"red/0.png")
        np.testing.assert_array_equal(data["train/images"][row], np.asarray(noise(24, 24, 4321)))

    def test_other_options_start_over(self):
        root = self.pets(count=60)
        self.interrupt(
            "image_decode.decode_block",
            2,
            [root, "--out", self.folder / "x.h5", "--workers", 0, "--shards", 2],
        )
        self.assertEqual(len(list(self.folder.glob("*.partial"))), 2)
        self.convert(root, "--size", 8)
        self.assertNotIn("going on", self.done.stderr)
        self.assertEqual([p.name for p in self.folder.glob("x*")], ["x.h5"])

    def test_a_spoilt_partial_file_starts_over(self):
        root = self.pets(count=60)
        arguments = [root, "--out", self.folder / "x.h5", "--workers", 0]
        for stage in (("image_decode.decode_block", 2), ("finish", 0)):
            self.interrupt(*stage, arguments)
            (self.folder / "x.h5.partial").write_bytes(b"\0" * 1000)
            self.run_ok(SCRIPT, *arguments)
            self.convert(root, out="whole.h5")
            self.assertEqual(sha256(self.folder / "x.h5"), sha256(self.folder / "whole.h5"))
            (self.folder / "x.h5").unlink()

    def test_journal_is_plain(self):
        root = self.pets(count=30)
        self.interrupt("finish", 0, [root, "--out", self.folder / "x.h5", "--workers", 0])
        lines = [json.loads(line) for line in (self.folder / "x.h5.progress").read_text().splitlines()]
        self.assertIn("recipe", lines[0])
        self.assertEqual(lines[-1], {"complete": True})
