"""The progress of a conversion on disk, for image_folder.py."""

import contextlib
import fcntl
import json
import os
import time

from lockstep_images import UserError

SYNC_SECONDS = 0.5  # progress that a killed conversion can lose, at most


class Journal:
    """OUT.progress: a line of JSON for the conversion, one for each block that is on disk, and one when all
    are.

    A block's line is written after its images are synced, so what the journal says is true after any kind
    of death. `scratch` names the files beside it that are removed when a conversion starts over.
    """

    def __init__(self, path, recipe, scratch, start_over=False):
        self.path = path
        self.header = {"recipe": recipe, "scratch": scratch}
        self.done = {}  # block number -> result of decode_block()
        self.complete = False  # all blocks are on disk; only finishing is left
        self.resumed = False  # an earlier run's progress was found
        self.waiting = []
        self.touched = set()  # output files with images that are not synced yet
        self.last_sync = -SYNC_SECONDS  # the first block is noted at once
        self.file = open(path, "a+", encoding="utf-8")
        try:
            fcntl.flock(self.file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise UserError(
                f"another conversion is writing {path.name.removesuffix('.progress')} now ({path} is "
                "locked). Wait for it, or choose another --out."
            ) from None
        lines = read_lines(path)
        if start_over or not lines or lines[0] != self.header:
            self.remove_scratch(lines)
            self.restart()
        else:
            self.take_over(lines[1:])

    @staticmethod
    def recipe_at(path):
        """What the unfinished conversion whose journal lies at `path` is of; None where there is none."""
        lines = read_lines(path)
        return lines[0].get("recipe") if lines else None

    def take_over(self, entries):
        self.resumed = True
        self.done = {entry["block"]: entry for entry in entries if "block" in entry}
        self.complete = any("complete" in entry for entry in entries)
        # The last line of a writer that died may be cut short.
        self.file.truncate(self.path.read_bytes().rindex(b"\n") + 1)

    def restart(self):
        self.done, self.complete, self.resumed = {}, False, False
        self.file.truncate(0)
        self.write(self.header)

    def remove_scratch(self, lines):
        for name in lines[0].get("scratch", []) if lines else []:
            with contextlib.suppress(FileNotFoundError):
                (self.path.parent / os.path.basename(name)).unlink()

    def write(self, *entries):
        self.file.write("".join(json.dumps(entry) + "\n" for entry in entries))
        self.file.flush()
        os.fsync(self.file.fileno())

    def add(self, number, result, output):
        """Notes a block whose images are in `output`; it is written with others at the next sync."""
        self.done[number] = {"block": number, **result}
        self.waiting.append(self.done[number])
        self.touched.add(output)
        if time.monotonic() - self.last_sync > SYNC_SECONDS:
            self.sync()

    def sync(self):
        for output in self.touched:
            descriptor = os.open(output, os.O_RDWR)
            os.fsync(descriptor)
            os.close(descriptor)
        if self.waiting:
            self.write(*self.waiting)
        self.waiting, self.touched, self.last_sync = [], set(), time.monotonic()

    def finish(self):
        self.sync()
        self.write({"complete": True})
        self.complete = True

    def close(self, remove):
        if remove:
            self.path.unlink()
        self.file.close()


def read_lines(path):
    """The whole lines of a journal, decoded; nothing where it is missing or something else."""
    try:
        text = path.read_text(encoding="utf-8")
        lines = [json.loads(line) for line in text.split("\n")[:-1]]
    except (OSError, ValueError):
        return []
    return lines if all(isinstance(line, dict) for line in lines) else []
