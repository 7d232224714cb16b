#!/usr/bin/env python3
"""Converts a folder of class folders of images (JPEG, PNG, ...) into one HDF5 file, or several shards, for
Lockstep.

    pets/cat/1.jpg, pets/cat/old/2.png, pets/dog/3.jpg, ... a tenth of the files becomes the split val
    pets/train/cat/1.jpg, pets/val/cat/7.jpg, ...           the splits that the folders say (train, val, test)

Classes are numbered by their sorted names. Images are turned upright (EXIF), resized so that they cover the
wanted size, cropped to its centre and stored as bytes, RGB or grey. Split and order depend on file names
alone, so two machines write the same file. Classes lie mixed in it, so that shuffling among neighbours is
enough.

A conversion that was interrupted, even killed, goes on where it was when the same command is given again.
"""

import argparse
import contextlib
import os
import signal
import sys
import threading
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import connection, get_context, parent_process
from pathlib import Path

import h5py
import numpy as np

import image_decode
import image_listing
import lockstep_images as li
from image_journal import Journal
from image_plan import BLOCK, make_plan, packing_path

EXAMPLES = """examples:
  python datasets/image_folder.py pets --size 64 --out datasets/pets.h5
  python datasets/image_folder.py pets --size 64 --split 0.2 --mode L --out /tmp/pets_grey.h5
  python datasets/image_folder.py imagenet --size 224 --shorter 256 --shards 8 --skip-bad \\
         --out /data/imagenet.h5
         writes /data/imagenet-00000-of-00008.h5 and so on: give them all in data.train
  python datasets/image_folder.py pets --size 64 --limit 1000 --out /tmp/try.h5

then:
  lockstep inspect datasets/pets.h5
  mpirun -n 4 lockstep train experiments/cifar10_resnet18.yaml data.train=datasets/pets.h5 data.eval_split=val
"""


# ----------------------------------------------------------------------------------------------------- decode


def create_partials(plan):
    """One file a shard in which every image has its place; labels and names are in it already."""
    check_space(plan)
    for shard, output in enumerate(plan.outputs):
        with li.create_file(li.partial_path(output), plan.info, empty_statistics(plan)) as file:
            for part in plan.parts:
                if part.shard == shard:
                    write_part(file, part, part.rows, plan, li.Storage())
        descriptor = os.open(li.partial_path(output), os.O_RDWR)
        os.fsync(descriptor)
        os.close(descriptor)


def write_part(file, part, rows, plan, storage):
    """The datasets of one split, with images still to be written."""
    images = li.create_images(file, part.split, (len(rows), *plan.decoding.shape), plan.info.layout, storage)
    file[f"{part.split}/labels"] = np.array([label for _, label in rows], np.int64)
    names = [os.fsencode(path) for path, _ in rows]
    file.create_dataset(
        f"{part.split}/files", data=names, dtype=h5py.string_dtype("utf-8", max(map(len, names)))
    )
    return images


def empty_statistics(plan):
    return li.Statistics(1 if plan.info.layout == "NHW" else 3)


def check_space(plan):
    needed = plan.total() * plan.image_bytes
    largest_shard = needed / len(plan.outputs)
    li.check_space(plan.outputs[0], needed + (largest_shard if plan.storage.chunked else 0))


def image_offsets(plan):
    """{(shard, split): byte where images start}; None where a partial file is missing or damaged."""
    offsets = {}
    try:
        for part in plan.parts:
            with h5py.File(li.partial_path(plan.outputs[part.shard]), "r") as file:
                images = file[f"{part.split}/images"]
                if file.attrs["recipe"] != plan.info.recipe or images.shape != (
                    len(part.rows),
                    *plan.decoding.shape,
                ):
                    return None
                offsets[part.shard, part.split] = images.id.get_offset()
    except (OSError, KeyError):
        return None
    return offsets


def still_valid(plan, journal, skip_bad):
    """Blocks of an earlier run that need not be decoded again: their files are the same, and none is bad
    unless that is accepted."""
    kept = {}
    for number, (part, start, end) in enumerate(plan.blocks()):
        entry = journal.done.get(number)
        with contextlib.suppress(OSError):
            if (
                entry
                and (skip_bad or not entry["bad"])
                and entry["files"] == image_decode.fingerprint(plan.paths(part, start, end))
            ):
                kept[number] = entry
    return kept


