"""Which images a folder of class folders has, in what split and order, for image_folder.py."""

import hashlib
import os
from dataclasses import dataclass, field

from lockstep_images import UserError

EXTENSIONS = {
    ".jpg",
    ".jpeg",
    ".jpe",
    ".jfif",
    ".png",
    ".bmp",
    ".gif",
    ".ppm",
    ".pgm",
    ".pnm",
    ".tif",
    ".tiff",
    ".webp",
}
SPLIT_FOLDERS = {"train": "train", "val": "val", "valid": "val", "validation": "val", "test": "test"}
DEFAULT_VAL = 0.1


@dataclass
class Listing:
    """The images to convert. Order depends on names alone, so that every machine and every run agree."""

    class_names: list
    splits: dict  # split -> [(path relative to the root, label), ...], shuffled by name
    warnings: list = field(default_factory=list)

    def digest(self):
        """Of all names and their places."""
        digest = hashlib.blake2b(digest_size=16)
        for split, rows in self.splits.items():
            for path, label in rows:
                digest.update(os.fsencode(f"{split}\0{path}\0{label}\0"))
        return digest.hexdigest()


def hash_of(name, purpose):
    """64 bits that depend on a file's name alone."""
    return int.from_bytes(hashlib.blake2b(os.fsencode(name), digest_size=8, person=purpose).digest(), "big")


def entries(folder):
    """(folders, files) in a folder, sorted by name, hidden ones left out."""
    try:
        with os.scandir(folder) as found:
            items = sorted(
                (e for e in found if not e.name.startswith(".") and e.name != "__MACOSX"),
                key=lambda e: e.name,
            )
            return [e.name for e in items if e.is_dir()], [e.name for e in items if not e.is_dir()]
    except OSError as error:
        raise UserError(
            f"cannot read the folder {folder}: {error.strerror}. Mend its permissions, or remove it from the "
            "data."
        ) from None


def is_image(name):
    return os.path.splitext(name)[1].lower() in EXTENSIONS


def images_below(folder):
    """Paths of all images below a class folder relative to it, and how many other files there are."""
    images, others, seen = [], 0, set()
    waiting = [""]
    while waiting:
        relative = waiting.pop()
        place = os.path.join(folder, relative) if relative else folder
        real = os.path.realpath(place)
        if real in seen:  # a link back to a folder above
            continue
        seen.add(real)
        folders, files = entries(place)
        waiting += [os.path.join(relative, name) for name in folders]
        found = [os.path.join(relative, name) for name in files if is_image(name)]
        images += found
        others += len(files) - len(found)
    return sorted(images), others


def class_folders(folder):
    names, files = entries(folder)
    if not names:
        loose = sum(map(is_image, files))
        raise UserError(
            f"{folder} has no class folders{f' but {loose} images' if loose else ''}. One folder a class is "
            f"needed: {folder}/cat/1.jpg, {folder}/dog/2.jpg, or train/ and val/ folders that look so."
        )
    for name in names:
        try:
            name.encode("utf-8")
        except UnicodeEncodeError:
            raise UserError(
                f"the name of the class folder {os.fsencode(name)!r} in {folder} is not UTF-8. Rename it."
            ) from None
    return names


def list_classes(root, prefix, class_names, allow_empty, listing):
    """[(path relative to root, label)] of the class folders root/prefix/*."""
    rows = []
    for name in class_folders(os.path.join(root, prefix) if prefix else root):
        if name not in class_names:
            raise UserError(
                f"{os.path.join(root, prefix, name)}: there is no class '{name}' in "
                f"{os.path.join(root, 'train')}. Every split needs the classes that train has."
            )
        folder = os.path.join(prefix, name)
        images, others = images_below(os.path.join(root, folder))
        if not images and not allow_empty:
            raise UserError(
                f"the class folder {os.path.join(root, folder)} has no images ({others} other files; endings "
                f"known: {' '.join(sorted(EXTENSIONS))}). Remove it, or keep the class with --allow-empty."
            )
        if others:
            listing.warnings.append(
                f"{os.path.join(root, folder)}: {others} files are not images by their ending"
            )
        label = class_names.index(name)
        rows += [(os.path.join(folder, image), label) for image in images]
    return rows


def list_images(root, val_share=None, allow_empty=False, limit=0):
    """Everything below `root`: its own train/ val/ test/ folders, or class folders of which `val_share` of
    the files, chosen by a hash of their names, become the split `val` (0: no such split)."""
    if not os.path.isdir(root):
        raise UserError(f"{root} is not a folder. Give the folder that holds the class folders.")
    names = class_folders(root)
    own_splits = "train" in names and all(name in SPLIT_FOLDERS for name in names)
    if own_splits and val_share is not None and len(names) > 1:
        raise UserError(
            f"--split {val_share:g}: {root} has its own splits {', '.join(names)}. Leave --split out."
        )
    listing = Listing(class_folders(os.path.join(root, "train")) if own_splits else names, {})
    if len(listing.class_names) < 2:
        raise UserError(f"{root} has one class, '{listing.class_names[0]}'; at least two are needed.")
    if own_splits:
        for name in sorted(names, key=list(SPLIT_FOLDERS).index):
            if SPLIT_FOLDERS[name] in listing.splits:
                raise UserError(
                    f"{root} has several validation folders: {', '.join(names)}. Keep one of them."
                )
            listing.splits[SPLIT_FOLDERS[name]] = list_classes(
                root, name, listing.class_names, allow_empty, listing
            )
    else:
        listing.splits["train"] = list_classes(root, "", names, allow_empty, listing)
    if len(listing.splits) == 1:
        divide(listing, DEFAULT_VAL if val_share is None else val_share)
    for split, rows in listing.splits.items():
        # Mixed classes all through the file: a reader that shuffles among neighbouring chunks then meets
        # all of them.
        rows.sort(key=lambda row: (hash_of(row[0], b"order"), row[0]))
        if limit:
            del rows[limit:]
        if not rows:
            raise UserError(
                f"{root}: the split '{split}' has no images."
                + (" Give a larger --split, or --split 0 for none." if split == "val" else "")
            )
    return listing


def divide(listing, share):
    """Moves `share` of train's images to val. A file's side depends on its own name alone: it stays where
    it is when others come or go."""
    if share == 0:
        return
    bound = int(share * 2**64)
    rows = listing.splits["train"]
    listing.splits["val"] = [row for row in rows if hash_of(row[0], b"split") < bound]
    listing.splits["train"] = [row for row in rows if hash_of(row[0], b"split") >= bound]
    missing = set(range(len(listing.class_names))) - {label for _, label in listing.splits["val"]}
    if missing:
        listing.warnings.append(
            f"{len(missing)} classes have no validation image, '{listing.class_names[min(missing)]}' for one"
        )
