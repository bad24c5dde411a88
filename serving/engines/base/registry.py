"""The registry of model formats and their engines. An engine's libraries are imported when its first model is loaded.

A format is detected by the names of the artifact's files: first by a name that decides alone, then by suffix, then by
whole names, which other programs use too. Formats that run code of the artifact are never detected: they must be named,
and allowed.

A folder of Hugging Face (`huggingface`) has no such names: `serving.engines.layouts` finds it by its `config.json`.
"""

from __future__ import annotations

import importlib
import importlib.util
import shutil
from collections.abc import Callable, Sequence, Set
from typing import TYPE_CHECKING, Final, NamedTuple

from serving.engines.base.errors import LoadFailed, MissingEngine, UnknownFormat

if TYPE_CHECKING:
    from serving.engines.base.engine import Engine, EngineOptions
    from serving.engines.base.group import WorkerProcess
    from serving.storage.base.artifact import Artifact

    Loader = Callable[[Artifact, EngineOptions], Engine]
    WorkerStarter = Callable[[Callable[[], Artifact], EngineOptions], WorkerProcess]

ALLOW_NAMESPACE: Final = "`knodel namespace NAME --label knodel.dev/allow-code=true`"
ALLOW_CODE: Final = f"allow it with {ALLOW_NAMESPACE} on a platform, with --allow-code on your own server"
"""How to allow code of an artifact, for messages about formats that always run it."""
NAME_THE_FORMAT: Final = "name the format with --format, or with modelFormat in a file"
"""The remedy for files whose format cannot be detected."""
OWN_SERVER: Final = "serve it on your own server with --allow-code"
"""The remedy for code in formats that need none: a platform can only allow the formats that always run code."""
RAY: Final = "ray"
"""The format of Ray Serve applications, whose engine takes `ray_options.RayOptions`."""
LLM_FORMATS: Final = ("gguf", "vllm", "huggingface")
"""Formats whose engines take the options of a language model (`engine.LlmOptions`)."""
_OUR_OWN: Final = frozenset({"serving", "clusters"})
"""Our own packages: a missing module in them is a bug, and no extra installs it."""


class ModelFormat(NamedTuple):  # no msgspec: the command imports this module too
    """A model format.

    module      has `load(artifact, options)`
    package     the library that the module needs
    extra       the extra of this package that installs the library; "" for a program of the user's image
    suffixes    suffixes of its files' names, in lower case
    names       whole names of its files, in lower case
    runs_code   whether loading a model runs code of its author
    decides     whether one of `names` decides, since such a folder also has files of other formats
    beside      suffixes of files of which one must be beside one of `names`, which alone say nothing
    """

    name: str
    module: str
    package: str
    extra: str
    suffixes: tuple[str, ...]
    names: tuple[str, ...] = ()
    runs_code: bool = False
    decides: bool = False
    beside: tuple[str, ...] = ()

    def patterns(self) -> tuple[str, ...]:
        """Return suffixes and names, for messages."""
        if self.beside:
            return tuple(f"{name} with {' or '.join(self.beside)}" for name in self.names)
        return self.suffixes + self.names

    def is_named(self, base_names: Set[str]) -> bool:
        """Return whether the names of an artifact's files, in lower case, are those of this format."""
        found = not base_names.isdisjoint(self.names)
        return found and (not self.beside or any(name.endswith(self.beside) for name in base_names))


FORMATS: Final = {
    made.name: made
    for made in (
        ModelFormat("onnx", "serving.engines.onnx.engine", "onnxruntime", "onnx", (".onnx",)),
        ModelFormat("sklearn", "serving.engines.sklearn.engine", "skops", "sklearn", (".skops",)),
        ModelFormat(
            "xgboost", "serving.engines.trees.xgboost", "xgboost", "xgboost", (".ubj", ".xgb"), ("model.json",)
        ),
        ModelFormat("lightgbm", "serving.engines.trees.lightgbm", "lightgbm", "lightgbm", (".lgb",), ("model.txt",)),
        ModelFormat(
            "paddle", "serving.engines.paddle.engine", "paddle", "paddle",
            (".pdmodel", ".pdiparams"), ("inference.json",),
        ),
        ModelFormat(
            "tensorflow", "serving.engines.tensorflow.engine", "tensorflow", "tensorflow", (), ("saved_model.pb",)
        ),
        ModelFormat("gguf", "serving.engines.gguf.engine", "xllamacpp", "gguf", (".gguf",)),
        ModelFormat(
            "pickle", "serving.engines.sklearn.pickled", "sklearn", "sklearn", (".pkl", ".pickle"), runs_code=True
        ),
        ModelFormat("joblib", "serving.engines.sklearn.pickled", "sklearn", "sklearn", (".joblib",), runs_code=True),
        ModelFormat("python", "serving.engines.python.engine", "numpy", "python", (), ("model.py",), runs_code=True),
        ModelFormat(RAY, "serving.engines.ray.engine", "ray", "ray", (), ("serve.yaml",), runs_code=True),
        ModelFormat("mlflow", "serving.engines.mlflow.engine", "yaml", "mlflow", (), ("mlmodel",), decides=True),
        ModelFormat("huggingface", "serving.engines.huggingface.engine", "tokenizers", "huggingface", ()),
        ModelFormat(
            "vllm", "serving.engines.vllm.engine", "vllm", "", (), ("config.json",), beside=(".safetensors",)
        ),
        ModelFormat("pyfunc", "serving.engines.mlflow.engine", "mlflow", "mlflow", (), ("mlmodel",), runs_code=True),
    )
}  # fmt: skip


