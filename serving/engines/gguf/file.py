"""Read the head of a GGUF file, and refuse a file that llama.cpp should not see.

The format is specified in ggml's `docs/gguf.md`: a head of keys and values, a table of tensors, then their data. Each
number of the head is checked against the size of the file before it is used. Nothing is allocated by a number that the
file states, so a damaged file costs no more than reading its head once.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple

from serving.engines.base.errors import LoadFailed

MAGIC: Final = b"GGUF"
VERSIONS: Final = (2, 3)
MAX_KEYS: Final = 65_536
MAX_TENSORS: Final = 1_000_000
MAX_NAME: Final = 256  # bytes of a key's or a tensor's name; ggml's own limit of tensors is 64
MAX_TEXT: Final = 16 << 20  # bytes of one text; chat templates have some kilobytes
MAX_ELEMENTS: Final = 4 << 20  # of one array; the largest vocabularies have a quarter of a million tokens
MAX_DIMENSIONS: Final = 4
DEFAULT_ALIGNMENT: Final = 32
MAX_ALIGNMENT: Final = 1 << 20

_STRING, _ARRAY, _BOOL = 8, 9, 7
_SCALARS: Final = {
    0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", _BOOL: "<B", 10: "<Q", 11: "<q", 12: "<d",
}  # fmt: skip
TENSOR_TYPES: Final = {
    0: (1, 4), 1: (1, 2), 2: (32, 18), 3: (32, 20), 6: (32, 22), 7: (32, 24), 8: (32, 34), 9: (32, 40), 10: (256, 84),
    11: (256, 110), 12: (256, 144), 13: (256, 176), 14: (256, 210), 15: (256, 292), 16: (256, 66), 17: (256, 74),
    18: (256, 98), 19: (256, 50), 20: (32, 18), 21: (256, 110), 22: (256, 82), 23: (256, 136), 24: (1, 1), 25: (1, 2),
    26: (1, 4), 27: (1, 8), 28: (1, 8), 29: (256, 56), 30: (1, 2), 34: (256, 54), 35: (256, 66), 39: (32, 17),
    40: (64, 36), 41: (128, 18),
}  # fmt: skip
"""Elements of a block and its bytes, by ggml's number of the type (ggml.h)."""

Value = int | float | bool | str | Sequence[int | float | bool] | None
"""A value of the head. Texts are kept only up to `_KEPT_TEXT` bytes, arrays only of numbers and short ones."""
_KEPT_TEXT: Final = 256
_KEPT_ELEMENTS: Final = 4096

PART: Final = re.compile(r"-(\d{5})-of-(\d{5})\.gguf$")
"""The end of the name of one part of a split file (llama.cpp's gguf-split)."""


class Head(NamedTuple):
    """The head of a GGUF file; `tensor_bytes` is the size of all tensors."""

    values: Mapping[str, Value]
    tensors: int
    tensor_bytes: int

    def text(self, key: str) -> str:
        """Return a text; "" if it is absent or no text."""
        value = self.values.get(key)
        return value if isinstance(value, str) else ""

    def number(self, key: str, default: int = 0) -> int:
        """Return a whole number of the model's architecture (`ARCHITECTURE.key`)."""
        value = self.values.get(f"{self.architecture}.{key}")
        return value if isinstance(value, int) and not isinstance(value, bool) else default

    def numbers(self, key: str, count: int, default: int) -> list[int]:
        """Return a number for each of `count` layers; the file has one for all or one for each."""
        value = self.values.get(f"{self.architecture}.{key}")
        if isinstance(value, list | tuple):
            return [int(one) for one in value[:count]] + [default] * max(0, count - len(value))
        return [self.number(key, default)] * count

    @property
    def architecture(self) -> str:
        """The name of the architecture, such as `llama`."""
        return self.text("general.architecture")


def read_head(path: Path, name: str) -> Head:
    """Return the head of the file, which messages call `name`. Raises LoadFailed."""
    try:
        with path.open("rb") as file:
            return _Reader(file, path.stat().st_size, name).head()
    except OSError as error:
        raise LoadFailed(f"{name} cannot be read: {error.strerror}") from error


def parts_of(name: str, names: Sequence[str]) -> list[str]:
    """Return all parts of a split file, of which `name` is the first; just `name` if it is not split.

    Raises LoadFailed if a part is missing.
    """
    found = PART.search(name)
    if found is None:
        return [name]
    count = int(found[2])
    parts = [f"{name[: found.start()]}-{number:05d}-of-{found[2]}.gguf" for number in range(1, count + 1)]
    missing = [part for part in parts if part not in names]
    if missing or not parts:
        raise LoadFailed(f"{name} is one of {count} parts, and {len(missing)} are missing, such as {missing[:1]}")
    return parts


