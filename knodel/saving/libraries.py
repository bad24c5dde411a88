"""Write the model of one library as files. Each function returns the model's inputs, None where they are unknown.

The libraries themselves are imported only here, after the object of one is there.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from clusters.base.redact import one_line
from knodel.saving import class_source, skops_file
from knodel.saving.errors import NotSaved

if TYPE_CHECKING:
    from serving.engines.base.engine import TensorSpec

Inputs: TypeAlias = "Sequence[TensorSpec] | None"
_TENSOR_TYPES: Final = {
    1: "FP32", 2: "UINT8", 3: "INT8", 4: "UINT16", 5: "INT16", 6: "INT32", 7: "INT64", 8: "BYTES", 9: "BOOL",
    10: "FP16", 11: "FP64", 12: "UINT32", 13: "UINT64",
}  # fmt: skip
"""By the numbers of ONNX (onnx.proto3, `TensorProto.DataType`)."""
_MAX_LISTED: Final = 5  # types in a message


class Library(NamedTuple):
    """How objects of a library are saved: the name of its model format, and a function that writes the files.

    Its arguments are the object, the folder and the example, which most libraries do not need.
    """

    model_format: str
    write: Callable[[Any, Path, Any], Inputs]


def library_of(obj: Any) -> Library | None:
    """Return how an object is saved, None for one of no known library. Raises NotSaved for one that needs an export.

    The object's classes decide by the names of their modules, so nothing is imported.
    """
    for one in type(obj).__mro__:
        package = one.__module__.partition(".")[0]
        if package in _LIBRARIES:
            return _LIBRARIES[package]
        if package in _EXPORTS:
            raise NotSaved(f"a {package} {type(obj).__name__} cannot be saved directly: {_EXPORTS[package]}")
    return None


def _sklearn(model: Any, folder: Path, _: Any) -> Inputs:
    """Write `model.skops`. The engine of the server checks it, if its packages are installed here."""
    try:
        import skops.io
    except ModuleNotFoundError as error:
        raise NotSaved(f"a {type(model).__name__} is saved with skops: install it with `pip install skops`") from error
    content = skops_file.dump(model)
    (folder / "model.skops").write_bytes(content)
    try:
        from serving.engines.base.engine import EngineOptions
        from serving.engines.base.errors import LoadFailed
        from serving.engines.sklearn import engine, vetting
        from serving.storage.base.artifact import Artifact
    except ModuleNotFoundError:
        return None
    unknown = sorted(set(skops.io.get_untrusted_types(data=content)) - vetting.TRUSTED)
    if unknown:
        shown = ", ".join(unknown[:_MAX_LISTED]) + (", …" if len(unknown) > _MAX_LISTED else "")
        raise NotSaved(
            f"the {type(model).__name__} has types that may run code when they are loaded ({shown}): use types of "
            f"scikit-learn, or export the model to ONNX, or {class_source.OWN_FOLDER}"
        )
    try:
        loaded = engine.load(Artifact(Path("model.skops"), content, uri="the model"), EngineOptions())
    except LoadFailed as error:
        raise NotSaved(f"the {type(model).__name__} cannot be served: {error}") from error
    return loaded.signature.inputs


def _xgboost(model: Any, folder: Path, _: Any) -> Inputs:
    """Write `model.ubj`; the file records whether it is a Booster, a classifier or a regressor."""
    booster = model.get_booster() if hasattr(model, "get_booster") else model
    has_categories = "c" in (booster.feature_types or ()) and hasattr(booster, "get_categories")  # from 3.1 on
    if has_categories and not booster.get_categories().empty():
        raise _with_categories(model)
    missing = getattr(model, "missing", math.nan)
    if not math.isnan(missing):
        raise NotSaved(
            f"the {type(model).__name__} takes {missing:g} for a missing value, which its file does not have: train it "
            "with NaN in its place"
        )
    model.save_model(folder / "model.ubj")
    return [_matrix(booster.num_features(), booster.feature_names or ())]


def _lightgbm(model: Any, folder: Path, _: Any) -> Inputs:
    """Write `model.lgb`. LightGBM's text has no labels, so a classifier's are added where LightGBM reads nothing.

    `serving.engines.trees.lightgbm` reads them.
    """
    booster = model.booster_ if hasattr(model, "fit") else model
    if booster.pandas_categorical:
        raise _with_categories(model)
    text = booster.model_to_string()
    if hasattr(model, "classes_") and isinstance(model.objective_, str):
        labels = json.dumps({"classes": model.classes_.tolist()})
        text = text.replace("\nend of parameters\n", f"\nend of parameters\nscikit_learn:{labels}\n")
    (folder / "model.lgb").write_text(text, encoding="utf-8", newline="\n")
    from serving.engines.trees.lightgbm_model import columns_of

    return [_matrix(booster.num_feature(), columns_of(booster.feature_name()))]


def _onnx(model: Any, folder: Path, _: Any) -> Inputs:
    """Write `model.onnx`, and read the inputs of its graph."""
    from serving.engines.base.engine import ANY, TensorSpec

    (folder / "model.onnx").write_bytes(model.SerializeToString())
    weights = {one.name for one in model.graph.initializer}  # old models list them as inputs too
    inputs = []
    for given in model.graph.input:
        kind = given.type.tensor_type
        if given.name in weights or kind.elem_type not in _TENSOR_TYPES:
            continue
        shape = tuple(size.dim_value if size.WhichOneof("value") == "dim_value" else ANY for size in kind.shape.dim)
        inputs.append(TensorSpec(given.name, _TENSOR_TYPES[kind.elem_type], shape or None))
    return inputs


def _keras(model: Any, folder: Path, _: Any) -> Inputs:
    """Write a SavedModel; Keras prints its signature unless it is told not to."""
    from serving.engines.base.datatypes import DATATYPES
    from serving.engines.base.engine import ANY, TensorSpec

    model.export(str(folder), format="tf_saved_model", verbose=False)
    names = {str(datatype.dtype): name for name, datatype in DATATYPES.items() if datatype.dtype.kind != "O"}
    try:
        return [
            TensorSpec(one.name, names[one.dtype], tuple(ANY if size is None else size for size in one.shape))
            for one in model.inputs
        ]
    except (AttributeError, KeyError, TypeError, ValueError):  # of a subclass, whose signature is that of its call
        return None


def _paddle(model: Any, folder: Path, example: Any) -> Inputs:
    """Write an inference program. PaddlePaddle's layers do not record their inputs: those of the example are used."""
    if example is None:
        raise NotSaved(f"the {type(model).__name__} needs an example, from which its inputs are taken: give example=")
    import numpy as np
    import paddle

    from knodel.inputs import arrays_of
    from serving.engines.base.datatypes import datatype_of
    from serving.engines.base.engine import ANY, TensorSpec

    arrays = arrays_of(example, None)
    floats = {name: array.astype(np.float32) if array.dtype == np.float64 else array for name, array in arrays.items()}
    shapes = {name: (ANY, *array.shape[1:]) for name, array in floats.items()}
    dtypes: dict[str, Any] = {name: array.dtype.name for name, array in floats.items()}
    specs = [paddle.static.InputSpec(list(shapes[name]), dtypes[name], name) for name in floats]
    was_training = model.training
    model.eval()
    try:
        paddle.jit.save(model, str(folder / "inference"), input_spec=specs)
    finally:
        if was_training:
            model.train()
    return [TensorSpec(name, datatype_of(array).name, shapes[name]) for name, array in floats.items()]


