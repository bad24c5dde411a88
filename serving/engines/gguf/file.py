"""Read the head of a GGUF file, and refuse a file that llama.cpp should not see.

The format is specified in ggml's `docs/gguf.md`: a head of keys and values, a table of tensors, then their data. Each
number of the head is checked against the size of the file before it is used. Nothing is allocated by a number that the
file states, and the values of a head are counted, so a damaged file is refused within a second, whatever its size.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Mapping, MutableMapping, Sequence
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple

from clusters.base.sizes import format_size
from serving.engines.base.errors import LoadFailed

MAGIC: Final = b"GGUF"
VERSIONS: Final = (2, 3)
MAX_KEYS: Final = 4096
MAX_TENSORS: Final = 65_536
MAX_NAME: Final = 256  # bytes of a key's or a tensor's name; ggml's own limit of tensors is 64
MAX_TEXT: Final = 16 << 20  # bytes of one text; chat templates have some kilobytes
MAX_ELEMENTS: Final = 2 << 20  # of all arrays that are read; the largest vocabularies and their merges have 800 000
MAX_HEAD: Final = 256 << 20  # bytes of the whole head
MAX_BLOCKS: Final = 4096  # layers of a model
MAX_DIMENSIONS: Final = 4
DEFAULT_ALIGNMENT: Final = 32
MAX_ALIGNMENT: Final = 1 << 20

_INT32, _FLOAT32, _BOOL, _STRING, _ARRAY = 5, 6, 7, 8, 9
_SCALARS: Final = {
    0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", _INT32: "<i", _FLOAT32: "<f", _BOOL: "<B",
    10: "<Q", 11: "<q", 12: "<d",
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
_LENGTH: Final = struct.Struct("<Q")
_CHUNK: Final = 1 << 20  # bytes that are read at once to skip texts

TOKENS: Final = "tokenizer.ggml.tokens"
TEXTS: Final = ("general.architecture", "general.type", "tokenizer.ggml.model", "tokenizer.ggml.pre")
CHAT_TEMPLATE: Final = "tokenizer.chat_template"
TOKEN_ARRAYS: Final = {"tokenizer.ggml.scores": _FLOAT32, "tokenizer.ggml.token_type": _INT32}
"""Arrays with an element for each token, and the type of their elements. llama.cpp aborts on another type."""
RANK: Final = 4
"""llama.cpp's pooling type of models that rank documents."""

PART: Final = re.compile(r"-(\d{5})-of-(\d{5})\.gguf$")
"""The end of the name of one part of a split file (llama.cpp's gguf-split)."""


class Kind(NamedTuple):
    """The type of a value; of an array also the type and the number of its elements."""

    kind: int
    element: int = 0
    length: int = 0


class Head(NamedTuple):
    """The head of a GGUF file.

    `tensor_bytes` is the size of all tensors, `vocabulary` the number of tokens, 0 if the file names none, and
    `longest_token` the size of the longest one in bytes.
    """

    values: Mapping[str, Value]
    tensors: int
    tensor_bytes: int
    vocabulary: int = 0
    longest_token: int = 0

    def text(self, key: str) -> str:
        """Return a text; "" if it is absent or no text."""
        value = self.values.get(key)
        return value if isinstance(value, str) else ""

    def number(self, key: str, default: int = 0) -> int:
        """Return a whole number of the model's architecture (`ARCHITECTURE.key`), at least 0."""
        return _whole(self.values.get(f"{self.architecture}.{key}"), default)

    def numbers(self, key: str, count: int, default: int) -> list[int]:
        """Return a number for each of `count` layers; the file has one for all or one for each."""
        value = self.values.get(f"{self.architecture}.{key}")
        if isinstance(value, list | tuple):
            return [_whole(one, default) for one in value[:count]] + [default] * max(0, count - len(value))
        return [self.number(key, default)] * count

    @property
    def architecture(self) -> str:
        """The name of the architecture, such as `llama`."""
        return self.text("general.architecture")

    @property
    def pools(self) -> bool:
        """Whether the file has a pooling type, by which the embedding of a text is made of those of its tokens."""
        return self.number("pooling_type") > 0

    @property
    def encodes(self) -> bool:
        """Whether the model only computes embeddings: it has no next token (BERT and its kin)."""
        return self.values.get(f"{self.architecture}.attention.causal") is False

    @property
    def reranks(self) -> bool:
        """Whether the model ranks documents."""
        return self.number("pooling_type") == RANK


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


