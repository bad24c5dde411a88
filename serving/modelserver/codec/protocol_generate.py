"""The generate extension: inputs by name, as a person would write them, and outputs likewise. Pure.

Sources: Triton's `protocol/extension_generate.md`, and `generate_rest.yaml` of the Open Inference Protocol. A property
of the request, or of its `parameters`, is the input of that name; a lone value is a tensor of one element. Properties
that name no input are parameters, wherever they stand ("additional properties … are passed either as parameters or
tensors"): they are for models that have them. What is no lone value, and not in `parameters`, can only be an input.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from serving.engines.base.datatypes import Tensor
from serving.modelserver.base.errors import BadRequest
from serving.modelserver.base.json_names import check_names
from serving.modelserver.codec.json_values import from_nested, to_nested
from serving.modelserver.codec.messages import check_elements, explain_decode_error
from serving.modelserver.codec.protocol_v2 import PreparedRequest, ResponseBody, V2Codec, check_extensions

PARAMETERS: Final = "parameters"
_DECODER: Final = msgspec.json.Decoder(dict[str, Any])
_ENCODE: Final = msgspec.json.Encoder().encode


class GenerateCodec:
    """Messages of the model whose v2 messages are `codec`."""

    __slots__ = ("_codec",)

    def __init__(self, codec: V2Codec) -> None:
        self._codec = codec

    def decode(self, body: bytes, json_length: int | None = None) -> PreparedRequest:
        """A request. Raises BadRequest, TooLarge."""
        if json_length is not None:
            raise BadRequest("binary data is for /v2/…/infer: a generate request is JSON")
        values, parameters = self._sorted(body, self._parse(body))
        check_extensions(parameters)
        specs = {name: self._codec.spec(name)[0] for name in values}
        inputs = {name: from_nested(specs[name], value, len(specs[name].shape or ())) for name, value in values.items()}
        self._codec.check_complete(inputs)
        outputs = self._codec.outputs
        return PreparedRequest(inputs, outputs, [False] * len(outputs), "", parameters or None)

    def encode(self, call: PreparedRequest, answers: Sequence[Tensor]) -> ResponseBody:
        """The answer, or a part of it. Raises ModelFailed."""
        named = zip(call.outputs, answers, strict=True)
        values = {name: to_nested(name, tensor.reshape(()) if tensor.size == 1 else tensor) for name, tensor in named}
        return ResponseBody(_ENCODE({"model_name": self._codec.name, "model_version": self._codec.version, **values}))

    def _parse(self, body: bytes) -> dict[str, Any]:
        check_elements(body, self._codec.limits.json_numbers)
        try:
            return _DECODER.decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise BadRequest(f"the body is no JSON object: {explain_decode_error(error)}") from error

    def _sorted(self, body: bytes, request: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        """What is given for inputs, and the parameters."""
        specs = self._codec.specs
        inner = None if PARAMETERS in specs else request.get(PARAMETERS)
        inner = {} if inner is None else inner
        if not isinstance(inner, dict):
            raise BadRequest(f"{PARAMETERS!r} is an object")
        check_names(body, len(request) + len(inner))
        outer = {name: value for name, value in request.items() if name in specs or name != PARAMETERS}
        if inner.keys() & outer.keys():
            raise BadRequest(f"a name is given twice, alone and in {PARAMETERS!r}")
        values = {name: value for name, value in outer.items() if name in specs or isinstance(value, list | dict)}
        values |= {name: value for name, value in inner.items() if name in specs}
        return values, {name: value for name, value in (outer | inner).items() if name not in values}
