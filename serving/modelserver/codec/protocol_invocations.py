"""Codec of MLflow's scoring protocol, the bodies of `/invocations`. Pure.

Sources: mlflow `pyfunc/scoring_server/__init__.py` and `utils/proto_json_utils.py` (3.17). A request has one of these:

- `dataframe_split` ({"columns": [...], "data": [[...]]}) or `dataframe_records` ([{...}]), or a body of CSV: columns
- `instances`: rows, each an object of columns if the model has several inputs
- `inputs`: whole tensors by name, or one tensor

Columns are matched to inputs by name; further columns are ignored. A model with one matrix gets its own columns by name
if its file has their names, else all in their order. `null` is NaN where the model expects floats, and in responses.
`params` are optional inputs; unknown ones are ignored, as in MLflow. Types must match the model's: 1.5 is not an INT64,
though 1.0 is.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Container, Mapping, Sequence
from typing import Any, Final

import msgspec
import numpy as np

from serving.engines.base.datatypes import BYTES, DATATYPES, Tensor
from serving.engines.base.engine import ANY, TensorSpec
from serving.modelserver.base.errors import ContentTooLarge, InvalidRequest
from serving.modelserver.base.json_names import check_names
from serving.modelserver.codec.json_values import from_nested, to_nested
from serving.modelserver.codec.messages import check_elements, explain_decode_error
from serving.modelserver.codec.protocol_v2 import PreparedRequest, ResponseBody, V2Codec

SPLIT, RECORDS, INSTANCES, INPUTS = "dataframe_split", "dataframe_records", "instances", "inputs"
FORMS: Final = (SPLIT, RECORDS, INSTANCES, INPUTS)
PARAMS: Final = "params"
_SPLIT_KEYS: Final = frozenset({"columns", "data", "index"})
_UNNAMED: Final = re.compile(r"output-\d+")
_NAN: Final = float("nan")
_MISSING: Final = frozenset({"", "NA", "N/A", "NaN", "nan", "null", "NULL", "None", "#N/A", "<NA>"})
"""Cells of CSV without a value; pandas reads a few more."""
_BOOLEANS: Final = {"true": True, "false": False}
_NUMBER: Final = re.compile(r"[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?|[-+]?inf", re.ASCII)
_INTEGER: Final = re.compile(r"[-+]?[0-9]{1,20}", re.ASCII)
_MATRIX: Final = 2
_HEADER_AND_ROW: Final = 2
_SHOWN: Final = 10  # names that a message lists
_LONGEST: Final = 100  # characters of a name that a message repeats
_DECODER: Final = msgspec.json.Decoder(dict[str, Any])
_ENCODE: Final = msgspec.json.Encoder().encode
Columns = Sequence[str] | None
Rows = Sequence[Sequence[Any]]


class InvocationsRequest(PreparedRequest, frozen=True):
    """A decoded request; `frame` is whether the model gets a data frame, so that the response has records."""

    frame: bool = False


class InvocationsCodec:
    """Codec of `/invocations` for the model of the v2 `codec`; with `is_csv` a body is CSV with a header."""

    __slots__ = ("_codec", "_is_csv")

    def __init__(self, codec: V2Codec, is_csv: bool = False) -> None:
        self._codec = codec
        self._is_csv = is_csv

    def decode(self, body: bytes, json_length: int | None = None) -> InvocationsRequest:
        """Return the decoded request. Raises InvalidRequest, ContentTooLarge."""
        if json_length is not None:
            raise InvalidRequest("a request to /invocations must be JSON or CSV: send binary data to /v2")
        if self._is_csv:
            return self._prepare(self._of_frame(*_read_csv(body, self._codec)), True)
        check_elements(body, self._codec.limits.json_numbers)
        try:
            request = _DECODER.decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise InvalidRequest(f"the body is not a JSON object: {explain_decode_error(error)}") from error
        check_names(body, _members(request))
        given = [form for form in FORMS if form in request]
        unknown = [name for name in request if name not in (*FORMS, PARAMS)]
        if len(given) != 1 or unknown:
            found = ", ".join(repr(name[:_LONGEST]) for name in list(request)[:_SHOWN]) or "nothing"
            raise InvalidRequest(f"a request must have one of {', '.join(FORMS)}, and may have params: it has {found}")
        (form,) = given
        inputs = self._inputs(form, request[form])
        return self._prepare({**inputs, **self._params(request.get(PARAMS), inputs)}, form in (SPLIT, RECORDS))

    def encode(self, request: InvocationsRequest, results: Sequence[Tensor]) -> ResponseBody:
        """Return the response. Raises ModelFailed.

        An output without a name is a list. Named outputs are an object, or for columns an object for each row.
        """
        if request.frame:
            results = [tensor.ravel() if tensor.shape[1:] == (1,) else tensor for tensor in results]
        values = {name: _nested(name, tensor) for name, tensor in zip(request.outputs, results, strict=True)}
        if len(values) == 1 and _UNNAMED.fullmatch(request.outputs[0]):
            return ResponseBody(_ENCODE({"predictions": next(iter(values.values()))}))
        rows = {tensor.shape[0] if tensor.ndim else None for tensor in results}
        if request.frame and len(rows) == 1 and None not in rows:
            records = [dict(zip(values, row, strict=True)) for row in zip(*values.values(), strict=True)]
            return ResponseBody(_ENCODE({"predictions": records}))
        return ResponseBody(_ENCODE({"predictions": values}))

    def _prepare(self, inputs: Mapping[str, Tensor], frame: bool) -> InvocationsRequest:
        only = self._only()
        frame = frame and (only is None or only.shape is None or len(only.shape) < _MATRIX)
        self._codec.check_complete(inputs)
        outputs = self._codec.outputs
        return InvocationsRequest(inputs, outputs, [False] * len(outputs), "", frame=frame)

    def _inputs(self, form: str, value: Any) -> dict[str, Tensor]:
        if form == SPLIT:
            return self._of_frame(*_split(value))
        if form == RECORDS or (form == INSTANCES and isinstance(value, list) and value and isinstance(value[0], dict)):
            return self._of_frame(*_records(form, value, self._codec.limits.json_numbers))
        if form == INPUTS and isinstance(value, dict):
            return self._by_name(value)
        only = self._only()
        if only is None:
            raise InvalidRequest(
                f"{form} has no names, and the model has the inputs {self._names()}: send each row as an object, "
                f"or {SPLIT}"
            )
        return {only.name: _tensor(only, value)}

    def _of_frame(self, columns: Columns, rows: Rows) -> dict[str, Tensor]:
        """Return the inputs in the rows of a data frame."""
        specs = self._codec.specs
        only = self._only()
        if only is not None and (columns is None or only.name not in columns):
            if only.shape is not None and len(only.shape) == 1:
                if any(len(row) != 1 for row in rows):
                    raise InvalidRequest(f"the model has one input, {only.name!r}: send one column")
                return {only.name: _tensor(only, [row[0] for row in rows])}
            return {only.name: _tensor(only, _in_order(only.columns, columns, rows))}
        if columns is None:
            raise InvalidRequest(f"{SPLIT} has no columns: name them, as {self._names()}")
        wanted = [(at, name) for at, name in enumerate(columns) if name in specs]
        _check_columns([name for name in specs if not self._codec.is_optional(name)], columns, specs)
        return {name: _tensor(specs[name][0], [row[at] for row in rows]) for at, name in wanted}

    def _by_name(self, values: Mapping[str, Any]) -> dict[str, Tensor]:
        """Return the inputs in an object of tensors. If all are single values, they are one row, as in MLflow."""
        scalars = bool(values) and not any(isinstance(value, list) for value in values.values())
        known = {name: value for name, value in values.items() if name in self._codec.specs}
        if not known:
            raise InvalidRequest(f"{INPUTS} has none of the inputs {self._names()}: it has {_listed(list(values))}")
        specs = self._codec.specs
        return {name: _tensor(specs[name][0], [value] if scalars else value) for name, value in known.items()}

    def _params(self, params: Any, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return the optional inputs among the parameters."""
        if params is None:
            return {}
        if not isinstance(params, dict):
            raise InvalidRequest(f"{PARAMS} is not an object")
        specs = self._codec.specs
        known = [name for name in params if name in specs and self._codec.is_optional(name) and name not in inputs]
        return {name: _tensor(specs[name][0], params[name]) for name in known}

    def _only(self) -> TensorSpec | None:
        """Return the only required input; None with several."""
        required = [spec for name, (spec, _) in self._codec.specs.items() if not self._codec.is_optional(name)]
        return required[0] if len(required) == 1 else None

    def _names(self) -> str:
        return _listed(list(self._codec.specs))


