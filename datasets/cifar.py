#!/usr/bin/env python3
"""Converts CIFAR-10 or CIFAR-100, from the archive you have, into one HDF5 file for Lockstep: 50,000
training and 10,000 test images of 32x32 RGB pixels.

Takes any of the official archives (https://www.cs.toronto.edu/~kriz/cifar.html), packed or extracted:
cifar-10-binary.tar.gz, cifar-10-python.tar.gz, cifar-100-binary.tar.gz, cifar-100-python.tar.gz. Nothing is
unpacked to disk. The python variants hold pickles, which can run code when loaded: here only plain data and
byte arrays are let through.
"""

import argparse
import io
import pickle
import tarfile
import zlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import lockstep_images as li

IMAGE_BYTES = 3 * 32 * 32
LARGEST_FILE = 1 << 28  # the largest official one has 186 MB; anything beyond is no CIFAR file
EXAMPLES = """examples:
  python datasets/cifar.py ~/Downloads/cifar-10-binary.tar.gz          to datasets/cifar10.h5
  python datasets/cifar.py ~/Downloads/cifar-100-python.tar.gz         to datasets/cifar100.h5, 100 classes
  python datasets/cifar.py cifar-100-python --labels coarse --out /data/cifar100_coarse.h5   20 superclasses
  python datasets/cifar.py cifar-10-batches-py/ --limit 500 --out /tmp/try.h5

then:
  mpirun -n 4 lockstep train experiments/cifar10_resnet18.yaml
"""


@dataclass(frozen=True)
class Variant:
    """One of the four official forms."""

    name: str
    classes: int  # CIFAR-10 or CIFAR-100
    binary: bool
    train: tuple
    test: tuple
    names: str  # file of the class names

    @property
    def title(self):
        return f"CIFAR-{self.classes}"


VARIANTS = [
    Variant(
        "cifar-10-binary",
        10,
        True,
        tuple(f"data_batch_{i}.bin" for i in range(1, 6)),
        ("test_batch.bin",),
        "batches.meta.txt",
    ),
    Variant(
        "cifar-10-python",
        10,
        False,
        tuple(f"data_batch_{i}" for i in range(1, 6)),
        ("test_batch",),
        "batches.meta",
    ),
    Variant("cifar-100-binary", 100, True, ("train.bin",), ("test.bin",), "{labels}_label_names.txt"),
    Variant("cifar-100-python", 100, False, ("train",), ("test",), "meta"),
]


# ---------------------------------------------------------------------------------------------------- sources


class FolderSource:
    """The files of an extracted archive."""

    def __init__(self, path):
        self.path = path
        self.files = {p.name: p for p in sorted(path.rglob("*")) if p.is_file()}

    def read(self, name):
        path = self.files[name]
        if path.stat().st_size > LARGEST_FILE:
            raise li.UserError(f"{path} has {path.stat().st_size:,} bytes: too large for a CIFAR file.")
        return path.read_bytes()


class TarSource:
    """The files of an archive, read without extracting anything."""

    def __init__(self, path):
        self.path = path
        try:
            self.tar = tarfile.open(path)
            self.files = {Path(member.name).name: member for member in self.tar if member.isreg()}
        except (tarfile.TarError, OSError, EOFError, zlib.error) as error:
            raise li.UserError(f"{path} is not a whole tar archive: {error}. Fetch it again.") from None

    def read(self, name):
        member = self.files[name]
        if member.size > LARGEST_FILE:
            raise li.UserError(f"{self.path}: {name} has {member.size:,} bytes: too large for a CIFAR file.")
        return self.tar.extractfile(member).read()


