"""Model repositories of NVIDIA Triton: `NAME/config.pbtxt` beside `NAME/1/model.onnx`, or the folder of one model.

Layout of the files: https://docs.nvidia.com/deeplearning/triton-inference-server/user-guide/docs/user_guide/
model_repository.html. One version of one model is served: the newest that `version_policy` allows.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

import numpy as np

from serving.engines.base.datatypes import DATATYPES, Tensor
from serving.engines.base.engine import ANY, Engine, TensorSpec
from serving.engines.base.errors import LoadFailed
from serving.engines.base.tabular import OUTPUT, PROBABILITIES
from serving.engines.layouts.described import DescribedEngine, DescribedTensor, cast_to
from serving.engines.layouts.layout import Layout, unchanged
from serving.engines.layouts.numbered import is_version
from serving.engines.layouts.text_format import BadText
from serving.engines.layouts.triton_config import FILE, IGNORED, TensorConfig, TritonConfig, read_config

if TYPE_CHECKING:
    from serving.storage.base.artifact import Artifact

log = logging.getLogger(__name__)

NAME: Final = "Triton repository"
_EXAMPLE: Final = "example.json"
_PLATFORMS: Final = {"onnxruntime_onnx": "onnxruntime", "tensorflow_savedmodel": "tensorflow", "fil": "fil"}
"""The backend of each platform, an older field of the same meaning."""
_TREES: Final = {
    "xgboost": ("xgboost", "xgboost.model"), "xgboost_json": ("xgboost", "xgboost.json"),
    "xgboost_ubj": ("xgboost", "xgboost.ubj"), "lightgbm": ("lightgbm", "model.txt"),
}  # fmt: skip
"""Format and default file of each `model_type` of the backend `fil`."""
_TABULAR: Final = frozenset(made for made, _ in _TREES.values())
_BACKENDS: Final = ("onnxruntime", "tensorflow (SavedModel)", "fil (XGBoost, LightGBM)")
_INSTEAD: Final = {
    "python": "TritonPythonModel is another interface: write a class Model, and serve it as format python",
    "pytorch": "export the model to ONNX",
    "tensorrt": "serve the ONNX file that the engine was made of",
    "openvino": "convert the model to ONNX",
    "ensemble": "serve each of its models, and call them in turn from a Model of format python",
}


def detect(artifact: Artifact, names: Sequence[str], model: str) -> Layout | None:
    """Return the layout of a Triton repository, or of a model's folder in one. Raises LoadFailed, StorageError."""
    folders = [name.removesuffix(FILE) for name in names if name.count("/") <= 1 and f"/{name}".endswith(f"/{FILE}")]
    if not folders:
        return None
    root = "" if "" in folders else _choose(folders, model, artifact.uri)
    uri = f"{artifact.uri}: {root}{FILE}"
    try:
        config = read_config(artifact.read(f"{root}{FILE}"))
    except BadText as error:
        raise LoadFailed(f"{uri}: {error}") from error
    for field in config.ignored:
        log.info("%s: %s is ignored: %s", uri, field, IGNORED[field])
    found, filename = _format(config, uri)
    version = f"{root}{_version(config, names, root, uri)}"
    files = _files(artifact, names, version, filename, found)
    adapt = partial(_adapt, config, uri, found in _TABULAR) if config.inputs or config.outputs else unchanged
    example = artifact.read(f"{root}{_EXAMPLE}") if f"{root}{_EXAMPLE}" in names else None
    return Layout(files, NAME, found, adapt, config.dynamic_batching, example)


def _choose(folders: Sequence[str], model: str, uri: str) -> str:
    """Return the folder of a repository's only model, or of the one with the Model's name. '-' counts as '_'."""
    if len(folders) == 1:
        return folders[0]
    for folder in folders:
        if folder.rstrip("/").lower().replace("_", "-") == model:
            return folder
    named = ", ".join(folder.rstrip("/") for folder in sorted(folders)[:20])
    raise LoadFailed(
        f"{uri} is a repository of {len(folders)} models ({named}), none of them named {model!r}: name the folder "
        f"of one, such as {uri.rstrip('/')}/{folders[0].rstrip('/')}"
    )