_LIBRARIES: Final = {
    "sklearn": Library("sklearn", _sklearn),
    "xgboost": Library("xgboost", _xgboost),
    "lightgbm": Library("lightgbm", _lightgbm),
    "onnx": Library("onnx", _onnx),
    "keras": Library("tensorflow", _keras),
    "paddle": Library("paddle", _paddle),
}
"""By the package in which a class of the object is defined, the most derived class first."""
_EXPORTS: Final = {
    "torch": "`torch.onnx.export(model, (example,), 'model.onnx')` writes ONNX; deploy that file",
    "catboost": "`model.save_model('model.onnx', format='onnx')` writes ONNX; deploy that file",
    "tensorflow": "`tf.saved_model.save(model, 'folder')` writes a SavedModel; deploy the folder",
    "jax": "`jax.export` and tf2onnx write ONNX; deploy that file",
}
NAMES: Final = frozenset({*_LIBRARIES, *_EXPORTS})


def write(library: Library, obj: Any, folder: Path, example: Any) -> Inputs:
    """Write the files and return the inputs. Raises NotSaved, with the library's reason."""
    try:
        return library.write(obj, folder, example)
    except NotSaved:
        raise
    except Exception as error:  # the libraries' errors have no common base class
        reason = one_line(str(error)) or type(error).__name__
        raise NotSaved(f"the {type(obj).__name__} cannot be saved as {library.model_format}: {reason}") from error


def _with_categories(model: Any) -> NotSaved:
    return NotSaved(
        f"the {type(model).__name__} was trained on categories of a data frame, which its file does not apply to the "
        "numbers of requests: train it on their codes, `frame[column].cat.codes`"
    )


def _matrix(features: int, columns: Sequence[str]) -> TensorSpec:
    from serving.engines.base.tabular import matrix_input

    return matrix_input(features, columns)
