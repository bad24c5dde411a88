"""Images to pixels, by the folder's `preprocessor_config.json`, with Pillow."""

from __future__ import annotations

import base64
import binascii
import io
from collections.abc import Mapping
from typing import Any, Final

import msgspec
import numpy as np
from numpy.typing import NDArray
from PIL import Image

from serving.engines.base.errors import InputRefused, LoadFailed, short_reason
from serving.engines.huggingface.config import PREPROCESSOR

MAX_PIXELS: Final = 50_000_000  # of one decoded image, 150 MB; a small file may hold a huge image
_MAX_EDGE: Final = 4096  # pixels of the model's input
FORMATS: Final = ("JPEG", "PNG", "WEBP", "GIF", "BMP")
_CROPPED_BELOW: Final = 384  # pixels; ConvNext and ResNet crop only smaller images
_SWITCHES: Final = frozenset({"do_resize", "do_rescale", "do_normalize", "do_center_crop", "do_convert_rgb"})
"""The steps that are made here; a few models have others, such as `do_flip_channel_order`."""
_BILINEAR: Final = 2
_CHANNELS: Final = 3
Pixels = NDArray[np.float32]


class ImageProcessor(msgspec.Struct, frozen=True):
    """The steps before an image model.

    size       (height, width) to resize to; or the shortest edge alone; None for none
    crop       (height, width) of the middle part; None for all
    resample   Pillow's filter
    scale      factor of the pixels' values; 1.0 for none
    mean, std  of each channel
    """

    size: tuple[int, int] | int | None
    crop: tuple[int, int] | None
    resample: int
    scale: float
    mean: tuple[float, ...]
    std: tuple[float, ...]

    def pixels(self, content: bytes | str) -> Pixels:
        """Return the pixels [channels, height, width] of an encoded image, or of one in base64. Raises InputRefused."""
        image = self._cropped(self._resized(_opened(_decoded(content))))
        mean, std = (np.asarray(values, np.float32) for values in (self.mean, self.std))
        values = (np.asarray(image, np.float32) * np.float32(self.scale) - mean) / std
        return np.ascontiguousarray(values.transpose(2, 0, 1))

    def blank(self) -> Pixels:
        """Return the pixels of a black image of the least size."""
        size = self.crop or self.size or 1
        height, width = (size, size) if isinstance(size, int) else size
        return np.zeros((_CHANNELS, height, width), np.float32)

    def _resized(self, image: Image.Image) -> Image.Image:
        if self.size is None:
            return image
        if isinstance(self.size, int):
            short, long = sorted(image.size)
            other = int(self.size * long / short)
            if other > _MAX_EDGE * 4:
                raise InputRefused(f"the image of {image.width}x{image.height} pixels is too long: send a part of it")
            target = (self.size, other) if image.width <= image.height else (other, self.size)
        else:
            target = (self.size[1], self.size[0])
        return image.resize(target, Image.Resampling(self.resample))

    def _cropped(self, image: Image.Image) -> Image.Image:
        """Return the middle part. What is beyond a smaller image is black."""
        if self.crop is None:
            return image
        height, width = self.crop
        top, left = (image.height - height) // 2, (image.width - width) // 2
        return image.crop((left, top, left + width, top + height))


def read_processor(given: Mapping[str, Any], uri: str) -> ImageProcessor:
    """Return the processor that `preprocessor_config.json` describes. Raises LoadFailed."""
    try:
        return _processor(given)
    except (KeyError, TypeError, ValueError) as error:
        raise LoadFailed(f"{uri}: {PREPROCESSOR} is not one of a known image processor ({error})") from error


def _processor(given: Mapping[str, Any]) -> ImageProcessor:
    others = [name for name, value in given.items() if value is True and name not in _SWITCHES]
    if others or (given.get("do_center_crop") and "crop_pct" in given):
        raise ValueError(f"unknown step {others[0][:80]!r}" if others else "both a crop_pct and a crop_size")
    size = _size(given["size"]) if given.get("do_resize", True) else None
    crop = None
    if given.get("do_center_crop"):
        crop = _pair(_size(given["crop_size"]))
    elif "crop_pct" in given and isinstance(size, int):
        crop = (size, size)
        size = int(size / float(given["crop_pct"])) if size < _CROPPED_BELOW else crop
    if size is None and crop is None:
        raise ValueError("neither a size nor a crop_size")
    normalize = given.get("do_normalize", True)
    scale = float(given.get("rescale_factor", 1 / 255)) if given.get("do_rescale", True) else 1.0
    resample = given.get("resample", _BILINEAR)
    Image.Resampling(resample)
    mean = _channels(given["image_mean"]) if normalize else (0.0,) * _CHANNELS
    std = _channels(given["image_std"]) if normalize else (1.0,) * _CHANNELS
    if 0.0 in std:
        raise ValueError("image_std has 0")
    return ImageProcessor(size, crop, resample, scale, mean, std)


def _size(given: Any) -> tuple[int, int] | int:
    if isinstance(given, int):
        found: tuple[int, ...] = (given, given)
    elif "shortest_edge" in given:
        found = (given["shortest_edge"],)
    else:
        found = (given["height"], given["width"])
    if not all(isinstance(edge, int) and 0 < edge <= _MAX_EDGE for edge in found):
        raise ValueError(f"a size is not from 1 to {_MAX_EDGE} pixels")
    return found[0] if len(found) == 1 else (found[0], found[1])


def _pair(size: tuple[int, int] | int) -> tuple[int, int]:
    return (size, size) if isinstance(size, int) else size


def _channels(given: Any) -> tuple[float, ...]:
    found = tuple(float(value) for value in given)
    if len(found) != _CHANNELS:
        raise ValueError(f"{len(found)} channels instead of {_CHANNELS}")
    return found


def _decoded(content: bytes | str) -> bytes:
    """Return the bytes of an image; text is base64, as JSON sends it."""
    if isinstance(content, bytes):
        return content
    try:
        return base64.b64decode(content, validate=True)
    except (binascii.Error, ValueError) as error:
        raise InputRefused("the image is text but not base64: send base64, or binary data") from error


def _opened(content: bytes) -> Image.Image:
    """Return the decoded image in RGB. Raises InputRefused, for one of too many pixels before it is decoded."""
    try:
        image = Image.open(io.BytesIO(content), formats=FORMATS)  # reads only the head
        if image.width * image.height > MAX_PIXELS:
            raise InputRefused(f"the image has {image.width}x{image.height} pixels, more than {MAX_PIXELS}")
        return image.convert("RGB")
    except InputRefused:
        raise
    except Exception as error:  # Pillow's plug-ins raise many kinds
        raise InputRefused(
            f"the image cannot be decoded ({short_reason(error)}): send one of {', '.join(FORMATS)}"
        ) from error
