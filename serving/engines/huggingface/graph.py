"""The model of a folder, by ONNX Runtime or PyTorch: which files it is, and its one output that the task needs."""

from __future__ import annotations

import posixpath
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Final

import numpy as np

from serving.engines.base.datatypes import DATATYPES, Tensor
from serving.engines.base.engine import ANY, Cancellation, Engine, EngineOptions, TensorSpec
from serving.engines.base.errors import InferenceFailed, LoadFailed
from serving.engines.base.registry import FORMATS, find_loader
from serving.engines.huggingface import pytorch
from serving.engines.huggingface.config import EXPORT
from serving.engines.huggingface.tasks import Floats

if TYPE_CHECKING:
    from serving.storage.base.artifact import Artifact

MODEL: Final = "model.onnx"
SUFFIX: Final = ".onnx"
_FOLDERS: Final = ("", "onnx")
_VARIANTS: Final = (
    MODEL, "model_optimized.onnx", "model_quantized.onnx", "model_int8.onnx", "model_uint8.onnx", "model_fp16.onnx",
)  # fmt: skip
"""Names that optimum and the Hub give to exports, the exact model first."""


def find_export(names: Sequence[str], uri: str) -> str:
    """Return the name of the ONNX export: `model.onnx`, that in `onnx/`, a quantized one, or the only one; "" for none.

    Raises LoadFailed.
    """
    known = [posixpath.join(folder, name) for name in _VARIANTS for folder in _FOLDERS]
    found = next((name for name in known if name in names), None)
    if found is not None:
        return found
    exports = [name for name in names if name.lower().endswith(SUFFIX)]
    if len(exports) > 1:
        raise LoadFailed(f"{uri} has {len(exports)} {SUFFIX} files: name the one to serve {MODEL}")
    return exports[0] if exports else ""


class ModelGraph:
    """The loaded model, of which one output is computed. `engine` is that of the format onnx, or PyTorch's."""

    def __init__(self, engine: Engine, feeds: Collection[str], outputs: Sequence[str], uri: str) -> None:
        """Choose the output: the first of `outputs` that the model has. Raises LoadFailed.

        `feeds` are the inputs that the task can give.
        """
        self._engine = engine
        signature = engine.signature
        unknown = [spec.name for spec in signature.inputs if spec.name not in feeds]
        if unknown:
            raise LoadFailed(f"{uri}: the export has the input {unknown[0]!r}, which the task does not give: {EXPORT}")
        self._dtypes = {spec.name: DATATYPES[spec.datatype].dtype for spec in signature.inputs}
        for spec in signature.inputs:
            _check_variable(spec, uri)
        self.inputs = frozenset(self._dtypes)
        names = [spec.name for spec in signature.outputs]
        found = next((name for name in outputs if name in names), None)
        if found is None:
            raise LoadFailed(f"{uri}: the export has the outputs {', '.join(names)}, and none of {', '.join(outputs)}")
        self.output = found

    def run(self, feeds: Mapping[str, Tensor], cancellation: Cancellation | None = None) -> Floats:
        """Return the output as FP32. Raises InputRefused, InferenceFailed, Cancelled."""
        given = {name: np.ascontiguousarray(feeds[name], dtype) for name, dtype in self._dtypes.items()}
        (found,) = self._engine.infer(given, [self.output], cancellation)
        if not np.isfinite(found).all():
            raise InferenceFailed(f"the output {self.output!r} has values that are not finite")
        return np.asarray(found, np.float32)

    def close(self) -> None:
        """Release the model."""
        self._engine.close()


def load_engine(artifact: Artifact, options: EngineOptions) -> Engine:
    """Load the export by the engine of the format onnx, or weights without an export by PyTorch.

    Raises LoadFailed, MissingEngine, StorageError.
    """
    name = find_export(artifact.names(), artifact.uri)
    if not name:
        return pytorch.load(artifact, options)
    place, base = posixpath.split(name)
    if base != MODEL:
        return find_loader(FORMATS["onnx"])(artifact.only(name), options)
    chosen = artifact.below(place) if place else artifact  # its tensors may be in other files of its folder
    return find_loader(FORMATS["onnx"])(chosen, options)


def _check_variable(spec: TensorSpec, uri: str) -> None:
    """Raise LoadFailed if the export is for batches of one size, or for texts of one length."""
    varying = 2 if spec.datatype.startswith("INT") else 1
    if spec.shape is not None and any(size != ANY for size in spec.shape[:varying]):
        raise LoadFailed(
            f"{uri}: the export's input {spec.name!r} has the fixed shape {list(spec.shape)}: {EXPORT}, which makes "
            "dimensions dynamic"
        )