def _check_columns(required: Sequence[str], columns: Sequence[str], known: Container[str]) -> None:
    """Raise InvalidRequest if a required column is missing."""
    missing = [name for name in required if name not in columns]
    if missing:
        further = [name for name in columns if name not in known]
        hint = f"; it has {_listed(further)}, which the model does not have" if further else ""
        raise InvalidRequest(f"the request has no column {_listed(missing)}{hint}")


def _in_order(names: Sequence[str], columns: Columns, rows: Rows) -> list[Any]:
    """Return the rows of a matrix with their columns in the order of `names`, those of the model's training.

    Raises InvalidRequest if one is missing. Without names, the columns keep their order.
    """
    if not names or columns is None:
        return list(rows)
    plain = [column.replace(" ", "_") for column in columns]  # as LightGBM stores names
    if not set(names) <= set(columns) and set(names) <= set(plain):
        columns = plain
    _check_columns(names, columns, names)
    places = [columns.index(name) for name in names]
    return [[row[at] for at in places] for row in rows]


def _split(value: Any) -> tuple[Columns, Rows]:
    """Return columns and rows of `dataframe_split`. Raises InvalidRequest."""
    if not isinstance(value, dict) or not value.keys() <= _SPLIT_KEYS or not isinstance(value.get("data"), list):
        raise InvalidRequest(f"{SPLIT} must be an object with data, and may have columns and index")
    columns, rows = value.get("columns"), value["data"]
    if columns is not None and not (isinstance(columns, list) and all(isinstance(one, str | int) for one in columns)):
        raise InvalidRequest(f"columns of {SPLIT} is not a list of names")
    names = None if columns is None else [str(one) for one in columns]
    if names is not None and len(set(names)) < len(names):
        raise InvalidRequest(f"columns of {SPLIT} has a name twice")
    width = len(names) if names is not None else len(rows[0]) if rows and isinstance(rows[0], list) else 0
    for at, row in enumerate(rows):
        if not isinstance(row, list) or len(row) != width:
            raise InvalidRequest(f"row {at} of {SPLIT} does not have {width} values")
    return names, rows


