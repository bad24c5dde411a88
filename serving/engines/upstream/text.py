"""The tensors of a language model, and the completions that its engine is asked for. Pure.

The names are those of Triton's and KServe's generate extension: `text_input` in, `text_output` out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np

from serving.engines.base.datatypes import Tensor
from serving.engines.base.engine import Signature, TensorSpec
from serving.engines.base.errors import InferenceFailed, InputRefused
from serving.engines.upstream.usage import TokenUsage, usage_of

TEXT: Final = "text_input"
OUTPUT: Final = "text_output"
MAX_TOKENS: Final = 256  # tokens of an answer for which the caller sets no number
BAD_REQUEST, SERVER_ERROR = 400, 500
_SPECS: Final = (
    TensorSpec(TEXT, "BYTES", (1,)),
    TensorSpec("max_tokens", "INT64", (1,)),
    TensorSpec("temperature", "FP64", (1,)),
    TensorSpec("top_p", "FP64", (1,)),
    TensorSpec("seed", "INT64", (1,)),
    TensorSpec("stop", "BYTES", (-1,)),
)


class _Choice(msgspec.Struct):
    text: str = ""


class _Completion(msgspec.Struct):
    choices: list[_Choice] = []
    usage: Any = None
    timings: Any = None


_DECODER: Final = msgspec.json.Decoder(_Completion)


class Completion(NamedTuple):
    """The text of a completion or of a part of it, and its tokens, None if the engine does not tell them."""

    text: str
    usage: TokenUsage | None


def text_signature(platform: str) -> Signature:
    """Return the signature of a language model."""
    optional = frozenset(spec.name for spec in _SPECS if spec.name != TEXT)
    return Signature(platform, _SPECS, (TensorSpec(OUTPUT, "BYTES", (1,)),), optional_inputs=optional)


def completion_request(model: str, inputs: Mapping[str, Tensor], *, stream: bool) -> dict[str, Any]:
    """Return the body of a request to `/v1/completions`. Raises InputRefused."""
    body: dict[str, Any] = {"model": model, "max_tokens": MAX_TOKENS, "stream": stream}
    if stream:
        body["stream_options"] = {"include_usage": True}
    for name, tensor in inputs.items():
        if name == "stop":
            body[name] = [_text(value) for value in tensor.reshape(-1)]
        elif tensor.size != 1:
            raise InputRefused(f"{name} has {tensor.size} elements: send one")
        elif name == TEXT:
            body["prompt"] = _text(tensor.reshape(-1)[0])
        else:
            body[name] = tensor.reshape(-1)[0].item()
    return body


def read_completion(answer: bytes) -> Completion:
    """Return a completion, or one event of a streamed one. Raises InferenceFailed."""
    try:
        found = _DECODER.decode(answer)
    except msgspec.MsgspecError as error:
        raise InferenceFailed(f"the engine sent an unexpected answer: {error}") from error
    usage = usage_of({"usage": found.usage, "timings": found.timings})
    return Completion("".join(choice.text for choice in found.choices), usage)


def text_tensor(text: str) -> Tensor:
    """Return the output tensor with this text."""
    return np.array([text], dtype=object)


def _text(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
