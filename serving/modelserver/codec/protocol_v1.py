"""The v1 protocol, which KServe and TensorFlow Serving share: messages in, arrays; arrays, messages out. Pure.

Sources: KServe, "V1 Protocol" (data plane); TensorFlow Serving, "RESTful API". It names no datatypes: values are what
the model takes, exactly, with the shape that their nesting has. Readings where the two differ:

- `instances`, and `inputs` when it is a list, are rows, answered by `predictions` (KServe);
- `inputs` as an object has a whole tensor by name, answered by `outputs` (TensorFlow Serving's column form);
- of a model with several inputs or outputs a row is an object; `{"b64": …}` stands for bytes that are no text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from serving.engines.base.datatypes import BYTES, Tensor
from serving.engines.base.engine import TensorSpec
from serving.modelserver.base.errors import BadRequest
from serving.modelserver.base.json_names import check_names
from serving.modelserver.codec.json_values import BASE64, from_nested, to_nested
from serving.modelserver.codec.messages import check_elements, explain_decode_error
from serving.modelserver.codec.protocol_v2 import PreparedRequest, ResponseBody, V2Codec

SIGNATURE: Final = "serving_default"
"""TensorFlow Serving's name of the signature that is meant when none is named."""
_SHOWN: Final = 100  # characters of a caller's name that an error repeats
_ENCODE: Final = msgspec.json.Encoder().encode


class _Request(msgspec.Struct):
    instances: list[Any] | None = None
    inputs: list[Any] | dict[str, Any] | None = None
    signature_name: str = ""


_DECODER: Final = msgspec.json.Decoder(_Request)


class TabularRequest(PreparedRequest, frozen=True):
    """A decoded request: `rows` is how many instances it has, None in column form."""

    rows: int | None = None


class V1Codec:
    """Messages of the model whose v2 messages are `codec`."""

    __slots__ = ("_codec",)

    def __init__(self, codec: V2Codec) -> None:
        self._codec = codec

    def decode(self, body: bytes, json_length: int | None = None) -> TabularRequest:
        """A request. Raises BadRequest, TooLarge."""
        if json_length is not None:
            raise BadRequest("binary data is for /v2: a v1 request is JSON")
        request = self._parse(body)
        check_names(body, _members(request))
        if request.signature_name not in ("", SIGNATURE):
            raise BadRequest(
                f"the model has no signature {request.signature_name[:_SHOWN]!r}: leave signature_name out"
            )
        if (request.instances is None) == (request.inputs is None):
            raise BadRequest("a request has either instances or inputs")
        given = request.inputs if request.instances is None else request.instances
        if isinstance(given, dict):
            return self._call(self._tensors(given), None)
        return self._call(self._of_rows(given or []), len(given or []))

    def encode(self, call: TabularRequest, answers: Sequence[Tensor]) -> ResponseBody:
        """The answer. Raises BadRequest, ModelFailed."""
        values = {name: to_nested(name, tensor) for name, tensor in zip(call.outputs, answers, strict=True)}
        single = next(iter(values.values())) if len(values) == 1 else None
        if call.rows is None:
            return ResponseBody(_ENCODE({"outputs": values if single is None else single}))
        if single is None:
            _check_rows(call, answers)
            single = [dict(zip(values, row, strict=True)) for row in zip(*values.values(), strict=True)]
        return ResponseBody(_ENCODE({"predictions": single}))

    def _call(self, inputs: Mapping[str, Tensor], rows: int | None) -> TabularRequest:
        outputs = self._codec.outputs
        return TabularRequest(inputs, outputs, [False] * len(outputs), "", rows=rows)

    def _parse(self, body: bytes) -> _Request:
        check_elements(body, self._codec.limits.json_numbers)
        try:
            return _DECODER.decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise BadRequest(f"the body is no v1 request: {explain_decode_error(error)}") from error

    def _of_rows(self, rows: list[Any]) -> dict[str, Tensor]:
        specs = self._codec.specs
        only = next(iter(specs.values()))[0] if len(specs) == 1 else None
        if only is not None and not (rows and _is_named(rows[0], only)):
            return {only.name: from_nested(only, rows)}
        if not rows or not all(isinstance(row, dict) and row.keys() == rows[0].keys() for row in rows):
            raise BadRequest(f"each instance is an object with {', '.join(map(repr, specs))}")
        return self._tensors({name: [row[name] for row in rows] for name in rows[0]})

    def _tensors(self, values: dict[str, Any]) -> dict[str, Tensor]:
        inputs = {name: from_nested(self._codec.spec(name)[0], value) for name, value in values.items()}
        self._codec.check_complete(inputs)
        return inputs


def _members(request: _Request) -> int:
    """How many members its objects have, as far as is seen at once."""
    given = request.inputs if request.instances is None else request.instances
    objects = [given] if isinstance(given, dict) else given or []
    inner = sum(len(one) for one in objects if isinstance(one, dict))
    return (request.instances is not None) + (request.inputs is not None) + bool(request.signature_name) + inner


def _is_named(row: Any, spec: TensorSpec) -> bool:
    """Whether the row is an object of inputs, and not one that stands for bytes."""
    return isinstance(row, dict) and not (spec.datatype == BYTES and spec.name != BASE64 and row.keys() == {BASE64})


def _check_rows(call: TabularRequest, answers: Sequence[Tensor]) -> None:
    for name, tensor in zip(call.outputs, answers, strict=True):
        if not tensor.ndim or len(tensor) != call.rows:
            raise BadRequest(f"output {name!r} has no row for each instance: send inputs as an object, or ask over /v2")
