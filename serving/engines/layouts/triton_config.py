"""Read `config.pbtxt`, the description of a model in a repository of NVIDIA Triton. Pure.

Source of the fields: `model_config.proto` of github.com/triton-inference-server/common. Each of its fields is read,
ignored because it has no meaning here, or refused because the model would answer differently without it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final, TypeVar

import msgspec

from serving.engines.base.datatypes import BF16, BYTES, DATATYPES
from serving.engines.base.engine import ANY
from serving.engines.layouts.layout import BatchHint
from serving.engines.layouts.text_format import BadText, Bare, Message, Value, parse

FILE: Final = "config.pbtxt"
LARGEST: Final = 1 << 20  # bytes
_LARGEST_NUMBER: Final = (1 << 63) - 1
_MOST_DIMS: Final = 32  # of NumPy 1; ours are arrays
_LONGEST_DELAY: Final = 1.0  # s, as in a Model's `batching.maxLatency`

READ: Final = frozenset(
    {
        "name", "platform", "backend", "version_policy", "max_batch_size", "input", "output", "dynamic_batching",
        "default_model_filename", "parameters",
    }
)  # fmt: skip
IGNORED: Final[Mapping[str, str]] = {
    "runtime": "the backend's library is that of this server",
    "optimization": "this server has its own optimizations",
    "instance_group": "the number of replicas is the platform's: spec.minReplicas and spec.maxReplicas of the Model",
    "cc_model_filenames": "it selects files for GPUs",
    "metric_tags": "metrics have the labels of the platform",
    "model_metrics": "metrics are those of the platform",
    "model_warmup": "a file example.json beside config.pbtxt is the warm-up",
    "response_cache": "responses are not cached",
}
REFUSED: Final[Mapping[str, str]] = {
    "batch_input": "the server would have to add inputs to batches",
    "batch_output": "the server would have to split outputs by other rules",
    "sequence_batching": "requests of a sequence cannot be kept on one replica with state",
    "ensemble_scheduling": "serve each of its models, and call them in turn from a Model of format python",
    "model_operations": "it loads libraries of custom operators",
    "model_transaction_policy": "a decoupled model answers a request many times",
    "model_repository_agents": "an agent changes the files of the model",
}
_DATATYPES: Final = {f"TYPE_{name}": name for name in DATATYPES if name not in (BYTES, BF16)} | {
    "TYPE_STRING": BYTES, "TYPE_BF16": BF16,
}  # fmt: skip

T = TypeVar("T")


class TensorConfig(msgspec.Struct, frozen=True):
    """An input or output: `dims` without the batch, -1 where they vary; `reshape` are the model's own, None: equal."""

    name: str
    datatype: str
    dims: tuple[int, ...]
    reshape: tuple[int, ...] | None = None


class VersionPolicy(msgspec.Struct, frozen=True):
    """Which versions may be served: those in `specific`, or all of them if that is empty."""

    specific: tuple[int, ...] = ()


class TritonConfig(msgspec.Struct, frozen=True):
    """The content of `config.pbtxt`. Empty texts and lists are absent; `ignored` are the fields without a meaning here.

    `dynamic_batching` is None when it is absent, and then requests are not batched.
    """

    platform: str
    backend: str
    versions: VersionPolicy
    max_batch_size: int
    inputs: tuple[TensorConfig, ...]
    outputs: tuple[TensorConfig, ...]
    dynamic_batching: BatchHint | None
    filename: str
    parameters: Mapping[str, str]
    ignored: tuple[str, ...]


def read_config(content: bytes) -> TritonConfig:
    """Return the content of a `config.pbtxt`. Raises BadText."""
    if len(content) > LARGEST:
        raise BadText(f"has more than {LARGEST >> 20} MiB")
    try:
        message = parse(content.decode())
    except UnicodeDecodeError:
        raise BadText("is not UTF-8") from None
    for name in message:
        if name in REFUSED and _means_something(name, message):
            raise BadText(f"{name} is not supported ({REFUSED[name]})")
        if name not in READ and name not in IGNORED and name not in REFUSED:
            raise BadText(f"unknown field {name[:40]!r}")
    size = _integer(message, "max_batch_size", 0, 1 << 31)
    return TritonConfig(
        platform=_text(message, "platform"),
        backend=_text(message, "backend"),
        versions=_version_policy(_message(message, "version_policy")),
        max_batch_size=size,
        inputs=_tensors(message, "input"),
        outputs=_tensors(message, "output"),
        dynamic_batching=_batching(_message(message, "dynamic_batching"), size),
        filename=_filename(_text(message, "default_model_filename")),
        parameters={
            _text(one, "key"): _text(_message(one, "value") or {}, "string_value")
            for one in _messages(message, "parameters")
        },
        ignored=tuple(name for name in message if name in IGNORED),
    )


