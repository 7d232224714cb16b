"""What the converters of this folder share: how an image file for Lockstep is written. FORMAT.md describes
the result.

A file appears under its final name only when it is whole: it is written as NAME.partial beside it, synced,
then renamed.
"""

import argparse
import contextlib
import json
import os
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

import h5py
import numpy as np
from tqdm import tqdm

FORMAT = "lockstep-images-1"
GZIP_LEVEL = 4
# A reader decodes a whole chunk to get one image: large enough to compress, small enough to read.
DEFAULT_CHUNK_BYTES = 1 << 20
PAGE = 4096  # image data start at a page, so that a reader can map them


class UserError(Exception):
    """Something the user can mend. The text names the file, the value and the remedy."""


# ---------------------------------------------------------------------------------------------------- command


def run(main):
    """Runs a converter's main() and turns what a user can mend into one line and exit code 1."""
    try:
        sys.exit(main())
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(1)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        sys.exit(130)


def at_least(least):
    """An argparse type: a whole number that is not below `least`."""

    def parse(text):
        try:
            value = int(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"'{text}' is not a whole number") from None
        if value < least:
            raise argparse.ArgumentTypeError(f"{value} is too small: at least {least}")
        return value

    return parse


@dataclass(frozen=True)
class Storage:
    """How images lie in a file: contiguous (the default; a reader maps it), or in chunks of some images."""

    compress: str = "none"
    chunk: int = 0  # images a chunk; 0: contiguous, or with compression about 1 MiB of them

    @property
    def chunked(self):
        return self.chunk > 0 or self.compress != "none"

    def rows(self, image_bytes, count):
        """Images a chunk of a split that has `count` images of `image_bytes` each."""
        fitting = max(1, DEFAULT_CHUNK_BYTES // image_bytes)
        return min(count, self.chunk or 1 << (fitting.bit_length() - 1))


def add_common_arguments(parser, default_out):
    """Arguments that every converter has."""
    parser.add_argument(
        "--out",
        type=Path,
        default=default_out,
        metavar="FILE",
        help="HDF5 file to write" + ("" if default_out is None else " (default: %(default)s)"),
        required=default_out is None,
    )
    parser.add_argument(
        "--compress",
        choices=["none", "gzip"],
        default="none",
        help="none (default): contiguous, which training maps into memory and reads fastest. "
        "gzip: smaller and slower; implies chunks",
    )
    parser.add_argument(
        "--chunk",
        type=at_least(1),
        default=0,
        metavar="N",
        help="store N images a chunk (default: contiguous; with gzip about 1 MiB a chunk)",
    )
    parser.add_argument(
        "--limit",
        type=at_least(1),
        default=0,
        metavar="N",
        help="keep only the first N images of each split, for a quick try",
    )
    parser.add_argument(
        "--force", action="store_true", help="convert again, from the start, and replace the output"
    )


def progress(total, description, unit="image"):
    """A progress bar; in a log file a line every ten seconds."""
    return tqdm(total=total, desc=description, unit=unit, mininterval=0.2 if sys.stderr.isatty() else 10)


# ------------------------------------------------------------------------------------------------- statistics


class Statistics:
    """Mean and standard deviation of each channel, from exact integer sums: in any order the same."""

    def __init__(self, channels):
        self.count = 0  # values a channel
        self.total = [0] * channels
        self.squares = [0] * channels

    def add(self, images, layout):
        """Images as stored, uint8, in `layout`."""
        axis = layout.find("C")
        planes = [images] if axis < 0 else np.moveaxis(images, axis, 0)
        values = np.arange(256, dtype=np.int64)
        for channel, plane in enumerate(planes):
            histogram = np.bincount(plane.ravel(), minlength=256)
            self.merge_channel(channel, int(histogram @ values), int(histogram @ values**2))
        self.count += images.size // len(self.total)

    def merge_channel(self, channel, total, squares):
        self.total[channel] += total
        self.squares[channel] += squares

    def merge(self, other):
        """Another Statistics' to_json()."""
        self.count += other["count"]
        for channel, (total, squares) in enumerate(zip(other["total"], other["squares"], strict=True)):
            self.merge_channel(channel, total, squares)

    def to_json(self):
        return {"count": self.count, "total": self.total, "squares": self.squares}

    def mean(self):
        """Of values scaled to 0..1; 0 where nothing was added."""
        return np.array([total / (255 * max(1, self.count)) for total in self.total])

    def std(self):
        """Of values scaled to 0..1, over all pixels. 1 for a constant channel, since readers divide by it."""
        variances = [self.count * squares - total**2 for total, squares in zip(self.total, self.squares)]
        return np.array([(variance**0.5 / (255 * max(1, self.count))) or 1.0 for variance in variances])


# ---------------------------------------------------------------------------------------------------- writing


@dataclass(frozen=True)
class FileInfo:
    """The root attributes of a file."""

    class_names: list
    source: str  # where the images come from, for people
    recipe: str  # what was asked of which script: a file that has the same one need not be made again
    layout: str  # of all splits


def recipe_text(script, **options):
    return json.dumps({"script": script, "format": FORMAT, **options}, sort_keys=True)


def partial_path(path):
    return path.with_name(path.name + ".partial")


@contextlib.contextmanager
def create_file(path, info, statistics):
    """A new HDF5 file with all root attributes. Statistics that are still empty can be set later by
    set_statistics().

    HDF5 1.8 and newer read it. An attribute of the oldest file format holds 64 KB, so files with more than
    1,000 class names take the 1.8 format, which is not the default because fewer programs know it.
    """
    oldest = "earliest" if len(info.class_names) <= 1000 else "v108"
    with h5py.File(
        path, "w", libver=(oldest, "v110"), alignment_threshold=PAGE, alignment_interval=PAGE
    ) as file:
        attributes = file.attrs
        attributes["format"] = FORMAT
        attributes["source"] = info.source
        attributes["recipe"] = info.recipe
        attributes.create("class_names", info.class_names, dtype=h5py.string_dtype())
        attributes["mean"] = statistics.mean()
        attributes["std"] = statistics.std()
        yield file


def create_images(file, split, shape, layout, storage):
    """The dataset /SPLIT/images, uint8, not yet written; if contiguous, it has its place in the file."""
    image_bytes = int(np.prod(shape[1:]))
    properties = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    options = {}
    if storage.chunked:
        options["chunks"] = (storage.rows(image_bytes, shape[0]), *shape[1:])
        if storage.compress == "gzip":
            options.update(compression="gzip", compression_opts=GZIP_LEVEL)
    else:
        properties.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
        properties.set_fill_time(h5py.h5d.FILL_TIME_NEVER)
    images = file.create_dataset(f"{split}/images", shape, np.uint8, dcpl=properties, **options)
    images.attrs["layout"] = layout
    return images


def append_blocks(dataset, blocks, bar):
    """Writes blocks of images one after the other. With chunks, whole chunks, each compressed once."""
    rows = dataset.chunks[0] if dataset.chunks else 1
    waiting, start = [], 0

    def flush(final):
        nonlocal waiting, start
        together = np.concatenate(waiting) if len(waiting) != 1 else waiting[0]
        take = len(together) if final else len(together) // rows * rows
        dataset[start : start + take] = together[:take]
        start += take
        waiting = [together[take:]]
        bar.update(take)

    for block in blocks:
        waiting.append(block)
        if sum(map(len, waiting)) >= rows:
            flush(final=False)
    if waiting:
        flush(final=True)
    if start != len(dataset):
        raise ValueError(f"{dataset.name}: {start} images were written, {len(dataset)} promised")


def set_statistics(file, statistics):
    """Overwrites `mean` and `std` where they stand: one small write, so that a kill leaves a valid file."""
    file.attrs.get_id("mean").write(statistics.mean())
    file.attrs.get_id("std").write(statistics.std())


def commit(partial, path):
    """Gives a whole file its final name, so that no reader ever sees a part of it."""
    for place, flags in ((partial, os.O_RDWR), (path.parent, os.O_RDONLY)):
        descriptor = os.open(place, flags)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        if place is partial:
            os.replace(partial, path)


def write_file(path, splits, info, storage):
    """Writes {split: (images, labels)} that fit into memory; mean and std are the first split's."""
    check_space(path, sum(images.nbytes for images, _ in splits.values()))
    first, _ = next(iter(splits.values()))
    statistics = Statistics(1 if info.layout == "NHW" else first.shape[info.layout.find("C")])
    block = 1024
    for start in range(0, len(first), block):
        statistics.add(first[start : start + block], info.layout)
    with (
        create_file(partial_path(path), info, statistics) as file,
        progress(sum(len(labels) for _, labels in splits.values()), path.name) as bar,
    ):
        for split, (images, labels) in splits.items():
            dataset = create_images(file, split, images.shape, info.layout, storage)
            append_blocks(dataset, (images[i : i + block] for i in range(0, len(images), block)), bar)
            file[f"{split}/labels"] = labels.astype(np.int64)
    commit(partial_path(path), path)


# ----------------------------------------------------------------------------------------------------- output


def stored_recipe(path):
    """The recipe in a file's root attributes; None where there is none or the file is no HDF5 file."""
    try:
        with h5py.File(path, "r") as file:
            return file.attrs.get("recipe")
    except OSError:
        return None


def already_done(path, recipe, force):
    """True when `path` is the result of this recipe. Refuses to replace anything else without --force."""
    make_folder(path.parent)
    if force or not path.exists():
        return False
    found = stored_recipe(path)
    if found == recipe:
        return True
    raise UserError(
        f"{path} exists and is {difference(found, recipe)}. Give --force to replace it, or another --out."
    )


def difference(found, wanted):
    """How a file's recipe differs from the one asked for, in words."""
    if found is None:
        return "not a file of this converter (or damaged)"
    try:
        found, wanted = json.loads(found), json.loads(wanted)
    except ValueError:
        return "not a file of this converter"
    changed = [
        f"{key} {found.get(key, 'unset')}, not {wanted.get(key, 'unset')}"
        for key in sorted({*found, *wanted})
        if found.get(key) != wanted.get(key)
    ]
    return "the result of another conversion (" + "; ".join(changed) + ")"


def make_folder(folder):
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"cannot make the folder {folder}: {error.strerror}. Choose another --out.") from None
    if not os.access(folder, os.W_OK):
        raise UserError(f"cannot write into {folder}: permission denied. Choose another --out.")


def check_space(path, needed):
    free = shutil.disk_usage(path.parent).free
    if needed > free:
        raise UserError(
            f"{path.parent} has {free / 1e9:.1f} GB free and {path.name} needs about {needed / 1e9:.1f} GB. "
            "Free some space, choose another --out, or fewer images (--limit)."
        )


def describe(path):
    """One line about a finished file."""
    with h5py.File(path, "r") as file:
        parts = []
        for split in sorted(file, key="train val test".find):
            images = file[split]["images"]
            parts.append(f"{split} {len(images):,} images {'x'.join(map(str, images.shape[1:]))}")
        return (
            f"{path}: {', '.join(parts)}, {len(file.attrs['class_names'])} classes, "
            f"mean {rounded(file.attrs['mean'])}, std {rounded(file.attrs['std'])}, "
            f"{path.stat().st_size / 1e6:,.1f} MB"
        )


def rounded(values):
    return " ".join(f"{value:.4f}" for value in values)
