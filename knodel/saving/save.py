"""Save an object in memory as a folder that the model server loads. Nothing is pickled, and nothing is guessed.

scikit-learn    skops        XGBoost     UBJSON      a class with `predict`    its source, with consent
Keras           SavedModel   LightGBM    text        ONNX ModelProto           protobuf
"""

from __future__ import annotations

import inspect
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from knodel.saving import class_source, libraries
from knodel.saving.errors import NotSaved

if TYPE_CHECKING:
    from collections.abc import Sequence

    from serving.engines.base.engine import TensorSpec

EXAMPLE: Final = "example.json"
"""The name under which the model server finds the example (`serving.modelserver.execution.example`)."""
PYTHON: Final = "python"
SAVED: Final = (
    "models of scikit-learn, XGBoost, LightGBM, Keras and PaddlePaddle, ONNX ModelProtos, and classes with predict"
)


@dataclass(frozen=True)
class Saved:
    """A saved model. `path` is its folder.

    `model_format` is for `modelFormat` of a Model, and `runs_code` whether a server has to allow code to load it.
    `inputs` are the name, datatype and shape of each input. They are None where only the server can find them, or where
    the packages of its engine are not installed here.
    `example` is the example request, None without one.
    """

    path: Path
    model_format: str
    runs_code: bool
    inputs: tuple[TensorSpec, ...] | None
    example: Path | None

    @property
    def uri(self) -> str:
        """The storage URI of the folder."""
        return self.path.as_uri()


def save(obj: Any, folder: str | Path, *, example: Any = None, allow_code: bool = False) -> Saved:
    """Save `obj` in the new or empty folder `folder`, in the safe format of its library.

    `example` is an input of the model with a few rows: an array, a data frame, a dict by input name or a list. The
    server uses it for the warm-up and shows it to callers. `allow_code` is your consent that servers run the code of
    `obj`; a Python class needs it.

    Equal scikit-learn, XGBoost, LightGBM and ONNX models have equal files, so that deploying one again makes no new
    version.

    Raises NotSaved, with the remedy, for an object that no server could load, and for an example that does not fit;
    the folder is unchanged then.

    Example:
        >>> save(LogisticRegression().fit(X, y), "build/iris", example=X[:2]).model_format
        'sklearn'
    """
    folder = Path(folder).absolute()
    if folder.exists() and not (folder.is_dir() and not any(folder.iterdir())):
        raise NotSaved(f"{folder} is not an empty folder: give a new one")
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".knodel-", dir=folder.parent) as beside:
            made = Path(beside) / "model"
            made.mkdir()
            saved = _save(obj, made, example, allow_code)
            if folder.exists():
                folder.rmdir()
            shutil.move(made, folder)
    except OSError as error:
        raise NotSaved(f"{folder} cannot be written ({error.strerror}): give another folder") from error
    return Saved(folder, saved.model_format, saved.runs_code, saved.inputs, saved.example and folder / EXAMPLE)


def _save(obj: Any, folder: Path, example: Any, allow_code: bool) -> Saved:
    library = libraries.library_of(obj)
    inputs: Sequence[TensorSpec] | None
    if library is not None:
        inputs, model_format = libraries.write(library, obj, folder, example), library.model_format
    else:
        inputs, model_format = _write_class(obj, folder, allow_code), PYTHON
    if example is not None:
        from knodel.saving.example import example_request

        (folder / EXAMPLE).write_bytes(example_request(example, inputs))
    found = folder / EXAMPLE if example is not None else None
    return Saved(folder, model_format, library is None, None if inputs is None else tuple(inputs), found)


def _write_class(obj: Any, folder: Path, allow_code: bool) -> Sequence[TensorSpec] | None:
    """Write `model.py` with the source of a class, and return the inputs that it declares."""
    made = obj if inspect.isclass(obj) else type(obj)
    _check_class(obj, made)
    if not allow_code:
        raise NotSaved(f"class {made.__name__} is code, which the server would run: allow it with allow_code=True")
    (folder / class_source.FILE).write_text(class_source.source_of(made), encoding="utf-8")
    try:
        from serving.engines.base.errors import LoadFailed
        from serving.engines.python.tensors import INPUT, declared_tensors
    except ModuleNotFoundError:
        return None
    try:
        inputs = declared_tensors(made, "inputs", INPUT)
        declared_tensors(made, "outputs", INPUT)
    except LoadFailed as error:
        raise NotSaved(f"class {made.__name__}: {error}") from error
    return inputs


def _check_class(obj: Any, made: type) -> None:
    """Raise NotSaved unless the class alone is the model: it has `predict`, and its instances start without state."""
    name = made.__name__
    if inspect.isroutine(obj) or inspect.ismodule(obj):
        raise NotSaved(f"a {name} cannot be saved: write a class with a method predict that calls it")
    package = made.__module__.partition(".")[0]
    if obj is made and package in libraries.NAMES:
        raise NotSaved(f"{name} is a class of {package}: give a fitted object of it")
    if package == "builtins" or not callable(getattr(made, "predict", None)):
        shown = name if package in ("builtins", "__main__") else f"{package} {name}"
        raise NotSaved(f"an object of type {shown} cannot be saved: Knodel saves {SAVED}")
    if obj is not made and (state := [*getattr(obj, "__dict__", {})]):
        raise NotSaved(
            f"the {name} has values ({', '.join(state[:5])}) that the source of its class does not contain: give the "
            "class, and set them in load(self)"
        )
    try:
        inspect.signature(made).bind()
    except (TypeError, ValueError) as error:
        raise NotSaved(f"{name}() needs arguments, and the server has none: set the values in load(self)") from error
