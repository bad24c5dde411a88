"""What the codecs of OpenAI's API share: decoding a body, checking its model, inputs of texts. Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Final

import msgspec
import numpy as np

from serving.engines.base.datatypes import BYTES, Tensor
from serving.engines.base.engine import TensorSpec
from serving.modelserver.base.errors import InvalidRequest, ResourceNotFound
from serving.modelserver.base.json_names import check_names
from serving.modelserver.codec.messages import check_elements, explain_decode_error
from serving.modelserver.codec.protocol_v2 import V2Codec
from serving.modelserver.openai.errors import InvalidParameter, ModelNotFound

TOKENS: Final = "tokens"
"""The output with the number of each row's tokens, for `usage`."""
_LONGEST: Final = 63  # characters of a name that a message repeats
_DECODER: Final = msgspec.json.Decoder(dict[str, Any])


def decode_object(body: bytes, codec: V2Codec, json_length: int | None, known: Collection[str]) -> dict[str, Any]:
    """Return the members of a request for the model of `codec`. Members with null count as absent.

    Raises InvalidRequest, ModelNotFound, ContentTooLarge.
    """
    if json_length is not None:
        raise InvalidRequest("a request of OpenAI's API must be JSON: send binary data to /v2")
    check_elements(body, codec.limits.json_numbers)
    try:
        request = _DECODER.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidRequest(f"the body is not a JSON object: {explain_decode_error(error)}") from error
    check_names(body, len(request))
    request = {name: value for name, value in request.items() if value is not None}
    for name in request:
        if name not in known:
            raise InvalidParameter(name[:_LONGEST], f"unknown parameter {name[:_LONGEST]!r}: use {', '.join(known)}")
    model = request.get("model", codec.name)
    if not isinstance(model, str):
        raise InvalidParameter("model", "model is not a string")
    if model != codec.name:
        raise ModelNotFound(f"the model {model[:_LONGEST]!r} is not served here: use {codec.name!r}")
    return request


def text_input(codec: V2Codec, purpose: str, other: str = "") -> str:
    """Return the name of the model's required input, a vector of texts, for a model that gets `other` too.

    Raises ResourceNotFound for a model with other inputs.
    """
    found = [spec for name, (spec, _) in codec.specs.items() if name != other and not codec.is_optional(name)]
    if len(found) != 1 or not _is_texts(found[0]) or (other and other not in codec.specs):
        raise ResourceNotFound(f"the model {codec.name!r} does not compute {purpose}: its inputs are not texts for it")
    return found[0].name


def outputs_of(codec: V2Codec, name: str, purpose: str) -> list[str]:
    """Return the outputs to ask for: `name`, and the number of tokens if the model counts them.

    Raises ResourceNotFound for a model without the output.
    """
    if codec.output_spec(name) is None:
        raise ResourceNotFound(f"the model {codec.name!r} does not compute {purpose}: it has no output {name!r}")
    return [name, TOKENS] if codec.output_spec(TOKENS) else [name]


def texts(values: Sequence[str]) -> Tensor:
    """Return a BYTES tensor."""
    made = np.empty(len(values), object)
    made[:] = values
    return made


def token_count(results: Sequence[Tensor]) -> int:
    """Return the number of tokens of all rows, 0 from a model that does not count them."""
    return int(results[1].sum()) if len(results) > 1 else 0


def _is_texts(spec: TensorSpec) -> bool:
    return spec.datatype == BYTES and spec.shape is not None and len(spec.shape) == 1