def _records(form: str, value: Any, most: int) -> tuple[Columns, Rows]:
    """Return columns and rows of records; a value that a record lacks is null.

    Raises InvalidRequest, and ContentTooLarge for more than `most` values with those that are lacking.
    """
    if not isinstance(value, list) or not all(isinstance(row, dict) for row in value):
        raise InvalidRequest(f"{form} must be a list of objects")
    names = list(dict.fromkeys(name for row in value for name in row))
    if len(names) * len(value) > most:
        raise ContentTooLarge(
            f"{form} has {len(value)} rows and {len(names)} different names, more than {most} values in all: "
            "send them in several requests"
        )
    return names, [[row.get(name) for name in names] for row in value]


def _read_csv(body: bytes, codec: V2Codec) -> tuple[Columns, Rows]:
    """Return the header and the rows of CSV, with values of the inputs' types. Raises InvalidRequest."""
    most = codec.limits.json_numbers
    if body.count(b",") + max(body.count(b"\n"), body.count(b"\r")) > most:
        raise ContentTooLarge(f"the CSV has more than {most} values: send them in several requests")
    try:
        lines = list(csv.reader(io.StringIO(body.decode("utf-8-sig"), newline=""), strict=True))
    except csv.Error as error:
        raise InvalidRequest(f"the body is not CSV: {str(error)[:_LONGEST]}") from error
    except UnicodeDecodeError as error:
        raise InvalidRequest("the body is not CSV in UTF-8") from error
    lines = [line for line in lines if line]
    if len(lines) < _HEADER_AND_ROW:
        raise InvalidRequest("the CSV has no rows: send a header and at least one row")
    header = lines[0]
    if len(set(header)) < len(header):
        raise InvalidRequest("the header of the CSV has a name twice")
    datatypes = {name: spec.datatype for name, (spec, _) in codec.specs.items()}
    default = next(iter(datatypes.values())) if len(datatypes) == 1 else BYTES
    kinds = [datatypes.get(name, default) for name in header]
    for at, line in enumerate(lines[1:], 2):
        if len(line) != len(header):
            raise InvalidRequest(f"line {at} of the CSV has {len(line)} values, and the header has {len(header)}")
    return header, [[_cell(text, kind) for text, kind in zip(line, kinds, strict=True)] for line in lines[1:]]