def _format(config: TritonConfig, uri: str) -> tuple[str, str]:
    """Return our format of the backend, and the name of the model's file."""
    backend = config.backend or _PLATFORMS.get(config.platform, config.platform.partition("_")[0])
    if backend == "onnxruntime":
        return "onnx", config.filename or "model.onnx"
    if backend == "tensorflow" and config.platform in ("", "tensorflow_savedmodel"):
        return "tensorflow", config.filename or "model.savedmodel"
    if backend == "fil":
        kind = config.parameters.get("model_type", "xgboost")
        if kind in _TREES:
            made, file = _TREES[kind]
            return made, config.filename or file
        raise LoadFailed(f"{uri}: model_type {kind[:40]!r} is not served: use one of {', '.join(_TREES)}")
    if not backend:
        return "", config.filename
    shown = backend if config.backend else config.platform
    instead = _INSTEAD.get(backend, f"served backends are {', '.join(_BACKENDS)}")
    raise LoadFailed(f"{uri}: backend {shown[:40]!r} is not served: {instead}")


def _version(config: TritonConfig, names: Sequence[str], root: str, uri: str) -> str:
    """Return the folder of the version to serve."""
    inside = {name.removeprefix(root).partition("/")[0] for name in names if name.startswith(root)}
    found = {
        int(name) for name in inside if is_version(name) and not name.startswith("0") and f"{root}{name}" not in names
    }
    allowed = found & set(config.versions.specific) if config.versions.specific else found
    if not allowed:
        wanted = f"none of the versions {config.versions.specific}" if config.versions.specific else "no version folder"
        raise LoadFailed(f"{uri}: there is {wanted} beside it: add a folder such as 1 with the model's file")
    if len(found) > 1:
        log.info("%s: version %d of %s is served", uri, max(allowed), ", ".join(map(str, sorted(found))))
    return str(max(allowed))


def _files(artifact: Artifact, names: Sequence[str], version: str, filename: str, made: str) -> Artifact:
    """Return the model's files: those of the version, of a folder in it, or one file if it has several."""
    path = f"{version}/{filename}"
    if filename and any(name.startswith(f"{path}/") for name in names):
        return artifact.below(path)
    if filename and path in names:
        siblings = [name for name in names if name.startswith(f"{version}/") and name.endswith(".onnx")]
        if made != "onnx" or len(siblings) > 1:
            return artifact.only(path)
    return artifact.below(version)


def _adapt(config: TritonConfig, uri: str, trees: bool, engine: Engine) -> Engine:
    """Return the engine with the tensors of the config. Raises LoadFailed when they contradict the model's."""
    inputs = [_described(one, config, uri, "input", engine, trees) for one in config.inputs]
    outputs = [_described(one, config, uri, "output", engine, trees) for one in config.outputs]
    missing = [one.name for one in engine.signature.inputs if one.name not in {made.source for made in inputs}]
    if inputs and missing:
        raise LoadFailed(f"{uri}: the model's inputs {', '.join(missing)} are missing: add them")
    if len({made.source for made in inputs}) < len(inputs):
        raise LoadFailed(f"{uri}: the model has one input: describe one")
    own = engine.signature
    return DescribedEngine(
        engine,
        inputs or [DescribedTensor(one, one.name, _same) for one in own.inputs],
        outputs or [DescribedTensor(one, one.name, _same) for one in own.outputs],
    )


def _described(
    given: TensorConfig, config: TritonConfig, uri: str, kind: str, engine: Engine, trees: bool
) -> DescribedTensor:  # fmt: skip
    """Return the tensor with the name, datatype and shape of the config."""
    specs = engine.signature.inputs if kind == "input" else engine.signature.outputs
    batch = (ANY,) if config.max_batch_size else ()
    shape = batch + given.dims
    if trees:  # `fil` has one matrix and one result, whose names are the config's
        return _of_trees(given, shape, config, kind, {spec.name: spec for spec in specs}, uri)
    spec = next((one for one in specs if one.name == given.name), None)
    if spec is None:
        known = ", ".join(repr(one.name) for one in specs)
        raise LoadFailed(f"{uri}: the model has no {kind} {given.name!r}: use {known}")
    if spec.datatype != given.datatype:
        raise LoadFailed(
            f"{uri}: {kind} {given.name!r} is {spec.datatype} in the model, and {given.datatype} in the config: "
            "correct data_type"
        )
    own = shape if given.reshape is None else batch + given.reshape
    if spec.shape is not None and not _compatible(own, spec.shape):
        raise LoadFailed(
            f"{uri}: {kind} {given.name!r} is {list(spec.shape)} in the model, and {list(own)} in the config with its "
            "batch dimension: correct dims or max_batch_size"
        )
    if given.reshape is None:
        known_sizes = spec.shape or shape
        shape = tuple(size if size != ANY else known for size, known in zip(shape, known_sizes, strict=True))
        return DescribedTensor(TensorSpec(given.name, given.datatype, shape), spec.name, _same)
    target = given.reshape if kind == "input" else given.dims
    return DescribedTensor(
        TensorSpec(given.name, given.datatype, shape), spec.name, partial(_reshaped, bool(batch), target)
    )


