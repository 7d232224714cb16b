"""What image_folder.py will do, worked out before anything is decoded."""

import contextlib
import os
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import image_decode
import image_listing
import lockstep_images as li

BLOCK = 64  # images a worker decodes in one go


def packing_path(output):
    return output.with_name(output.name + ".packing")


@dataclass(frozen=True)
class Part:
    """The rows of one split that lie in one shard."""

    shard: int
    split: str
    rows: tuple  # (path relative to the root, label)


@dataclass
class Plan:
    """A whole conversion, worked out before anything is decoded."""

    root: Path
    outputs: list  # one path a shard
    parts: list
    decoding: image_decode.Decoding
    info: li.FileInfo
    storage: li.Storage

    @property
    def image_bytes(self):
        return int(np.prod(self.decoding.shape))

    def total(self):
        return sum(len(part.rows) for part in self.parts)

    def blocks(self):
        """(part, first row, last row + 1) of every block; the journal numbers them in this order."""
        return [
            (part, start, min(start + BLOCK, len(part.rows)))
            for part in self.parts
            for start in range(0, len(part.rows), BLOCK)
        ]

    def paths(self, part, start, end):
        return tuple(os.path.join(self.root, path) for path, _ in part.rows[start:end])


def shard_paths(out, shards):
    if shards == 1:
        return [out]
    return [out.with_name(f"{out.stem}-{i:05d}-of-{shards:05d}{out.suffix}") for i in range(shards)]


def make_parts(splits, shards):
    """Every shard holds its share of every split, so that each is a data set of its own."""
    parts = []
    for split, rows in splits.items():
        if len(rows) < shards:
            raise li.UserError(
                f"--shards {shards}: the split '{split}' has only {len(rows)} images. Give fewer shards."
            )
        parts += [
            Part(i, split, tuple(rows[i * len(rows) // shards : (i + 1) * len(rows) // shards]))
            for i in range(shards)
        ]
    return sorted(parts, key=lambda part: part.shard)  # a shard at a time, so that disk writes stay together


def common_size(root, splits):
    """Size of the first image that can be opened, for a folder whose images all have one size."""
    for path, _ in splits["train"]:
        with contextlib.suppress(Exception):  # a bad image is reported when its turn comes
            return image_decode.upright_size(os.path.join(root, path))
    raise li.UserError(f"{root}: no training image can be opened, '{splits['train'][0][0]}' for one.")


def make_decoding(args, splits):
    if args.size is None:
        if args.shorter:
            raise li.UserError(f"--shorter {args.shorter} needs --size, the size to crop to.")
        height, width = common_size(args.folder, splits)
        return image_decode.Decoding(height, width, resize=False, mode=args.mode)
    height, width = args.size
    if args.shorter and args.shorter < max(height, width):
        raise li.UserError(
            f"--shorter {args.shorter} is less than the crop of --size {height}x{width}. Give at least "
            f"{max(height, width)}, or leave it out."
        )
    return image_decode.Decoding(height, width, args.shorter, mode=args.mode)


def make_plan(args):
    listing = image_listing.list_images(args.folder, args.split, args.allow_empty, args.limit)
    for warning in listing.warnings:
        print(f"note: {warning}", file=sys.stderr)
    decoding = make_decoding(args, listing.splits)
    recipe = li.recipe_text(
        "image_folder",
        height=decoding.height,
        width=decoding.width,
        shorter=decoding.shorter,
        mode=decoding.mode,
        shards=args.shards,
        compress=args.compress,
        chunk=args.chunk,
        images=sum(map(len, listing.splits.values())),
        names=listing.digest(),
    )
    info = li.FileInfo(
        listing.class_names, f"image folder {args.folder.resolve().name}", recipe, decoding.layout
    )
    return Plan(
        args.folder,
        shard_paths(args.out, args.shards),
        make_parts(listing.splits, args.shards),
        decoding,
        info,
        li.Storage(args.compress, args.chunk),
    )
