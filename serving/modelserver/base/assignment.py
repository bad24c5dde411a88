"""The model that a server serves, and its limits, from the command line or from a later load call. Pure.

Load calls, and the file that survives a restart of the container, have the same JSON:

    {"parameters": {"storageUri", "revision", "digest"?, "modelFormat"?, "slots"?, "timeout"?, "cpu"?,
                    "maxBatchSize"?, "maxBatchLatency"?, "llm"?}}

Numbers may be strings, as in KServe's repository extension. `llm` has the form of a Model's `spec.llm`. A parameter
that is missing, "" or 0 defaults to the server's own option. In a server of many models all parameters of a known model
are optional.
"""

from __future__ import annotations

import math
import re
from typing import Any, Final

import msgspec

from clusters.base.errors import KnodelError
from clusters.base.redact import redact_url
from serving.engines.base.errors import UnknownFormat
from serving.engines.base.llm_arguments import BadLlmOptions
from serving.engines.base.registry import find_format
from serving.modelserver.base.llm import MAX_URI_LENGTH, NO_LLM, LlmParameters
from serving.modelserver.base.ray import NO_RAY, BadRayOptions, RayParameters
from serving.storage.base import digest as digests
from serving.storage.base.errors import StorageError

_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_MAX_QUOTED: Final = 80  # characters of an invalid value that a message repeats
MAX_LIMIT: Final = 1_000_000  # the maximum of each limit; a larger value is a mistake
DEFAULT_BATCH_LATENCY: Final = 0.002  # s; callers on a network send their next request sooner


class BadAssignment(KnodelError):
    """Raised when a load call or a stored assignment is invalid."""


class BatchBounds(msgspec.Struct, frozen=True):
    """Limits of batches: requests share inferences of at most `max_size` rows.

    An idle engine waits at most `max_latency` seconds for a batch to fill, and only for callers that have just received
    a response: see `execution.batcher`.
    """

    max_size: int
    max_latency: float = DEFAULT_BATCH_LATENCY


class ModelBounds(msgspec.Struct, frozen=True):
    """Limits of a model: concurrent requests (`slots`), seconds per request (`timeout`), cores (`cpu`).

    With `batching`, `slots` is raised to at least two full batches: one in the engine, and one that fills meanwhile.
    `default_slots`: whether nobody has set `slots`, so that an engine may choose how many requests it computes at once.
    """

    slots: int
    timeout: float
    cpu: float
    batching: BatchBounds | None = None
    default_slots: bool = False

    def __post_init__(self) -> None:
        if self.batching is not None:
            msgspec.structs.force_setattr(self, "slots", max(self.slots, 2 * self.batching.max_size))

    @property
    def threads(self) -> int:
        """Return the number of threads that one inference may use."""
        return max(1, math.floor(self.cpu))

    @property
    def engine_slots(self) -> int:
        """Return the maximum number of requests at once for an engine to prepare for; 0 leaves it to the engine."""
        return 0 if self.default_slots else self.slots


class Assignment(msgspec.Struct, frozen=True):
    """The model to serve. Responses are labelled with `revision`; a `format` of "" is detected from the files.

    `llm` are the options of a language model, `ray` those of a Ray Serve application.
    """

    name: str
    revision: str
    storage_uri: str
    digest: str
    format: str
    bounds: ModelBounds
    llm: LlmParameters = NO_LLM
    ray: RayParameters = NO_RAY


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
    llm: LlmParameters | None = None
    ray: RayParameters | None = None


class _Body(msgspec.Struct):
    parameters: _Parameters


class _Reload(msgspec.Struct):
    parameters: _Parameters = msgspec.field(default_factory=_Parameters)


class _Stored(msgspec.Struct):
    name: str
    parameters: _Parameters


def is_name(text: str) -> bool:
    """Return whether `text` is a valid name of a model or revision."""
    return _NAME.fullmatch(text) is not None


