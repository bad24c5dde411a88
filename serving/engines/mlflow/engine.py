"""MLflow model folders, with a file `MLmodel`. The engine of the flavor computes; the signature gives the inputs.

`output-0` is what MLflow's `predict` returns. The formats `mlflow` and `pyfunc` load the same folders: `pyfunc` is the
one that may run code of the artifact, so it must be named, and allowed.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from serving.engines.base.datatypes import Tensor
from serving.engines.base.engine import BaseEngine, Cancellation, Engine, Signature, TensorSpec
from serving.engines.base.errors import LoadFailed
from serving.engines.base.folder import only_file
from serving.engines.base.registry import FORMATS, find_loader
from serving.engines.base.tabular import OUTPUT, PREDICT, PROBABILITIES
from serving.engines.mlflow.flavors import ALLOW, LIGHTGBM, ONNX, PROBA, PYFUNC, SKLEARN, FlavorFile, choose
from serving.engines.mlflow.inputs import InputMapping, map_inputs
from serving.engines.mlflow.lightgbm_wrapper import booster_text
from serving.engines.mlflow.mlmodel import FILE, MLmodel, read_mlmodel
from serving.storage.base.artifact import Artifact

if TYPE_CHECKING:
    from serving.engines.base.engine import EngineOptions

PLATFORM: Final = "mlflow"


def load(artifact: Artifact, options: EngineOptions) -> Engine:
    """Load the model of the artifact's only `MLmodel`. Raises LoadFailed, MissingEngine, StorageError."""
    if artifact.content is not None:
        raise LoadFailed(f"{artifact.uri} is a single file: name the folder with the file {FILE}")
    if not any(posixpath.basename(name) == FILE for name in artifact.names()):
        raise LoadFailed(f"{artifact.uri} has no file {FILE}: name the folder of an MLflow model")
    place = posixpath.dirname(only_file(artifact, (FILE.lower(),)))
    folder = artifact.below(place) if place else artifact
    names = folder.names()
    model = read_mlmodel(folder.read(FILE), folder.uri)
    chosen = choose(model, names, folder.uri, allow_code=options.allow_code)
    if chosen.format == PYFUNC:
        from serving.engines.mlflow.pyfunc import load_pyfunc  # needs mlflow itself

        return load_pyfunc(folder, model, options)
    engine = _load_native(folder, chosen, options)
    try:
        return MlflowEngine(engine, chosen, model, folder.uri)
    except BaseException:
        engine.close()
        raise


class MlflowEngine(BaseEngine):
    """The `engine` of a flavor, with the inputs of the signature. Raises LoadFailed if the two do not fit."""

    def __init__(self, engine: Engine, chosen: FlavorFile, model: MLmodel, uri: str) -> None:
        self._engine = engine
        self._mapping: InputMapping = map_inputs(model, engine.signature.inputs, uri)
        self._names: Mapping[str, str] = {}
        native = engine.signature
        outputs = native.outputs
        if chosen.method == PROBA:
            found = next((spec for spec in outputs if spec.name == PROBABILITIES), None)
            if found is None:
                raise LoadFailed(f"{uri}: the model has no predict_proba, which MLmodel names: log the model again")
            self._names = {OUTPUT: PROBABILITIES}
            first = TensorSpec(OUTPUT, found.datatype, found.shape)
            outputs = (first, *(spec for spec in outputs if spec.name in (PREDICT, PROBABILITIES)))
        signature = Signature(f"{PLATFORM}_{chosen.flavor}", self._mapping.specs, outputs, native.optional)
        super().__init__(signature, engine.bounded, engine.is_async)

    def infer(
        self, inputs: Mapping[str, Tensor], outputs: Sequence[str], cancellation: Cancellation | None = None
    ) -> Sequence[Tensor]:
        """Convert the inputs, and infer. Raises InputRefused, InferenceFailed, Cancelled."""
        wanted = [self._names.get(name, name) for name in outputs]
        return self._engine.infer(self._mapping.convert(inputs), wanted, cancellation)

    def close(self) -> None:
        """Release the model."""
        self._engine.close()


def _load_native(folder: Artifact, chosen: FlavorFile, options: EngineOptions) -> Engine:
    """Load the model by the engine of its format. Raises LoadFailed, MissingEngine, StorageError."""
    form, name = chosen.format, Path(posixpath.basename(chosen.file))
    if chosen.flavor == ONNX:  # its tensors may be in other files
        place = posixpath.dirname(chosen.file)
        return find_loader(FORMATS[form])(folder.below(place) if place else folder, options)
    content = folder.read(chosen.file)
    if form == LIGHTGBM and re.search(rb"^pandas_categorical:\[\[", content, re.MULTILINE):
        raise LoadFailed(
            f"{folder.uri}: {chosen.file} has categories of a data frame, which are not those of requests: train the "
            "model on their codes, and log it again"
        )
    if chosen.is_wrapper:
        try:
            content = booster_text(content, chosen.file)
        except LoadFailed as error:
            if not options.allow_code:
                raise LoadFailed(f"{folder.uri}: {error}: log its booster_, or {ALLOW}") from error
            form = SKLEARN
    return find_loader(FORMATS[form])(Artifact(name, content, uri=folder.uri), options)
