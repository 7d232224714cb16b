"""Image files to arrays, for image_folder.py. Its worker processes run decode_block()."""

import hashlib
import os
import warnings
from dataclasses import dataclass

import numpy as np
from PIL import Image, ImageOps

from lockstep_images import Statistics

WHITE = (255, 255, 255, 255)


class BadImage(Exception):
    """This file cannot be used; the text says why."""


class WrongSize(Exception):
    """A whole image, but not of the size that the others have, and no --size was given."""


@dataclass(frozen=True)
class Decoding:
    """What each image becomes."""

    height: int
    width: int
    shorter: int = 0  # shorter side before cropping; 0: as small as covers height x width
    resize: bool = True  # False: images must have this size already
    mode: str = "RGB"  # or "L"

    @property
    def shape(self):
        return (self.height, self.width) if self.mode == "L" else (self.height, self.width, 3)

    @property
    def layout(self):
        return "NHW" if self.mode == "L" else "NHWC"


@dataclass(frozen=True)
class Block:
    """Some images that lie next to each other in an output file."""

    paths: tuple
    output: str  # file that has their place already
    offset: int  # bytes from its start
    decoding: Decoding
    training: bool  # they count for mean and std


def upright(image):
    """Turned as its EXIF orientation says; as it is where the EXIF data are damaged."""
    try:
        return ImageOps.exif_transpose(image)
    except (
        Exception
    ):  # Pillow raises nearly anything on damaged EXIF data, which is no reason to lose the pixels
        return image


def to_mode(image, mode):
    """RGB or L from any mode: transparent pixels over white, 16 bits a channel scaled to 8."""
    if image.mode.startswith("I;16"):
        image = Image.fromarray((np.asarray(image).astype(np.uint16) >> 8).astype(np.uint8))
    elif image.mode in ("I", "F"):
        raise BadImage(
            f"it has 32 bits a pixel (mode {image.mode}), whose range is not known: convert it to 8 bits"
        )
    if image.has_transparency_data:
        image = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", image.size, WHITE), image)
    return image if image.mode == mode else image.convert(mode)


def fit(image, decoding):
    """Resized until the shorter side (or the crop) is met, then the centre of it."""
    width, height = image.size
    target = decoding.width, decoding.height
    if (width, height) == target and decoding.shorter in (0, min(target)):
        return image
    if not decoding.resize:
        raise WrongSize(f"it has {height}x{width} pixels, the first one {decoding.height}x{decoding.width}")
    scale = (
        decoding.shorter / min(width, height)
        if decoding.shorter
        else max(target[0] / width, target[1] / height)
    )
    new = max(target[0], round(width * scale)), max(target[1], round(height * scale))
    if new != image.size:
        image = image.resize(new, Image.Resampling.BILINEAR)
    left, top = (new[0] - target[0]) // 2, (new[1] - target[1]) // 2
    return image.crop((left, top, left + target[0], top + target[1]))


def open_image(path):
    """Opened but not decoded. OSError where the file cannot be read, BadImage where it is no image."""
    try:
        return Image.open(path)
    except OSError as error:
        if error.errno is not None:
            raise
        raise BadImage("it is not an image that Pillow knows, or its header is damaged") from None


def decode(path, decoding):
    """An image file as uint8 of decoding.shape. Throws BadImage or WrongSize."""
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore"
        )  # about large images and odd metadata; what matters arrives as an exception
        try:
            with open_image(path) as image:
                if (
                    decoding.resize
                ):  # a large JPEG is decoded at 1/2, 1/4 or 1/8, still twice as large as needed
                    enough = 2 * max(decoding.height, decoding.width, decoding.shorter)
                    image.draft(None, (enough, enough))
                return np.asarray(fit(to_mode(upright(image), decoding.mode), decoding))
        except (BadImage, WrongSize):
            raise
        except Exception as error:  # decoders raise OSError, SyntaxError, ValueError, struct.error, ...
            raise BadImage(f"{error or type(error).__name__}") from None


def upright_size(path):
    """(height, width) of an image as decode() would turn it."""
    with open_image(path) as image:
        width, height = upright(image).size
    return height, width


def fingerprint(paths):
    """Names, sizes and times of some files: differs when one of them was replaced."""
    digest = hashlib.blake2b(digest_size=16)
    for path in paths:
        status = os.stat(path)
        digest.update(os.fsencode(path) + f"\0{status.st_size}\0{status.st_mtime_ns}\0".encode())
    return digest.hexdigest()


def decode_block(block):
    """Decodes images into their place. Returns what the journal needs; bad images leave zeros behind."""
    files = fingerprint(block.paths)
    images = np.zeros((len(block.paths), *block.decoding.shape), np.uint8)
    good, bad, fatal = [], [], None
    for row, path in enumerate(block.paths):
        try:
            images[row] = decode(path, block.decoding)
            good.append(row)
        except BadImage as error:
            bad.append([row, str(error)])
        except WrongSize as error:
            fatal = f"{path}: {error}"
            break
    statistics = Statistics(3 if block.decoding.mode == "RGB" else 1)
    if block.training:
        statistics.add(images[good], block.decoding.layout)
    write_at(block.output, block.offset, images)
    return {"files": files, "bad": bad, "fatal": fatal, "statistics": statistics.to_json()}


def write_at(path, offset, array):
    data = memoryview(array).cast("B")
    descriptor = os.open(path, os.O_WRONLY)
    try:
        while len(data):
            written = os.pwrite(descriptor, data, offset)
            data, offset = data[written:], offset + written
    finally:
        os.close(descriptor)