def open_source(path):
    """The archive or folder and which of the official forms it is."""
    if path.is_dir():
        source = FolderSource(path)
    elif path.is_file():
        source = TarSource(path)
    else:
        raise li.UserError(
            f"{path} does not exist. Give one of the official archives or the folder it was extracted to."
        )
    for variant in VARIANTS:
        if variant.train[0] in source.files and variant.names.format(labels="fine") in source.files:
            missing = [name for name in variant.train + variant.test if name not in source.files]
            if missing:
                raise li.UserError(
                    f"{path} looks like {variant.name} but lacks {', '.join(missing)}. Fetch it again."
                )
            return source, variant
    found = ", ".join(sorted(source.files)[:6]) or "nothing"
    raise li.UserError(
        f"{path} is none of {', '.join(v.name for v in VARIANTS)}: it holds {found}. "
        "Give the archive as downloaded, or the folder it was extracted to."
    )


# ---------------------------------------------------------------------------------------------- the two forms


class RestrictedUnpickler(pickle.Unpickler):
    """Loads what CIFAR's pickles consist of, byte arrays in plain containers, and refuses all else."""

    def find_class(self, module, name):
        if module in ("numpy.core.multiarray", "numpy._core.multiarray") and name == "_reconstruct":
            return np.zeros(1, np.uint8).__reduce__()[0]
        if (module, name) == ("numpy", "ndarray"):
            return np.ndarray
        if (module, name) == ("numpy", "dtype"):
            return plain_dtype
        if (module, name) == ("_codecs", "encode"):  # how Python 3 writes bytes in protocol 2
            return latin1_bytes
        raise pickle.UnpicklingError(f"it asks for {module}.{name}, which no CIFAR file needs")


def plain_dtype(text, *_):
    """dtype("u1") and nothing else: object arrays, for one, could hold anything."""
    if text not in ("u1", b"u1"):
        raise pickle.UnpicklingError(f"it holds an array of type {text!r}, not of bytes")
    return np.dtype(np.uint8)


def latin1_bytes(text, encoding):
    if encoding not in ("latin1", b"latin1"):
        raise pickle.UnpicklingError(f"it holds text in {encoding!r}")
    return text.encode("latin1")


def unpickle(source, name):
    try:
        content = RestrictedUnpickler(io.BytesIO(source.read(name)), encoding="bytes").load()
    except Exception as error:  # a damaged pickle raises nearly anything
        raise li.UserError(
            f"{source.path}: {name} is not a CIFAR pickle: {error}. Fetch the archive again."
        ) from None
    if not isinstance(content, dict):
        raise li.UserError(
            f"{source.path}: {name} holds a {type(content).__name__}, not a dictionary. Fetch it again."
        )
    return {as_text(key): value for key, value in content.items()}


def as_text(value):
    return value.decode("utf-8") if isinstance(value, bytes) else str(value)


def read_batch_python(source, name, variant, labels):
    content = unpickle(source, name)
    key = "labels" if variant.classes == 10 else f"{labels}_labels"
    images, values = content.get("data"), content.get(key)
    if (
        not isinstance(images, np.ndarray)
        or images.dtype != np.uint8
        or images.ndim != 2
        or images.shape[1] != IMAGE_BYTES
        or not isinstance(values, list)
    ):
        raise li.UserError(
            f"{source.path}: {name} lacks 'data' [n, {IMAGE_BYTES}] of bytes or the list '{key}'."
        )
    return images, np.array(values, np.int64)


def read_batch_binary(source, name, variant, labels):
    """Records of one label byte (CIFAR-100: coarse, then fine) and 3,072 pixels: red, green, blue plane."""
    label_bytes = 1 if variant.classes == 10 else 2
    data = np.frombuffer(source.read(name), np.uint8)
    if data.size == 0 or data.size % (label_bytes + IMAGE_BYTES):
        raise li.UserError(
            f"{source.path}: {name} has {data.size:,} bytes, not a multiple of "
            f"{label_bytes + IMAGE_BYTES:,}. Fetch it again."
        )
    records = data.reshape(-1, label_bytes + IMAGE_BYTES)
    column = 1 if labels == "fine" and variant.classes == 100 else 0
    return records[:, label_bytes:], records[:, column].astype(np.int64)


