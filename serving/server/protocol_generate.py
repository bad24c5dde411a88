"""The generate extension: inputs by name, as a person would write them, and outputs likewise. Pure.

Sources: Triton's `protocol/extension_generate.md`, and `generate_rest.yaml` of the Open Inference Protocol. A property
of the request, or of its `parameters`, is the input of that name; a lone value is a tensor of one element. Properties
that name no input are refused; `parameters` that name none are for models that have them, and left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from serving.engines.datatypes import Tensor
from serving.server.errors import BadRequest
from serving.server.json_values import from_nested, to_nested
from serving.server.messages import check_elements, reason_of
from serving.server.protocol_v2 import Call, Codec, Reply

PARAMETERS: Final = "parameters"
_DECODER: Final = msgspec.json.Decoder(dict[str, Any])
_ENCODE: Final = msgspec.json.Encoder().encode


class ProtocolGenerate:
    """Messages of the model whose v2 messages are `codec`."""

    __slots__ = ("_codec",)

    def __init__(self, codec: Codec) -> None:
        self._codec = codec

    def decode(self, body: bytes, json_length: int | None = None) -> Call:
        """A request. Raises BadRequest, TooLarge."""
        if json_length is not None:
            raise BadRequest("binary data is for /v2/…/infer: a generate request is JSON")
        given = self._values(self._parse(body)).items()
        specs = {name: self._codec.spec(name)[0] for name, _ in given}
        inputs = {name: from_nested(specs[name], value, len(specs[name].shape or ())) for name, value in given}
        self._codec.check_complete(inputs)
        outputs = self._codec.outputs
        return Call(inputs, outputs, [False] * len(outputs), "")

    def encode(self, call: Call, answers: Sequence[Tensor]) -> Reply:
        """The answer, or a part of it. Raises ModelFailed."""
        named = zip(call.outputs, answers, strict=True)
        values = {name: to_nested(name, tensor.reshape(()) if tensor.size == 1 else tensor) for name, tensor in named}
        return Reply(_ENCODE({"model_name": self._codec.name, "model_version": self._codec.version, **values}))

    def _parse(self, body: bytes) -> dict[str, Any]:
        check_elements(body, self._codec.limits.json_numbers)
        try:
            return _DECODER.decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise BadRequest(f"the body is no JSON object: {reason_of(error)}") from error

    def _values(self, request: dict[str, Any]) -> dict[str, Any]:
        specs = self._codec.specs
        parameters = None if PARAMETERS in specs else request.pop(PARAMETERS, None)
        if parameters is None:
            return request
        if not isinstance(parameters, dict):
            raise BadRequest(f"{PARAMETERS!r} is an object")
        if parameters.keys() & request.keys():
            raise BadRequest(f"an input is given twice, alone and in {PARAMETERS!r}")
        return request | {name: value for name, value in parameters.items() if name in specs}
