"""Write the example of a model as a request of the Open Inference Protocol v2, in JSON. Pure."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from knodel.inputs import InputMismatch, arrays_of
from knodel.saving.errors import NotSaved

if TYPE_CHECKING:
    from serving.engines.base.datatypes import Tensor
    from serving.engines.base.engine import TensorSpec

MAX_SIZE: Final = 1 << 20  # bytes; every start of a replica runs the example, and a few rows are enough


def example_request(example: Any, inputs: Sequence[TensorSpec] | None) -> bytes:
    """Return the request whose inputs are `example`, as JSON. Raises NotSaved for one that does not fit `inputs`."""
    try:
        tensors = [_tensor(name, array) for name, array in arrays_of(example, inputs).items()]
        content = json.dumps({"inputs": tensors}, allow_nan=False).encode()
    except (InputMismatch, UnicodeDecodeError) as error:
        raise NotSaved(f"the example does not fit the model: {error}") from error
    except ValueError as error:
        raise NotSaved("the example has NaN or infinity, which JSON cannot hold: give other rows") from error
    if len(content) > MAX_SIZE:
        raise NotSaved(f"the example has {len(content)} bytes as JSON, more than {MAX_SIZE}: give a few rows")
    return content


def _tensor(name: str, array: Tensor) -> dict[str, Any]:
    from serving.engines.base.datatypes import datatype_of

    return {
        "name": name,
        "datatype": datatype_of(array).name,
        "shape": list(array.shape),
        "data": [item.decode() if isinstance(item, bytes) else item for item in array.ravel().tolist()],
    }