def read_names(source, variant, labels):
    name = variant.names.format(labels=labels)
    if name not in source.files:
        raise li.UserError(f"{source.path} lacks {name}, the class names. Fetch it again.")
    if variant.binary:
        return source.read(name).decode("utf-8").split()
    key = "label_names" if variant.classes == 10 else f"{labels}_label_names"
    values = unpickle(source, name).get(key)
    if not isinstance(values, list):
        raise li.UserError(f"{source.path}: {name} lacks the list '{key}'. Fetch it again.")
    return [as_text(value) for value in values]


def read_split(source, variant, files, labels, classes):
    """Images [n, 3, 32, 32] and labels [n], with the counts that CIFAR has."""
    read = read_batch_binary if variant.binary else read_batch_python
    with li.progress(len(files), f"reading {variant.name}", "file") as bar:
        parts = []
        for name in files:
            parts.append(read(source, name, variant, labels))
            bar.update()
    values = np.concatenate([values for _, values in parts])
    count = sum(len(images) for images, _ in parts)
    expected = 50000 if files == variant.train else 10000
    where = f"{source.path}: {', '.join(files)}"
    if count != expected or len(values) != expected:
        raise li.UserError(
            f"{where} hold {count:,} images and {len(values):,} labels; {variant.title} has "
            f"{expected:,}. Fetch it again."
        )
    if values.min() < 0 or values.max() >= classes:
        raise li.UserError(
            f"{where}: labels go from {values.min()} to {values.max()}; there are {classes} classes."
        )
    uneven = np.flatnonzero(np.bincount(values, minlength=classes) != expected // classes)
    if len(uneven):
        raise li.UserError(
            f"{where}: class {uneven[0]} has {np.sum(values == uneven[0]):,} images; {variant.title} has "
            f"{expected // classes:,} of each. Fetch it again."
        )
    return np.concatenate([images for images, _ in parts]).reshape(-1, 3, 32, 32), values


# ---------------------------------------------------------------------------------------------------- command


def main(arguments=None):
    parser = argparse.ArgumentParser(
        description=__doc__, epilog=EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("source", type=Path, help="the archive, or the folder that it was extracted to")
    parser.add_argument(
        "--labels",
        choices=["fine", "coarse"],
        default="fine",
        help="CIFAR-100: its 100 classes (fine, default) or 20 superclasses (coarse)",
    )
    li.add_common_arguments(parser, Path("datasets/cifar<10|100>.h5"))
    args = parser.parse_args(arguments)

    source, variant = open_source(args.source)
    if variant.classes == 10 and args.labels == "coarse":
        raise li.UserError("--labels coarse: CIFAR-10 has no coarse labels. Leave it out.")
    if args.out == parser.get_default("out"):
        args.out = Path(__file__).resolve().parent / f"cifar{variant.classes}.h5"
    recipe = li.recipe_text(
        "cifar",
        dataset=variant.title,
        labels=args.labels,
        compress=args.compress,
        chunk=args.chunk,
        limit=args.limit,
    )
    if li.already_done(args.out, recipe, args.force):
        print(f"already there: {li.describe(args.out)}")
        return
    names = read_names(source, variant, args.labels)
    classes = 20 if args.labels == "coarse" else variant.classes
    if len(names) != classes:
        raise li.UserError(
            f"{args.source} names {len(names)} classes; {variant.title} has {classes}. Fetch it again."
        )
    splits = {
        split: read_split(source, variant, files, args.labels, classes)
        for split, files in (("train", variant.train), ("test", variant.test))
    }
    if args.limit:
        splits = {
            split: (images[: args.limit], labels[: args.limit]) for split, (images, labels) in splits.items()
        }
    li.write_file(
        args.out,
        splits,
        li.FileInfo(names, variant.title, recipe, "NCHW"),
        li.Storage(args.compress, args.chunk),
    )
    print(f"wrote {li.describe(args.out)}")


if __name__ == "__main__":
    li.run(main)