def parse_assignment(name: str, body: bytes, default: ModelBounds) -> Assignment:
    """Return the assignment in the `body` of a load call for the model `name`. Raises BadAssignment."""
    return _checked(name, _decoded(body, _Body).parameters, default)


def update_assignment(known: Assignment, body: bytes) -> Assignment:
    """Return the assignment `known` with the parameters that the `body` of a load call overrides.

    Digest, format, `llm` and `ray` belong to a storage URI: a call with another URI does not inherit them. Raises
    BadAssignment.
    """
    given = _decoded(body or b"{}", _Reload).parameters
    if not given.storage_uri:
        given.storage_uri = known.storage_uri
        given.digest = given.digest or known.digest
        given.model_format = given.model_format or known.format
        given.llm = given.llm or known.llm
        given.ray = given.ray or known.ray
    given.revision = given.revision or known.revision
    return _checked(known.name, given, known.bounds)


def to_stored(assignment: Assignment) -> bytes:
    """Return the JSON for a file, with the name and all limits."""
    bounds = assignment.bounds
    batching = bounds.batching
    parameters = _Parameters(
        assignment.storage_uri, assignment.revision, assignment.digest, assignment.format,
        None if bounds.default_slots else bounds.slots, bounds.timeout, bounds.cpu,
        1 if batching is None else batching.max_size, None if batching is None else batching.max_latency,
        None if assignment.llm == NO_LLM else assignment.llm,
        None if assignment.ray == NO_RAY else assignment.ray,
    )  # fmt: skip
    return msgspec.json.encode(_Stored(assignment.name, parameters))


def from_stored(content: bytes, default: ModelBounds) -> Assignment:
    """Return the assignment in `content`, which `to_stored` made. Raises BadAssignment."""
    stored = _decoded(content, _Stored)
    return _checked(stored.name, stored.parameters, default)


def _decoded(body: bytes, kind: Any) -> Any:
    try:
        return msgspec.json.decode(body, type=kind, strict=False)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadAssignment(f"the body is not {{'parameters': {{'storageUri', 'revision', …}}}}: {error}") from error


def _checked(name: str, given: _Parameters, default: ModelBounds) -> Assignment:
    if not given.storage_uri or len(given.storage_uri) > MAX_URI_LENGTH:
        raise BadAssignment(f"storageUri of {name[:_MAX_QUOTED]!r} must have 1 to {MAX_URI_LENGTH} characters")
    for field, text in (("name", name), ("revision", given.revision)):
        if not is_name(text):
            raise BadAssignment(
                f"{field} {text[:_MAX_QUOTED]!r} is not a name: use at most 63 of a-z, 0-9 and '-', no '-' at the ends"
            )
    try:
        digests.check_form(redact_url(given.storage_uri), given.digest)
        if given.model_format:
            find_format(given.model_format, ())
        llm = given.llm or NO_LLM
        llm.check()
        ray = given.ray or NO_RAY
        ray.check()
    except (StorageError, UnknownFormat, BadLlmOptions, BadRayOptions) as error:
        raise BadAssignment(str(error)) from error
    batching = default.batching
    size = given.max_batch_size or (batching.max_size if batching else 1)
    latency = given.max_batch_latency
    if latency is None:
        latency = batching.max_latency if batching else DEFAULT_BATCH_LATENCY
    if latency:  # 0 is valid: an idle engine never waits
        _positive("maxBatchLatency", latency)
    bounds = ModelBounds(
        int(_positive("slots", given.slots or default.slots)),
        _positive("timeout", given.timeout or default.timeout),
        _positive("cpu", given.cpu or default.cpu),
        BatchBounds(int(size), latency) if _positive("maxBatchSize", size) > 1 else None,
        default_slots=not given.slots and default.default_slots,
    )
    return Assignment(name, given.revision, given.storage_uri, given.digest, given.model_format, bounds, llm, ray)


def _positive(field: str, value: float) -> float:
    if not 0 < value <= MAX_LIMIT:  # refuses NaN, too
        raise BadAssignment(f"{field} {value!r} must be more than 0 and at most {MAX_LIMIT}")
    return value
