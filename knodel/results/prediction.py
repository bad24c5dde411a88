"""The response of a model to an inference request."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from clusters.base.errors import KnodelError

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd

from knodel.results.displayed import Displayed


@dataclass(frozen=True)
class PredictionOutput:
    """An output of a model: its name, datatype of the Open Inference Protocol (such as FP32), shape and values.

    `values` is an array if NumPy is installed, else nested lists.
    """

    name: str
    datatype: str
    shape: tuple[int, ...]
    values: Any = field(compare=False)


@dataclass(frozen=True, repr=False)
class Prediction(Displayed):
    """The outputs of a model for one call of `predict`, by name.

    `revision` is the version that answered, empty if the server does not report it; with `batch_size`, of the last
    part. `request_id` is the id in the response. `seconds` is the duration of the call. `timing` has the durations in
    milliseconds of the `Server-Timing` header, for a request that waited for a replica. `recent` has the durations in
    seconds of the client's last calls for this model, this one last.

    Example:
        answer = client.predict("iris", X)
        answer["output-0"], answer.to_pandas()
    """

    model: str
    revision: str
    request_id: str
    seconds: float
    outputs: tuple[PredictionOutput, ...]
    timing: Mapping[str, float] = field(default_factory=dict, hash=False)
    recent: tuple[float, ...] = ()

    def __getitem__(self, name: str) -> Any:
        """Return the values of an output. Raises KeyError, with the names of all outputs."""
        for output in self.outputs:
            if output.name == name:
                return output.values
        known = ", ".join(output.name for output in self.outputs)
        raise KeyError(f"model {self.model} returned no output {name!r}: its outputs are {known}")

    def __iter__(self) -> Iterator[str]:
        """Return the names of the outputs."""
        return (output.name for output in self.outputs)

    def __len__(self) -> int:
        """Return the number of outputs."""
        return len(self.outputs)

    def to_numpy(self, name: str | None = None) -> np.ndarray[Any, Any]:
        """Return an output as an array; without `name`, the only output.

        Raises KeyError for an unknown output, KnodelError without `name` if there are several.
        """
        import numpy as np

        if name is None:
            if len(self.outputs) != 1:
                known = ", ".join(output.name for output in self.outputs)
                raise KnodelError(f"model {self.model} returned {len(self.outputs)} outputs: give one of {known}")
            name = self.outputs[0].name
        return np.asarray(self[name])

    def to_pandas(self) -> pd.DataFrame:
        """Return a DataFrame with a row for each row of the request.

        A column has the name of its output; an output with several values a row gives columns `NAME_0`, `NAME_1`, ….
        Raises KnodelError if the outputs have different numbers of rows.
        """
        import numpy as np
        import pandas as pd

        columns: dict[str, Any] = {}
        for output in self.outputs:
            array = np.asarray(output.values)
            rows = array.reshape(len(array) if array.ndim else 1, -1)
            names = [output.name] if rows.shape[1] == 1 else [f"{output.name}_{i}" for i in range(rows.shape[1])]
            columns |= dict(zip(names, rows.T, strict=True))
        if len({len(values) for values in columns.values()}) > 1:
            shapes = ", ".join(f"{output.name} {list(output.shape)}" for output in self.outputs)
            raise KnodelError(f"the outputs have different numbers of rows ({shapes}): read them one by one")
        return pd.DataFrame(columns)