def leave_with_parent():
    """In a worker: Ctrl-C is the parent's matter; when it dies, by SIGKILL say, the worker goes too."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def watch():
        connection.wait([parent_process().sentinel])
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def results(tasks, workers):
    """(number, result) of {number: Block}, as they come. At most a few blocks a worker are under way."""
    if workers == 0:
        for number, block in tasks.items():
            yield number, image_decode.decode_block(block)
        return
    waiting, under_way = iter(tasks.items()), {}
    pool = ProcessPoolExecutor(min(workers, len(tasks)), get_context("spawn"), leave_with_parent)
    try:
        while True:
            for number, block in waiting:
                under_way[pool.submit(image_decode.decode_block, block)] = number
                if len(under_way) >= 4 * workers:
                    break
            if not under_way:
                return
            for future in wait(under_way, return_when=FIRST_COMPLETED).done:
                yield under_way.pop(future), future.result()
    except BrokenProcessPool:
        raise li.UserError(
            "a worker process died, killed for its memory perhaps. Give the same command with fewer "
            "--workers; it goes on where it was."
        ) from None
    finally:
        pool.shutdown(cancel_futures=True)


def report(plan, part, start, result, skip_bad, bar):
    """Says which images are bad; stops at the first unless they may be skipped."""
    if result["fatal"]:
        raise li.UserError(f"{result['fatal']}. Give --size, to which all are resized and cropped.")
    for row, reason in result["bad"]:
        path = os.path.join(plan.root, part.rows[start + row][0])
        if not skip_bad:
            raise li.UserError(
                f"{path}: {reason}. Replace the file, or leave such images out with --skip-bad; either way "
                "the same command goes on where it was."
            )
        bar.write(f"skipped {path}: {reason}", file=sys.stderr)


def decode_all(plan, journal, args):
    """Brings every block to disk that is not there yet."""
    offsets = image_offsets(plan) if journal.resumed else None
    if offsets is None:
        if journal.resumed:
            journal.restart()
        create_partials(plan)
        offsets = image_offsets(plan)
    journal.done = still_valid(plan, journal, args.skip_bad)
    blocks = plan.blocks()
    tasks = {
        number: image_decode.Block(
            plan.paths(part, start, end),
            str(li.partial_path(plan.outputs[part.shard])),
            offsets[part.shard, part.split] + start * plan.image_bytes,
            plan.decoding,
            part.split == "train",
        )
        for number, (part, start, end) in enumerate(blocks)
        if number not in journal.done
    }
    with li.progress(plan.total(), plan.root.name) as bar:
        there = sum(blocks[number][2] - blocks[number][1] for number in journal.done)
        if journal.resumed:
            bar.write(f"going on: {there:,} of {plan.total():,} images are there already", file=sys.stderr)
        bar.update(there)
        try:
            for number, result in results(tasks, args.workers):
                part, start, end = blocks[number]
                report(plan, part, start, result, args.skip_bad, bar)
                journal.add(number, result, tasks[number].output)
                bar.update(end - start)
        finally:
            journal.sync()
    journal.finish()


# ----------------------------------------------------------------------------------------------------- finish


def finish(plan, journal):
    """Makes the final files of the partial ones. Can be killed and done again at any point."""
    statistics = empty_statistics(plan)
    bad = {}  # part -> its rows that are left out
    for number, (part, start, _) in enumerate(plan.blocks()):
        statistics.merge(journal.done[number]["statistics"])
        for row, _ in journal.done[number]["bad"]:
            bad.setdefault((part.shard, part.split), set()).add(start + row)
    for shard, output in enumerate(plan.outputs):
        partial = li.partial_path(output)
        if not partial.exists() and li.stored_recipe(output) == plan.info.recipe:
            continue  # an earlier run came this far
        parts = [part for part in plan.parts if part.shard == shard]
        left_out = sum(len(bad.get((shard, part.split), ())) for part in parts)
        if plan.storage.chunked or left_out:
            repack(plan, parts, bad, statistics, output, left_out)
        else:
            with h5py.File(partial, "r+") as file:
                li.set_statistics(file, statistics)
            li.commit(partial, output)


def can_finish(plan):
    """True when every shard is in its final or its partial place. A power cut can spoil a partial file that
    was being finished."""
    return all(
        plan.info.recipe in (li.stored_recipe(li.partial_path(output)), li.stored_recipe(output))
        for output in plan.outputs
    )


def repack(plan, parts, bad, statistics, output, left_out):
    """Copies a partial file into its final form: in chunks, compressed, or without the bad images."""
    partial, packed = li.partial_path(output), packing_path(output)
    with (
        h5py.File(partial, "r") as source,
        li.create_file(packed, plan.info, statistics) as file,
        li.progress(sum(len(part.rows) for part in parts), f"writing {output.name}") as bar,
    ):
        if left_out:
            file.attrs["skipped"] = left_out
        for part in parts:
            keep = np.ones(len(part.rows), bool)
            keep[list(bad.get((part.shard, part.split), ()))] = False
            if not keep.any():
                raise li.UserError(
                    f"none of the {len(keep)} images of the split '{part.split}' for {output} can be read, "
                    f"{os.path.join(plan.root, part.rows[0][0])} for one."
                )
            rows = [row for row, good in zip(part.rows, keep) if good]
            images = write_part(file, part, rows, plan, plan.storage)
            stored = source[f"{part.split}/images"]
            step = max(BLOCK, li.DEFAULT_CHUNK_BYTES // plan.image_bytes)
            li.append_blocks(
                images, (stored[i : i + step][keep[i : i + step]] for i in range(0, len(keep), step)), bar
            )
    li.commit(packed, output)
    partial.unlink()


# ---------------------------------------------------------------------------------------------------- command


def parse_size(text):
    try:
        sides = [int(side) for side in text.lower().split("x")]
    except ValueError:
        sides = []
    if len(sides) not in (1, 2) or min(sides) < 1:
        raise argparse.ArgumentTypeError(f"'{text}' is neither a side like 64 nor HEIGHTxWIDTH like 48x64")
    return sides[0], sides[-1]


def parse_share(text):
    try:
        share = float(text)
    except ValueError:
        share = -1
    if not 0 <= share < 1:
        raise argparse.ArgumentTypeError(f"'{text}' is not a share: at least 0, below 1")
    return share


def parse_arguments(arguments):
    parser = argparse.ArgumentParser(
        description=__doc__, epilog=EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "folder", type=Path, help="folder of class folders, or of train/ and val/ that hold them"
    )
    li.add_common_arguments(parser, None)
    parser.add_argument(
        "--size",
        type=parse_size,
        metavar="S|HxW",
        help="pixels to store: a square of side S, or HEIGHTxWIDTH (default: as they are; then all "
        "images must have one size)",
    )
    parser.add_argument(
        "--shorter",
        type=li.at_least(1),
        default=0,
        metavar="R",
        help="resize the shorter side to R before cropping (default: as small as covers --size)",
    )
    parser.add_argument(
        "--mode",
        choices=["RGB", "L"],
        default="RGB",
        help="RGB (default) or L, grey. Transparent pixels become white",
    )
    parser.add_argument(
        "--split",
        type=parse_share,
        metavar="SHARE",
        help=f"share of the files for the split val, 0 for none (default: {image_listing.DEFAULT_VAL}, "
        "unless there are train/ and val/ folders)",
    )
    parser.add_argument(
        "--shards", type=li.at_least(1), default=1, metavar="N", help="divide the output into N files"
    )
    parser.add_argument(
        "--skip-bad",
        action="store_true",
        help="report images that cannot be decoded and leave them out (default: stop at the first)",
    )
    parser.add_argument("--allow-empty", action="store_true", help="keep classes that have no images")
    parser.add_argument(
        "--workers",
        type=li.at_least(0),
        default=len(os.sched_getaffinity(0)),
        metavar="N",
        help="processes that decode; 0: this one (default: %(default)s, the cores)",
    )
    return parser.parse_args(arguments)


def main(arguments=None):
    args = parse_arguments(arguments)
    plan = make_plan(args)
    recipe = plan.info.recipe
    journal_path = args.out.with_name(args.out.name + ".progress")
    if args.force or Journal.recipe_at(journal_path) != recipe:
        if all([li.already_done(output, recipe, args.force) for output in plan.outputs]):
            print("\n".join(f"already there: {li.describe(output)}" for output in plan.outputs))
            return
    scratch = [
        path.name for output in plan.outputs for path in (li.partial_path(output), packing_path(output))
    ]
    journal = Journal(journal_path, recipe, scratch, start_over=args.force)
    remove = False
    try:
        if not (journal.complete and can_finish(plan)):
            decode_all(plan, journal, args)
        finish(plan, journal)
        remove = True
    except OSError as error:
        raise li.UserError(
            f"{error.filename or args.out}: {error.strerror or error}. When that is mended, the same command "
            "goes on where it was."
        ) from None
    finally:
        journal.close(remove)
    print("\n".join(f"wrote {li.describe(output)}" for output in plan.outputs))


if __name__ == "__main__":
    li.run(main)
