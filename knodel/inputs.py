"""Convert a caller's values to the tensors of a model's inputs. Pure; needs NumPy.

data frame, dict    an array for each input of that name
data frame          the matrix of a model with one, with the columns in the order of its training data
array, list         the only input
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from knodel.frames import in_order, is_frame, wrong_names
from serving.client.errors import UsageError

if TYPE_CHECKING:
    from serving.engines.base.datatypes import Tensor
    from serving.engines.base.engine import TensorSpec


class InputMismatch(UsageError):
    """The values do not fit the inputs of the model; nothing was sent."""


def arrays_of(values: Any, inputs: Sequence[TensorSpec] | None) -> dict[str, Tensor]:
    """Return an array for each of `inputs`, with its datatype; of the values themselves if the inputs are not known.

    A number becomes the nearest one of a float type. Nothing else is changed: 1.5 becomes no integer, a number no text,
    and a time no number. Raises InputMismatch.

    Example:
        >>> arrays_of([[1, 2]], [TensorSpec("x", "FP64", (-1, 2))])
        {'x': array([[1., 2.]])}
    """

    from serving.engines.base.tabular import INPUT

    columns = {str(name): values[name].to_numpy() for name in values.columns} if is_frame(values) else None
    given = values if isinstance(values, Mapping) else columns
    names = [spec.name for spec in inputs] if inputs is not None else list(given or [INPUT])
    if columns is not None and inputs is not None and len(names) == 1 and names[0] not in columns:
        try:
            given = {names[0]: in_order(values, inputs[0].columns).to_numpy()}  # the model has one matrix
        except ValueError as error:
            raise InputMismatch(str(error)) from error
    if given is None and len(names) == 1:
        given = {names[0]: values}
    if given is None:
        raise InputMismatch(f"the model has the inputs {', '.join(names)}: give a data frame or a dict by name")
    if wrong := wrong_names(list(given), names):
        raise InputMismatch(f"{wrong}: the inputs of the model are {', '.join(names)}")
    specs: Sequence[TensorSpec | None] = inputs or [None] * len(names)
    made = {}
    for name, spec in zip(names, specs, strict=True):
        array = _array_of(name, given[name])
        if columns is not None and spec is not None and spec.shape is not None and array.ndim + 1 == len(spec.shape):
            array = array.reshape(*array.shape, 1)  # the model expects a matrix of one column
        made[name] = _converted(name, array, spec)
    if any(array.size == 0 for array in made.values()):
        raise InputMismatch("there is no row: give at least one")
    return made


def _array_of(name: str, value: Any) -> Tensor:
    import numpy as np

    try:
        return np.asarray(value)
    except ValueError as error:
        raise InputMismatch(f"input {name!r} has rows of different lengths: give a tensor") from error


def _converted(name: str, array: Tensor, spec: TensorSpec | None) -> Tensor:
    """Return the array with the datatype of the input."""
    import numpy as np

    from serving.engines.base.datatypes import BYTES, DATATYPES, datatype_of
    from serving.engines.base.tensors import fits

    if spec is None:
        try:
            datatype = datatype_of(array).name
        except KeyError as error:
            raise InputMismatch(f"input {name!r} is {array.dtype}: give numbers or strings") from error
    else:
        datatype = spec.datatype
    if spec is not None and spec.shape is not None and not fits(spec.shape, array.shape):
        raise InputMismatch(f"input {name!r} has shape {list(array.shape)}: the model expects {list(spec.shape)}")
    if datatype == BYTES:
        if not all(isinstance(item, str | bytes) for item in array.ravel().tolist()):
            raise InputMismatch(f"input {name!r} has values that are not strings: the model expects strings")
        return array.astype(object)
    if datatype not in DATATYPES:
        raise InputMismatch(f"input {name!r} has the datatype {datatype}, which is none of {', '.join(DATATYPES)}")
    wanted = DATATYPES[datatype].dtype
    if array.dtype == wanted:
        return array
    is_number = array.dtype.kind not in "cmM"  # NumPy would change complex numbers and times to other numbers
    try:
        with np.errstate(all="ignore"):
            made: Tensor = array.astype(wanted) if is_number else array
            same = is_number and _is_same(made, array)
    except OverflowError as error:
        raise InputMismatch(f"input {name!r} has a number outside the range of {datatype}") from error
    except (ValueError, TypeError) as error:
        raise InputMismatch(f"input {name!r} has values that are not numbers: the model expects {datatype}") from error
    if not same:
        raise InputMismatch(f"input {name!r} is {array.dtype}: the model expects {datatype}")
    return made


def _is_same(made: Tensor, given: Tensor) -> bool:
    """Return whether each number is the given one, or the nearest of a float type.

    Raises OverflowError for a number that has become infinite.
    """
    import numpy as np

    if given.dtype.kind == "O":  # mixed columns of a data frame
        values = given.ravel().tolist()
        if not all(isinstance(item, int | float | np.number) for item in values):
            return False
        if made.dtype.kind != "f":
            return bool(made.ravel().tolist() == values)
        given = given.astype(np.float64)
    if given.dtype.kind in "SU":
        return False
    if made.dtype.kind == "f" and not np.array_equal(np.isinf(made), np.isinf(given)):
        raise OverflowError
    return made.dtype.kind == "f" or np.array_equal(made, given)