def _whole(value: Value, default: int) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else default


class _Reader:
    """Reads one head. All reads are checked against the size of the file."""

    def __init__(self, file: BinaryIO, size: int, name: str) -> None:
        self._file = file
        self._size = size
        self._name = name
        self._place = 0
        self._elements = 0
        self._kinds: MutableMapping[str, Kind] = {}
        self._longest_token = 0

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
        self._check_tokenizer()
        table = [self._tensor() for _ in range(tensors)]
        self._check_tensors(table, values)
        vocabulary = self._kinds[TOKENS].length if TOKENS in self._kinds else 0
        head = Head(values, tensors, sum(size for _, _, size in table), vocabulary, self._longest_token)
        if head.number("block_count") > MAX_BLOCKS:
            raise self._fault(f"has {head.number('block_count')} layers: at most {MAX_BLOCKS} are possible")
        return head

    def _check_tokenizer(self) -> None:
        """Check the types of the values that llama.cpp reads without checking them itself."""
        for key, kind in self._kinds.items():
            if (key in TEXTS or key.startswith(CHAT_TEMPLATE)) and kind.kind != _STRING and key != f"{CHAT_TEMPLATE}s":
                raise self._fault(f"has a {key!r} that is not a text")
        tokens = self._kinds.get(TOKENS)
        if tokens is not None and (tokens.kind, tokens.element) != (_ARRAY, _STRING):
            raise self._fault(f"has a {TOKENS!r} that is not an array of texts")
        for key, element in TOKEN_ARRAYS.items():
            found = self._kinds.get(key)
            if found is not None and found != Kind(_ARRAY, element, tokens.length if tokens is not None else 0):
                raise self._fault(f"has a {key!r} that is not an array with a number for each token")

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
        self._kinds[key] = Kind(kind)
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
        self._kinds[key] = Kind(_ARRAY, kind, count)
        self._elements += count
        if self._elements > MAX_ELEMENTS:
            raise self._fault(f"has more than {MAX_ELEMENTS} elements of arrays")
        if kind == _STRING:
            longest = self._skip_texts(count)
            if key == TOKENS:
                self._longest_token = longest
            return None
        if kind not in _SCALARS:
            raise self._fault(f"has an array of the type {kind} at {key!r}")
        form = _SCALARS[kind]
        size = struct.calcsize(form)
        if count > _KEPT_ELEMENTS:
            self._skip(count * size)
            return None
        return [one for (one,) in struct.iter_unpack(form, self._bytes(count * size))]

    def _skip_texts(self, count: int) -> int:
        """Skip so many texts; return the size of the longest one in bytes."""
        data, start, place, longest = b"", self._place, self._place, 0
        for _ in range(count):
            if place + _LENGTH.size > start + len(data):
                self._file.seek(place)
                data, start = self._file.read(_CHUNK), place
                self._check_room(place + _LENGTH.size - self._place)
                if len(data) < _LENGTH.size:
                    raise self._fault("became shorter while it was read")
            (length,) = _LENGTH.unpack_from(data, place - start)
            if length > MAX_TEXT:
                raise self._fault(f"has a text of {length} bytes: at most {format_size(MAX_TEXT)} are possible")
            place += _LENGTH.size + length
            longest = max(longest, length)
        self._file.seek(self._place)
        self._skip(place - self._place)
        return longest

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
        if self._place + count > self._size:
            raise self._fault(f"ends at byte {self._size}, in the middle of its head")
        if self._place + count > MAX_HEAD:
            raise self._fault(f"has a head of more than {format_size(MAX_HEAD)}")

    def _fault(self, what: str) -> LoadFailed:
        return LoadFailed(f"{self._name} {what}: download or export it again")