RAY_SERVICE: Final = ModelFormat(RAY, "serving.engines.ray.service", "", "", ())
"""A Ray Serve elsewhere, by its URL: nothing of it runs here, and Ray need not be installed."""


def is_installed(made: ModelFormat) -> bool:
    """Return whether the library or the program of a format is installed here, without importing it."""
    if importlib.util.find_spec(made.package) is not None:
        return True
    return not made.extra and shutil.which(made.package) is not None


def find_format(name: str, files: Sequence[str], *, allow_code: bool = False) -> ModelFormat:
    """Return the format called `name`, or without a name the one detected by `files`. Raises UnknownFormat.

    `allow_code` only changes the remedy in the error: whether code is allowed already.
    """
    if name:
        if name not in FORMATS:
            raise UnknownFormat(f"unknown modelFormat {name[:80]!r}: use one of {', '.join(FORMATS)}")
        return FORMATS[name]
    paths = [file.lower() for file in files]
    base_names = {path.rpartition("/")[2] for path in paths}
    for made in FORMATS.values():
        if made.decides and made.is_named(base_names):
            return made
    found = [made for made in FORMATS.values() if made.suffixes and any(path.endswith(made.suffixes) for path in paths)]
    if not found:
        found = [made for made in FORMATS.values() if made.is_named(base_names)]
    safe = [made for made in found if not made.runs_code]
    if len(safe) == 1:
        return safe[0]
    if safe:
        both = " and of ".join(made.name for made in safe)
        raise UnknownFormat(f"the artifact has files of {both}: {NAME_THE_FORMAT}")
    raise UnknownFormat(_unknown_reason(found, allow_code))


def find_loader(made: ModelFormat) -> Loader:
    """Import the engine of a format and return its `load`. Raises MissingEngine.

    For a format that runs code, `load` raises LoadFailed unless its options allow code.
    """
    try:
        load: Loader = importlib.import_module(made.module).load
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing in _OUR_OWN:
            raise
        from clusters.base.distribution import install_command  # reads the metadata of the distribution

        remedy = install_command(f"knodel[{made.extra}]")
        raise MissingEngine(f"format {made.name} needs {missing}, which is not installed: {remedy}") from error
    except OSError as error:  # a wheel may need a system library: LightGBM's needs OpenMP
        raise MissingEngine(f"format {made.name}: {made.package} cannot be loaded ({error}): install it") from error
    if not made.runs_code:
        return load

    def load_if_allowed(artifact: Artifact, options: EngineOptions) -> Engine:
        if not options.allow_code:
            raise LoadFailed(f"{artifact.uri}: format {made.name} runs code of the artifact: {ALLOW_CODE}")
        return load(artifact, options)

    return load_if_allowed


def find_worker(made: ModelFormat) -> WorkerStarter:
    """Import the engine of a format and return its `start_worker`. Raises LoadFailed for a format without workers."""
    start: WorkerStarter | None = getattr(importlib.import_module(made.module), "start_worker", None)
    if start is None:
        raise LoadFailed(f"format {made.name} has no workers: omit workers")
    return start


def _unknown_reason(code: Sequence[ModelFormat], allow_code: bool) -> str:
    if code:
        name = code[0].name
        reason = f"the artifact looks like {name}, which runs code when it is loaded"
        if allow_code:
            return f"{reason}: name the format with --format {name}"
        return (
            f"{reason}: start the server with --format {name} --allow-code; on a platform set modelFormat {name}, "
            f"and allow it with {ALLOW_NAMESPACE}"
        )
    marks = ", ".join(mark for made in FORMATS.values() if not made.runs_code for mark in made.patterns())
    return f"the artifact has no file of a known format ({marks}): {NAME_THE_FORMAT}, one of {', '.join(FORMATS)}"