def _of_trees(
    given: TensorConfig, shape: tuple[int, ...], config: TritonConfig, kind: str, specs: dict[str, TensorSpec], uri: str
) -> DescribedTensor:
    """Return the only input or output of the backend `fil`, whose parameters select what it computes.

    `predict_proba`: the probability of each class. `output_class`: the class, above `threshold` of two. Otherwise the
    value of the objective: of two classes, the probability of the second.
    """
    spec = TensorSpec(given.name, given.datatype, shape)
    if kind == "input":
        own = next(iter(specs.values()))
        if own.shape is not None and not _compatible(shape, own.shape):
            raise LoadFailed(
                f"{uri}: input {given.name!r} is {list(shape)} in the config with its batch dimension, and "
                f"{list(own.shape)} in the model: correct dims or max_batch_size"
            )
        return DescribedTensor(spec, own.name, partial(cast_to, own.datatype))
    source = specs.get(PROBABILITIES)
    is_class = False
    read: Callable[[Tensor], Tensor] = _same
    if source is not None and not _is_true(config, "predict_proba"):
        if _is_true(config, "output_class"):
            is_class = True
            read = partial(_classes, _threshold(config, uri))
        elif source.shape is not None and source.shape[-1] == 2:
            read = _second
        else:
            source = None
    source = source or specs[OUTPUT]
    if not is_class and not np.can_cast(DATATYPES[source.datatype].dtype, DATATYPES[given.datatype].dtype, "same_kind"):
        raise LoadFailed(
            f"{uri}: output {given.name!r} is {source.datatype} in the model, and {given.datatype} in the config: "
            "correct data_type"
        )

    def convert(tensor: Tensor) -> Tensor:
        result = cast_to(given.datatype, read(tensor))
        return result.reshape(tuple(len(result) if size == ANY and not at else size for at, size in enumerate(shape)))

    return DescribedTensor(spec, source.name, convert)


def _is_true(config: TritonConfig, name: str) -> bool:
    return config.parameters.get(name, "false").lower() == "true"


def _threshold(config: TritonConfig, uri: str) -> float:
    text = config.parameters.get("threshold", "0.5")
    try:
        return float(text)
    except ValueError:
        raise LoadFailed(f"{uri}: threshold {text[:40]!r} is not a number") from None


def _classes(threshold: float, probabilities: Tensor) -> Tensor:
    if probabilities.shape[1] == 2:
        return probabilities[:, 1] > threshold
    classes: Tensor = probabilities.argmax(axis=1)
    return classes


def _second(probabilities: Tensor) -> Tensor:
    return probabilities[:, 1]


def _same(tensor: Tensor) -> Tensor:
    return tensor


def _reshaped(batched: bool, shape: tuple[int, ...], tensor: Tensor) -> Tensor:
    """Return the tensor with another shape for each row, or in all if there is no batch dimension."""
    target = (len(tensor), *shape) if batched else shape
    if target.count(ANY) > 1:  # only sizes of 1 may be added or removed then: fill in the others in their order
        sizes = iter([size for size in tensor.shape[1 if batched else 0 :] if size != 1])
        target = tuple(next(sizes, 1) if size == ANY else size for size in target)
    return np.reshape(tensor, target)


def _compatible(described: Sequence[int], own: Sequence[int]) -> bool:
    """Return whether two shapes can be equal."""
    return len(described) == len(own) and all(
        ANY in pair or pair[0] == pair[1] for pair in zip(described, own, strict=True)
    )
