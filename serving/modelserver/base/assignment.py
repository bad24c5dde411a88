"""Which model a server serves, and within which bounds: told by the command line, or later by a load call. Pure.

As JSON, of a load call and of the file that outlives a container's restart alike:

    {"parameters": {"storageUri", "revision", "digest"?, "modelFormat"?, "slots"?, "timeout"?, "cpu"?,
                    "maxBatchSize"?, "maxBatchLatency"?}}

Numbers may be written as strings, as KServe's repository extension has them. What is left out, "" or 0 is the server's
own option; a server of many models needs none of it for a model that it knows.
"""

from __future__ import annotations

import math
import re
from typing import Any, Final

import msgspec

from clusters.base.errors import KnodelError
from serving.engines.base.errors import UnknownFormat
from serving.engines.base.registry import find_format
from serving.storage.base import digest as digests
from serving.storage.base.errors import StorageError
from serving.storage.transfer.addresses import shown

_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_SHOWN: Final = 80  # characters of a wrong value that an error repeats
LARGEST: Final = 1_000_000  # of each bound; what is more is a mistake
BATCH_LATENCY: Final = 0.002  # s; of a batcher that was told its size only: callers on a network ask again sooner
LONGEST_URI: Final = 8192  # characters; of an object store's signed URL some 2 000


class BadAssignment(KnodelError):
    """What a server is told to serve makes no sense."""


class Batching(msgspec.Struct, frozen=True):
    """Requests share inferences of at most `max_size` rows.

    A free engine waits at most `max_latency` seconds, and only for callers that were just answered: see `batcher`.
    """

    max_size: int
    max_latency: float = BATCH_LATENCY


class Bounds(msgspec.Struct, frozen=True):
    """What a server grants a model: requests inside it at once, seconds that one may take, cores.

    With `batching` there are at least two batches of `slots`: one is in the engine, the next one gathers.
    """

    slots: int
    timeout: float
    cpu: float
    batching: Batching | None = None

    def __post_init__(self) -> None:
        if self.batching is not None:
            msgspec.structs.force_setattr(self, "slots", max(self.slots, 2 * self.batching.max_size))

    @property
    def threads(self) -> int:
        """Threads that one inference may use."""
        return max(1, math.floor(self.cpu))


class Assignment(msgspec.Struct, frozen=True):
    """A model; `revision` is what answers are labelled with, `format` "" is found from the files."""

    name: str
    revision: str
    storage_uri: str
    digest: str
    format: str
    bounds: Bounds


class _Parameters(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    storage_uri: str = ""
    revision: str = ""
    digest: str = ""
    model_format: str = ""
    slots: int | None = None
    timeout: float | None = None
    cpu: float | None = None
    max_batch_size: int | None = None
    max_batch_latency: float | None = None


class _Body(msgspec.Struct):
    parameters: _Parameters


class _Reload(msgspec.Struct):
    parameters: _Parameters = msgspec.field(default_factory=_Parameters)


class _Stored(msgspec.Struct):
    name: str
    parameters: _Parameters


def is_name(text: str) -> bool:
    """Whether a model or revision may be called so."""
    return _NAME.fullmatch(text) is not None


def assignment_of(name: str, body: bytes, default: Bounds) -> Assignment:
    """The assignment of a load call for the model `name`. Raises BadAssignment."""
    return _checked(name, _decoded(body, _Body).parameters, default)


def reassigned(known: Assignment, body: bytes) -> Assignment:
    """`known` as a load call wants it: a digest and a format belong to the URI that they came with.

    Raises BadAssignment.
    """
    given = _decoded(body or b"{}", _Reload).parameters
    if not given.storage_uri:
        given.storage_uri = known.storage_uri
        given.digest = given.digest or known.digest
        given.model_format = given.model_format or known.format
    given.revision = given.revision or known.revision
    return _checked(known.name, given, known.bounds)


def to_stored(assignment: Assignment) -> bytes:
    """As a file keeps it: with the name, and all bounds written out."""
    bounds = assignment.bounds
    batching = bounds.batching
    parameters = _Parameters(
        assignment.storage_uri, assignment.revision, assignment.digest, assignment.format,
        bounds.slots, bounds.timeout, bounds.cpu,
        1 if batching is None else batching.max_size, None if batching is None else batching.max_latency,
    )  # fmt: skip
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
    if not given.storage_uri or len(given.storage_uri) > LONGEST_URI:
        raise BadAssignment(f"storageUri of {name[:_SHOWN]!r} has 1 to {LONGEST_URI} characters")
    for field, text in (("name", name), ("revision", given.revision)):
        if not is_name(text):
            raise BadAssignment(f"{field} {text[:_SHOWN]!r}: at most 63 of a-z, 0-9 and '-', no '-' at the ends")
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
        _batching(given, default.batching),
    )
    return Assignment(name, given.revision, given.storage_uri, given.digest, given.model_format, bounds)


def _batching(given: _Parameters, default: Batching | None) -> Batching | None:
    """None for batches of one, too."""
    size = given.max_batch_size or (default.max_size if default else 1)
    latency = given.max_batch_latency
    if latency is None:
        latency = default.max_latency if default else BATCH_LATENCY
    if latency:  # 0: a free engine never waits
        _positive("maxBatchLatency", latency)
    return Batching(int(size), latency) if _positive("maxBatchSize", size) > 1 else None


def _positive(field: str, value: float) -> float:
    if not 0 < value <= LARGEST:  # NaN neither
        raise BadAssignment(f"{field} {value!r}: more than 0, at most {LARGEST}")
    return value
