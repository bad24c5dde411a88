"""Codec of the generate extension: inputs and outputs as plain JSON properties. Pure.

Sources: Triton's `protocol/extension_generate.md`, and `generate_rest.yaml` of the Open Inference Protocol.

- A property of the request, or of its `parameters`, with the name of an input is that input. A single value is a tensor
  of one element.
- All other properties are parameters ("additional properties … are passed either as parameters or tensors").
- A list or an object outside of `parameters` is always an input.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from serving.engines.base.datatypes import Tensor
from serving.modelserver.base.errors import InvalidRequest
from serving.modelserver.base.json_names import check_names
from serving.modelserver.codec.json_values import from_nested, to_nested
from serving.modelserver.codec.messages import check_elements, explain_decode_error
from serving.modelserver.codec.protocol_v2 import PreparedRequest, ResponseBody, V2Codec, check_extensions

PARAMETERS: Final = "parameters"
_DECODER: Final = msgspec.json.Decoder(dict[str, Any])
_ENCODE: Final = msgspec.json.Encoder().encode


class GenerateCodec:
    """Codec of the generate extension for the model of the v2 `codec`."""

    __slots__ = ("_codec",)

    def __init__(self, codec: V2Codec) -> None:
        self._codec = codec

    def decode(self, body: bytes, json_length: int | None = None) -> PreparedRequest:
        """Return the decoded request. Raises InvalidRequest, ContentTooLarge."""
        if json_length is not None:
            raise InvalidRequest("a generate request must be JSON: send binary data to /v2/…/infer")
        check_elements(body, self._codec.limits.json_numbers)
        try:
            request = _DECODER.decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise InvalidRequest(f"the body is not a JSON object: {explain_decode_error(error)}") from error
        values, parameters = self._separate(body, request)
        check_extensions(parameters)
        specs = {name: self._codec.spec(name)[0] for name in values}
        inputs = {name: from_nested(specs[name], value, len(specs[name].shape or ())) for name, value in values.items()}
        self._codec.check_complete(inputs)
        outputs = self._codec.outputs
        return PreparedRequest(inputs, outputs, [False] * len(outputs), "", parameters or None)

    def encode(self, request: PreparedRequest, results: Sequence[Tensor]) -> ResponseBody:
        """Return the response, or one part of a stream. Raises ModelFailed."""
        named = zip(request.outputs, results, strict=True)
        values = {name: to_nested(name, tensor.reshape(()) if tensor.size == 1 else tensor) for name, tensor in named}
        return ResponseBody(_ENCODE({"model_name": self._codec.name, "model_version": self._codec.version, **values}))

    def _separate(self, body: bytes, request: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the values of inputs, and the parameters."""
        specs = self._codec.specs
        inner = None if PARAMETERS in specs else request.get(PARAMETERS)
        inner = {} if inner is None else inner
        if not isinstance(inner, dict):
            raise InvalidRequest(f"{PARAMETERS!r} is not an object")
        check_names(body, len(request) + len(inner))
        outer = {name: value for name, value in request.items() if name in specs or name != PARAMETERS}
        if inner.keys() & outer.keys():
            raise InvalidRequest(f"a name is present both at the top level and in {PARAMETERS!r}")
        values = {name: value for name, value in outer.items() if name in specs or isinstance(value, list | dict)}
        values |= {name: value for name, value in inner.items() if name in specs}
        return values, {name: value for name, value in (outer | inner).items() if name not in values}
