#!/usr/bin/env python3
"""Converts Fashion-MNIST's four idx files into one HDF5 file for Lockstep: 60,000 training and 10,000 test
images of 28x28 grey pixels in 10 classes.

The files come with Debian's package (sudo apt-get install dataset-fashion-mnist), or from
https://github.com/zalandoresearch/fashion-mnist; plain or gzipped.
"""

import argparse
import gzip
import struct
import zlib
from pathlib import Path

import numpy as np

import lockstep_images as li

DEBIAN_FOLDER = Path("/usr/share/datasets/fashion-mnist")
CLASS_NAMES = [
    "T-shirt/top",
    "Trouser",
    "Pullover",
    "Dress",
    "Coat",
    "Sandal",
    "Shirt",
    "Sneaker",
    "Bag",
    "Ankle boot",
]
SPLITS = {"train": ("train", 60000), "test": ("t10k", 10000)}
EXAMPLES = """examples:
  python datasets/fashion_mnist.py                      from the Debian package to datasets/fashion_mnist.h5
  python datasets/fashion_mnist.py --from ~/Downloads/fashion --out /data/fashion.h5
  python datasets/fashion_mnist.py --limit 1000 --out /tmp/small.h5      1,000 images of each split
  python datasets/fashion_mnist.py --compress gzip --out /tmp/packed.h5  40 % smaller, slower to read

then:
  lockstep inspect datasets/fashion_mnist.h5
  mpirun -n 2 lockstep train experiments/fashion_mnist.yaml
"""


def find_idx(folder, prefix, kind):
    """The idx file of one part, under any of the names it is distributed with."""
    dims = {"images": 3, "labels": 1}[kind]
    names = [f"{prefix}-{kind}{separator}idx{dims}-ubyte{end}" for separator in "-." for end in ("", ".gz")]
    for name in names:
        if (folder / name).is_file():
            return folder / name
    raise li.UserError(
        f"{folder} has no {names[0]}[.gz]. Install the files with "
        "'sudo apt-get install dataset-fashion-mnist', or give their folder with --from."
    )


def read_idx(path):
    """An idx file of unsigned bytes as an array (format: http://yann.lecun.com/exdb/mnist, two zero bytes,
    type 8, number of dimensions, each dimension as big-endian 32 bits, data)."""
    try:
        data = gzip.open(path).read() if path.suffix == ".gz" else path.read_bytes()
    except (OSError, EOFError, zlib.error) as error:
        raise li.UserError(f"{path} cannot be read: {error}. Fetch it again.") from None
    if len(data) < 4 or data[:3] != b"\0\0\x08":
        raise li.UserError(
            f"{path} is not an idx file of bytes: it starts with {data[:4].hex()}, not 000008. "
            "Fetch it again."
        )
    dims = data[3]
    header = 4 + 4 * dims
    shape = struct.unpack(f">{dims}I", data[4:header]) if len(data) >= header else ()
    expected = header + int(np.prod(shape, dtype=np.int64))
    if not shape or len(data) != expected:
        raise li.UserError(
            f"{path} is damaged: {len(data):,} bytes where its header says {expected:,}. Fetch it again."
        )
    return np.frombuffer(data, np.uint8, offset=header).reshape(shape)


def read_split(folder, prefix, expected):
    """Images [n, 28, 28] and labels [n] of one split, checked."""
    image_path, label_path = find_idx(folder, prefix, "images"), find_idx(folder, prefix, "labels")
    images, labels = read_idx(image_path), read_idx(label_path)
    if images.shape != (expected, 28, 28) or labels.shape != (expected,):
        raise li.UserError(
            f"{image_path} has shape {images.shape} and {label_path.name} {labels.shape}; "
            f"Fashion-MNIST has {(expected, 28, 28)} and {(expected,)}. Is this another dataset?"
        )
    if labels.max() >= len(CLASS_NAMES):
        raise li.UserError(
            f"{label_path} has label {labels.max()}; Fashion-MNIST's go from 0 to 9. Is this another dataset?"
        )
    return images, labels


def main(arguments=None):
    parser = argparse.ArgumentParser(
        description=__doc__, epilog=EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--from",
        dest="folder",
        type=Path,
        default=DEBIAN_FOLDER,
        metavar="FOLDER",
        help="folder of the idx files (default: %(default)s)",
    )
    li.add_common_arguments(parser, Path(__file__).resolve().parent / "fashion_mnist.h5")
    args = parser.parse_args(arguments)

    storage = li.Storage(args.compress, args.chunk)
    recipe = li.recipe_text("fashion_mnist", compress=args.compress, chunk=args.chunk, limit=args.limit)
    if li.already_done(args.out, recipe, args.force):
        print(f"already there: {li.describe(args.out)}")
        return
    splits = {split: read_split(args.folder, prefix, count) for split, (prefix, count) in SPLITS.items()}
    if args.limit:
        splits = {
            split: (images[: args.limit], labels[: args.limit]) for split, (images, labels) in splits.items()
        }
    li.write_file(args.out, splits, li.FileInfo(CLASS_NAMES, "Fashion-MNIST", recipe, "NHW"), storage)
    print(f"wrote {li.describe(args.out)}")


if __name__ == "__main__":
    li.run(main)