def _cell(text: str, datatype: str) -> Any:
    """Return the value of a cell for the datatype; a text that is none of it is returned as it is."""
    if datatype == BYTES:
        return text
    plain = text.strip()
    if datatype == "BOOL":
        return _BOOLEANS.get(plain.lower(), text)
    if _INTEGER.fullmatch(plain):
        return int(plain)
    if _NUMBER.fullmatch(plain):
        return float(plain)
    return None if plain in _MISSING else text


def _tensor(spec: TensorSpec, value: Any) -> Tensor:
    """Return the input in a nested value of the model's type. Raises InvalidRequest.

    A column of single values becomes a matrix with one column where the model expects one.
    """
    kind = DATATYPES[spec.datatype].dtype.kind
    try:
        if kind == "f":
            value = _replace_nulls(value)
        elif kind in "iu":
            value = _whole(value)
        missing = _has_null(value)
    except RecursionError:
        raise InvalidRequest(f"input {spec.name!r} has too many levels of lists") from None
    if missing:
        raise InvalidRequest(f"input {spec.name!r} has a missing value, which {spec.datatype} does not have")
    flat = isinstance(value, list) and not any(isinstance(item, list) for item in value)
    if flat and spec.shape is not None and len(spec.shape) == _MATRIX and spec.shape[1] in (1, ANY):
        value = [[item] for item in value]
    return from_nested(spec, value)


def _nested(name: str, tensor: Tensor) -> Any:
    """Return an output as nested lists, with null for NaN. Raises ModelFailed for infinity."""
    missing = np.isnan(tensor) if tensor.dtype.kind == "f" else None
    if missing is None or not missing.any():
        return to_nested(name, tensor)
    to_nested(name, np.where(missing, 0, tensor))  # checks the others
    values = tensor.astype(object)
    values[missing] = None
    return values.tolist()


def _replace_nulls(value: Any) -> Any:
    """Return nested lists with NaN in place of null."""
    if isinstance(value, list):
        return [_replace_nulls(item) for item in value] if _has_null(value) else value
    return _NAN if value is None else value


def _has_null(value: Any) -> bool:
    if isinstance(value, list):
        return any(item is None or (isinstance(item, list) and _has_null(item)) for item in value)
    return value is None


def _whole(value: Any) -> Any:
    """Return nested lists with integers in place of floats that are whole numbers."""
    if isinstance(value, list):
        return [_whole(item) for item in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(repr(name[:_LONGEST]) for name in names[:_SHOWN])
    return f"{shown}, …" if len(names) > _SHOWN else shown


def _members(value: Any) -> int:
    """Return the number of members of all objects in a decoded value."""
    count, left = 0, [value]
    while left:
        one = left.pop()
        if isinstance(one, dict):
            count += len(one)
            left.extend(item for item in one.values() if isinstance(item, dict | list))
        elif isinstance(one, list):
            left.extend(item for item in one if isinstance(item, dict | list))
    return count
