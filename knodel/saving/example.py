"""Write the example of a model as a request of the Open Inference Protocol v2, in JSON. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from knodel.frames import in_order, is_frame, wrong_names
from knodel.saving.errors import NotSaved

if TYPE_CHECKING:
    from serving.engines.base.datatypes import Tensor
    from serving.engines.base.engine import TensorSpec

MAX_SIZE: Final = 1 << 20  # bytes; every start of a replica runs the example, and a few rows are enough


def example_request(example: Any, inputs: Sequence[TensorSpec] | None) -> bytes:
    """Return the request whose inputs are `example`, as JSON. Raises NotSaved for one that does not fit `inputs`."""
    tensors = _by_name(example, inputs)
    content = json.dumps({"inputs": [_tensor(name, array) for name, array in tensors.items()]}).encode()
    if len(content) > MAX_SIZE:
        raise NotSaved(f"the example has {len(content)} bytes as JSON, more than {MAX_SIZE}: give a few rows")
    return content


def _by_name(example: Any, inputs: Sequence[TensorSpec] | None) -> dict[str, Tensor]:
    """Return an array for each input."""
    import numpy as np

    from serving.engines.base.tabular import INPUT

    columns = {str(name): example[name].to_numpy() for name in example.columns} if is_frame(example) else None
    given = example if isinstance(example, Mapping) else columns
    names = [spec.name for spec in inputs] if inputs is not None else list(given or [INPUT])
    if columns is not None and inputs is not None and len(names) == 1 and names[0] not in columns:
        try:
            given = {names[0]: in_order(example, inputs[0].columns).to_numpy()}  # the model has one matrix
        except ValueError as error:
            raise NotSaved(f"the example has {error}") from error
    if given is None and len(names) == 1:
        given = {names[0]: example}
    if given is None:
        raise NotSaved(f"the model has the inputs {', '.join(names)}: give a data frame or a dict by name as example")
    if wrong := wrong_names(list(given), names):
        raise NotSaved(f"the example has {wrong}: the inputs of the model are {', '.join(names)}")
    specs: Sequence[TensorSpec | None] = inputs or [None] * len(names)
    made = {name: _converted(name, np.asarray(given[name]), spec) for name, spec in zip(names, specs, strict=True)}
    if any(array.size == 0 for array in made.values()):
        raise NotSaved("the example is empty: give one row or a few")
    return made


def _converted(name: str, array: Tensor, spec: TensorSpec | None) -> Tensor:
    """Return the array in the datatype of the input. A number that would change is refused."""
    import numpy as np

    from serving.engines.base.datatypes import BYTES, DATATYPES, datatype_of
    from serving.engines.base.tensors import fits

    if spec is None:
        try:
            spec_type = datatype_of(array).name
        except KeyError as error:
            raise NotSaved(f"the example of input {name!r} is {array.dtype}: give numbers or strings") from error
    else:
        spec_type = spec.datatype
    if spec is not None and spec.shape is not None and not fits(spec.shape, array.shape):
        raise NotSaved(
            f"the example of input {name!r} has shape {list(array.shape)}: the model expects {list(spec.shape)}"
        )
    if spec_type == BYTES:
        if not all(isinstance(item, str) for item in array.ravel().tolist()):
            raise NotSaved(f"the example of input {name!r} is not strings: the model expects strings")
        return array.astype(object)
    try:
        with np.errstate(all="ignore"):
            made: Tensor = array.astype(DATATYPES[spec_type].dtype)
    except (ValueError, TypeError) as error:
        raise NotSaved(f"the example of input {name!r} is not numbers: the model expects {spec_type}") from error
    if made.dtype.kind == "f" and not np.isfinite(made).all():
        raise NotSaved(f"the example of input {name!r} has NaN or infinity, which JSON cannot hold: give other rows")
    if made.dtype.kind != "f" and not np.array_equal(made, array):
        raise NotSaved(f"the example of input {name!r} is {array.dtype}: the model expects {spec_type}")
    return made


def _tensor(name: str, array: Tensor) -> dict[str, Any]:
    from serving.engines.base.datatypes import datatype_of

    return {
        "name": name,
        "datatype": datatype_of(array).name,
        "shape": list(array.shape),
        "data": array.ravel().tolist(),
    }
