"""Codec of the v1 protocol, which KServe and TensorFlow Serving share. Pure.

Sources: KServe, "V1 Protocol" (data plane); TensorFlow Serving, "RESTful API". The protocol has no datatypes: values
must have exactly the model's type, and their nesting is the shape. Where the two sources differ:

- `instances`, and `inputs` if it is a list, contain rows; the response has `predictions` (KServe).
- `inputs` as an object contains whole tensors by name; the response has `outputs` (TensorFlow Serving, column form).
- A row of a model with several inputs or outputs is an object. `{"b64": …}` contains bytes in base64.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from serving.engines.base.datatypes import BYTES, Tensor
from serving.modelserver.base.errors import InvalidRequest
from serving.modelserver.base.json_names import check_names
from serving.modelserver.codec.json_values import BASE64, from_nested, to_nested
from serving.modelserver.codec.messages import check_elements, explain_decode_error
from serving.modelserver.codec.protocol_v2 import PreparedRequest, ResponseBody, V2Codec

SIGNATURE: Final = "serving_default"
"""TensorFlow Serving's name of the default signature."""
_MAX_QUOTED: Final = 100  # characters of a name that a message repeats
_ENCODE: Final = msgspec.json.Encoder().encode


class _Request(msgspec.Struct):
    instances: list[Any] | None = None
    inputs: list[Any] | dict[str, Any] | None = None
    signature_name: str = ""

    @property
    def members(self) -> int:
        """Return the number of members of the request and of its rows."""
        given = self.inputs if self.instances is None else self.instances
        objects = [given] if isinstance(given, dict) else given or []
        inner = sum(len(one) for one in objects if isinstance(one, dict))
        return (self.instances is not None) + (self.inputs is not None) + bool(self.signature_name) + inner


_DECODER: Final = msgspec.json.Decoder(_Request)


class TabularRequest(PreparedRequest, frozen=True):
    """A decoded request; `rows` is its number of instances, None in column form."""

    rows: int | None = None


class V1Codec:
    """Codec of the v1 protocol for the model of the v2 `codec`."""

    __slots__ = ("_codec",)

    def __init__(self, codec: V2Codec) -> None:
        self._codec = codec

    def decode(self, body: bytes, json_length: int | None = None) -> TabularRequest:
        """Return the decoded request. Raises InvalidRequest, ContentTooLarge."""
        if json_length is not None:
            raise InvalidRequest("a v1 request must be JSON: send binary data to /v2")
        check_elements(body, self._codec.limits.json_numbers)
        try:
            request = _DECODER.decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise InvalidRequest(f"the body is not a v1 request: {explain_decode_error(error)}") from error
        check_names(body, request.members)
        if request.signature_name not in ("", SIGNATURE):
            raise InvalidRequest(
                f"the model has no signature {request.signature_name[:_MAX_QUOTED]!r}: omit signature_name"
            )
        if (request.instances is None) == (request.inputs is None):
            raise InvalidRequest("a request must have either instances or inputs")
        given = request.inputs if request.instances is None else request.instances
        if isinstance(given, dict):
            return self._prepare(self._tensors(given), None)
        return self._prepare(self._of_rows(given or []), len(given or []))

    def encode(self, request: TabularRequest, results: Sequence[Tensor]) -> ResponseBody:
        """Return the response. Raises InvalidRequest, ModelFailed."""
        values = {name: to_nested(name, tensor) for name, tensor in zip(request.outputs, results, strict=True)}
        single = next(iter(values.values())) if len(values) == 1 else None
        if request.rows is None:
            return ResponseBody(_ENCODE({"outputs": values if single is None else single}))
        if single is None:
            for name, tensor in zip(request.outputs, results, strict=True):
                if not tensor.ndim or len(tensor) != request.rows:
                    raise InvalidRequest(
                        f"output {name!r} does not have one row per instance: send inputs as an object, or use /v2"
                    )
            single = [dict(zip(values, row, strict=True)) for row in zip(*values.values(), strict=True)]
        return ResponseBody(_ENCODE({"predictions": single}))

    def _prepare(self, inputs: Mapping[str, Tensor], rows: int | None) -> TabularRequest:
        outputs = self._codec.outputs
        return TabularRequest(inputs, outputs, [False] * len(outputs), "", rows=rows)

    def _of_rows(self, rows: list[Any]) -> dict[str, Tensor]:
        specs = self._codec.specs
        required = [spec for name, (spec, _) in specs.items() if not self._codec.is_optional(name)]
        only = required[0] if len(required) == 1 else None
        if only is not None:
            first = rows[0] if rows else None
            # {"b64": …} is a value of a BYTES input, and any other object has inputs by name
            is_bytes = only.datatype == BYTES and only.name != BASE64
            if not isinstance(first, dict) or (is_bytes and first.keys() == {BASE64}):
                return {only.name: from_nested(only, rows)}
        if not rows or not all(isinstance(row, dict) and row.keys() == rows[0].keys() for row in rows):
            raise InvalidRequest(f"each instance must be an object with {', '.join(map(repr, specs))}")
        return self._tensors({name: [row[name] for row in rows] for name in rows[0]})

    def _tensors(self, values: dict[str, Any]) -> dict[str, Tensor]:
        inputs = {name: from_nested(self._codec.spec(name)[0], value) for name, value in values.items()}
        self._codec.check_complete(inputs)
        return inputs