def _means_something(name: str, message: Message) -> bool:
    """Return whether a refused field changes the model: `decoupled: false` does not."""
    return name != "model_transaction_policy" or any(_flag(one, "decoupled") for one in _messages(message, name))


def _version_policy(policy: Message | None) -> VersionPolicy:
    """Return the versions that may be served. Of `latest` and `all` we serve the newest, as of `specific`."""
    if policy is None:
        return VersionPolicy()
    if len(policy) != 1 or not policy.keys() <= {"latest", "all", "specific"}:
        raise BadText(f"version_policy must be one of latest, all, specific, not {', '.join(policy) or 'empty'}")
    specific = _message(policy, "specific")
    if specific is None:
        return VersionPolicy()
    versions = _integers(specific, "versions", 1, _LARGEST_NUMBER)
    if not versions:
        raise BadText("version_policy.specific has no versions")
    return VersionPolicy(versions)


def _tensors(message: Message, kind: str) -> tuple[TensorConfig, ...]:
    made = tuple(_tensor(one, kind) for one in _messages(message, kind))
    counts = Counter(one.name for one in made)
    if twice := next((name for name in counts if counts[name] > 1), ""):
        raise BadText(f"{kind} {twice[:40]!r} is described twice")
    return made


def _tensor(message: Message, kind: str) -> TensorConfig:
    name, datatype = _text(message, "name"), _bare(message, "data_type")
    if not name:
        raise BadText(f"an {kind} has no name")
    if datatype not in _DATATYPES:
        raise BadText(f"{kind} {name[:40]!r}: data_type {datatype[:40]!r} is not one of {', '.join(_DATATYPES)}")
    for field in ("optional", "is_shape_tensor"):
        if _flag(message, field):
            raise BadText(f"{kind} {name[:40]!r}: {field} is not supported")
    reshape = _message(message, "reshape")
    return TensorConfig(
        name, _DATATYPES[datatype], _dims(message, "dims"), None if reshape is None else _dims(reshape, "shape")
    )


def _dims(message: Message, field: str) -> tuple[int, ...]:
    dims = _integers(message, field, ANY, _LARGEST_NUMBER)
    if len(dims) > _MOST_DIMS or 0 in dims:
        raise BadText(f"{field} must be at most {_MOST_DIMS} sizes above 0, or -1 for any size")
    return dims


def _batching(message: Message | None, most: int) -> BatchHint | None:
    """Return the batches of `dynamic_batching`: of the largest preferred size, else of `max_batch_size`.

    A model without a batch dimension (`most` is 0) is not batched.
    """
    if message is None or not most:
        return None
    preferred = _integers(message, "preferred_batch_size", 1, most)
    size = max(preferred, default=most)
    delay = _integer(message, "max_queue_delay_microseconds", 0, _LARGEST_NUMBER) / 1e6
    return BatchHint(size, min(delay, _LONGEST_DELAY)) if size > 1 else None


def _filename(name: str) -> str:
    if "/" in name or "\\" in name or name in (".", ".."):
        raise BadText(f"default_model_filename {name[:80]!r} must be a name in the folder of the version")
    return name


def _only(message: Message, field: str) -> Value | None:
    """Return the value of a field that is not repeated: the last one, as the format has it."""
    values = message.get(field)
    return values[-1] if values else None


def _message(message: Message, field: str) -> Message | None:
    found = _only(message, field)
    if found is not None and not isinstance(found, dict):
        raise BadText(f"{field} must be a message in {{…}}")
    return found


def _messages(message: Message, field: str) -> Sequence[Message]:
    found = [one for one in message.get(field, ()) if isinstance(one, dict)]
    if len(found) != len(message.get(field, ())):
        raise BadText(f"{field} must be a message in {{…}}")
    return found


def _text(message: Message, field: str) -> str:
    found = _only(message, field)
    if found is None:
        return ""
    if not isinstance(found, str) or isinstance(found, Bare):
        raise BadText(f"{field} must be a text in quotes")
    return found


def _bare(message: Message, field: str) -> str:
    found = _only(message, field)
    return found if isinstance(found, Bare) else ""


def _flag(message: Message, field: str) -> bool:
    return _bare(message, field) in ("true", "True", "t", "1")


def _integer(message: Message, field: str, least: int, most: int) -> int:
    found = _only(message, field)
    return 0 if found is None else _number(found, field, least, most)


def _integers(message: Message, field: str, least: int, most: int) -> tuple[int, ...]:
    return tuple(_number(one, field, least, most) for one in message.get(field, ()))


def _number(value: Value, field: str, least: int, most: int) -> int:
    try:
        if not isinstance(value, Bare) or len(value) > 40:
            raise ValueError
        octal = value.lstrip("-").startswith("0") and value.lstrip("-").isdigit()
        number = int(value, 8 if octal else 0)
    except ValueError:
        raise BadText(f"{field} must be a whole number") from None
    if not least <= number <= most:
        raise BadText(f"{field} must be {least} to {most}, not {number}")
    return number