class _Reader:
    """Reads one head. All reads are checked against the size of the file."""

    def __init__(self, file: BinaryIO, size: int, name: str) -> None:
        self._file = file
        self._size = size
        self._name = name
        self._place = 0

    def head(self) -> Head:
        if self._bytes(4) != MAGIC:
            raise self._fault("does not begin with GGUF")
        version = self._number("<I")
        if version not in VERSIONS:
            raise self._fault(f"has version {version} of the format: versions 2 and 3 are supported, in little endian")
        tensors, keys = self._count(MAX_TENSORS, "tensors"), self._count(MAX_KEYS, "keys")
        values: dict[str, Value] = {}
        for _ in range(keys):
            key = self._string(MAX_NAME)
            if key in values:
                raise self._fault(f"has the key {key!r} twice")
            values[key] = self._value(self._number("<I"), key)
        table = [self._tensor() for _ in range(tensors)]
        self._check_tensors(table, values)
        return Head(values, tensors, sum(size for _, _, size in table))

    def _tensor(self) -> tuple[str, int, int]:
        """Return the name, the offset and the size of a tensor."""
        name = self._string(MAX_NAME)
        count = self._number("<I")
        if not 1 <= count <= MAX_DIMENSIONS:
            raise self._fault(f"has a tensor {name!r} of {count} dimensions: 1 to {MAX_DIMENSIONS} are possible")
        shape = [self._number("<Q") for _ in range(count)]
        kind, offset = self._number("<I"), self._number("<Q")
        if kind not in TENSOR_TYPES:
            raise self._fault(f"has a tensor {name!r} of the unknown type {kind}")
        elements, block = TENSOR_TYPES[kind]
        if shape[0] % elements or not all(shape):
            raise self._fault(f"has a tensor {name!r} of shape {shape}, which its type does not allow")
        return name, offset, math.prod(shape) // elements * block

    def _check_tensors(self, table: Sequence[tuple[str, int, int]], values: Mapping[str, Value]) -> None:
        alignment = values.get("general.alignment", DEFAULT_ALIGNMENT)
        if not isinstance(alignment, int) or not 1 <= alignment <= MAX_ALIGNMENT or alignment & (alignment - 1):
            raise self._fault(f"has the alignment {alignment!r}: it must be a power of two")
        start = -(-self._place // alignment) * alignment
        seen: set[str] = set()
        end = 0
        for name, offset, size in sorted(table, key=lambda one: one[1]):
            if name in seen:
                raise self._fault(f"has the tensor {name!r} twice")
            seen.add(name)
            if offset % alignment or offset < end:
                raise self._fault(f"has a tensor {name!r} at offset {offset}, which is not aligned or overlaps another")
            end = offset + size
            if start + end > self._size:
                short = start + end - self._size
                raise self._fault(f"is cut off: the tensor {name!r} needs {short} bytes more")

    def _value(self, kind: int, key: str) -> Value:
        if kind == _STRING:
            return self._text()
        if kind == _ARRAY:
            return self._array(key)
        if kind not in _SCALARS:
            raise self._fault(f"has a value of the unknown type {kind} at {key!r}")
        value = self._number(_SCALARS[kind])
        return bool(value) if kind == _BOOL else value

    def _array(self, key: str) -> Value:
        kind, count = self._number("<I"), self._count(MAX_ELEMENTS, f"elements at {key!r}")
        if kind == _STRING:
            for _ in range(count):
                self._skip(self._length(MAX_TEXT))
            return None
        if kind not in _SCALARS:
            raise self._fault(f"has an array of the type {kind} at {key!r}")
        form = _SCALARS[kind]
        size = struct.calcsize(form)
        if count > _KEPT_ELEMENTS:
            self._skip(count * size)
            return None
        return [one for (one,) in struct.iter_unpack(form, self._bytes(count * size))]

    def _text(self) -> Value:
        length = self._length(MAX_TEXT)
        if length > _KEPT_TEXT:
            self._skip(length)
            return None
        return self._bytes(length).decode("utf-8", "replace")

    def _string(self, most: int) -> str:
        try:
            return self._bytes(self._length(most)).decode("utf-8")
        except UnicodeDecodeError as error:
            raise self._fault("has a name that is not UTF-8") from error

    def _length(self, most: int) -> int:
        length = self._number("<Q")
        if length > most:
            raise self._fault(f"has a text of {length} bytes: at most {most} are possible")
        return length

    def _count(self, most: int, what: str) -> int:
        count = self._number("<Q")
        if count > most:
            raise self._fault(f"has {count} {what}: at most {most} are possible")
        return count

    def _number(self, form: str) -> int:
        (value,) = struct.unpack(form, self._bytes(struct.calcsize(form)))
        number: int = value
        return number

    def _bytes(self, count: int) -> bytes:
        self._check_room(count)
        data = self._file.read(count)
        if len(data) != count:
            raise self._fault("became shorter while it was read")
        self._place += count
        return data

    def _skip(self, count: int) -> None:
        self._check_room(count)
        self._file.seek(count, 1)
        self._place += count

    def _check_room(self, count: int) -> None:
        if count > self._size - self._place:
            raise self._fault(f"ends at byte {self._size}, in the middle of its head")

    def _fault(self, what: str) -> LoadFailed:
        return LoadFailed(f"{self._name} {what}: download or export it again")
