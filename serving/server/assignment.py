"""Which model a server serves, and within which bounds: told by the command line, or later by a load call. Pure.

As JSON, of a load call and of the file that outlives a container's restart alike:

    {"parameters": {"storageUri", "revision", "digest"?, "modelFormat"?, "slots"?, "timeout"?, "cpu"?}}

Numbers may be written as strings, as KServe's repository extension has them. What is left out, "" or 0 is the server's
own option.
"""

from __future__ import annotations

import math
import re
from dataclasses import asdict, dataclass
from typing import Any, Final

import msgspec

from clusters.errors import KnodelError
from serving.engines.errors import UnknownFormat
from serving.engines.registry import find_format
from serving.storage import digest as digests
from serving.storage.addresses import shown
from serving.storage.errors import StorageError

_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_SHOWN: Final = 80  # characters of a wrong value that an error repeats
LARGEST: Final = 1_000_000  # of each bound; what is more is a mistake
LONGEST_URI: Final = 8192  # characters; of an object store's signed URL some 2 000


class BadAssignment(KnodelError):
    """What a server is told to serve makes no sense."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a server grants a model: requests inside it at once, seconds that one may take, cores."""

    slots: int
    timeout: float
    cpu: float

    @property
    def threads(self) -> int:
        """Threads that one inference may use."""
        return max(1, math.floor(self.cpu))


@dataclass(frozen=True, slots=True)
class Assignment:
    """A model; `revision` is what answers are labelled with, `format` "" is found from the files."""

    name: str
    revision: str
    storage_uri: str
    digest: str
    format: str
    bounds: Bounds


class _Parameters(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    storage_uri: str
    revision: str
    digest: str = ""
    model_format: str = ""
    slots: int | None = None
    timeout: float | None = None
    cpu: float | None = None


class _Body(msgspec.Struct):
    parameters: _Parameters


class _Stored(msgspec.Struct):
    name: str
    parameters: _Parameters


def is_name(text: str) -> bool:
    """Whether a model or revision may be called so."""
    return _NAME.fullmatch(text) is not None


def assignment_of(name: str, body: bytes, default: Bounds) -> Assignment:
    """The assignment of a load call for the model `name`. Raises BadAssignment."""
    return _checked(name, _decoded(body, _Body).parameters, default)


def to_stored(assignment: Assignment) -> bytes:
    """As a file keeps it: with the name, and all bounds written out."""
    bounds = asdict(assignment.bounds)
    parameters = _Parameters(
        assignment.storage_uri, assignment.revision, assignment.digest, assignment.format, **bounds
    )
    return msgspec.json.encode(_Stored(assignment.name, parameters))


def from_stored(content: bytes, default: Bounds) -> Assignment:
    """What `to_stored` made. Raises BadAssignment."""
    stored = _decoded(content, _Stored)
    return _checked(stored.name, stored.parameters, default)


def _decoded(body: bytes, kind: Any) -> Any:
    try:
        return msgspec.json.decode(body, type=kind, strict=False)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadAssignment(f"the body is {{'parameters': {{'storageUri', 'revision', …}}}}: {error}") from error


def _checked(name: str, given: _Parameters, default: Bounds) -> Assignment:
    for field, text in (("name", name), ("revision", given.revision)):
        if not is_name(text):
            raise BadAssignment(f"{field} {text[:_SHOWN]!r}: at most 63 of a-z, 0-9 and '-', no '-' at the ends")
    if not given.storage_uri or len(given.storage_uri) > LONGEST_URI:
        raise BadAssignment(f"storageUri has 1 to {LONGEST_URI} characters")
    try:
        digests.check_form(shown(given.storage_uri), given.digest)
        if given.model_format:
            find_format(given.model_format, ())
    except (StorageError, UnknownFormat) as error:
        raise BadAssignment(str(error)) from error
    bounds = Bounds(
        int(_positive("slots", given.slots or default.slots)),
        _positive("timeout", given.timeout or default.timeout),
        _positive("cpu", given.cpu or default.cpu),
    )
    return Assignment(name, given.revision, given.storage_uri, given.digest, given.model_format, bounds)


def _positive(field: str, value: float) -> float:
    if not 0 < value <= LARGEST:  # NaN neither
        raise BadAssignment(f"{field} {value!r}: more than 0, at most {LARGEST}")
    return value
