"""Formats and their engines. Nothing heavy is imported before a model of the format is loaded.

A format is found by the names of the artifact's files: by their endings, else by whole names that other programs use
too. Formats that run code of the artifact are never found, only named, and only where that is allowed.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from serving.engines.base.errors import LoadFailed, MissingEngine, UnknownFormat

if TYPE_CHECKING:
    from serving.engines.base.engine import Engine, EngineOptions
    from serving.storage.base.artifact import Artifact

    Loader = Callable[[Artifact, EngineOptions], Engine]

ALLOW_NAMESPACE: Final = "`knodel namespace NAME --label knodel.dev/allow-code=true`"
ALLOW_CODE: Final = f"{ALLOW_NAMESPACE} allows it on a platform, the option --allow-code on a server of your own"
"""How code of an artifact is allowed to run, for messages about formats that always do."""
NAME_IT: Final = "name the format with --format, or with modelFormat in a file"
"""The remedy for files whose format cannot be found."""
OWN_SERVER: Final = "serve it by a server of your own with --allow-code"
"""Likewise about files that only some formats run code of: a platform allows it for whole formats."""
_OUR_OWN: Final = frozenset({"serving", "clusters"})
"""Packages that no extra installs: what is missing in them is a mistake of ours."""


class Format(NamedTuple):  # light, as all here: the command knows formats by this, too
    """A model format: `module` has `load(artifact, options)` and needs `package`, which `extra` installs.

    `suffixes` are endings of its files' names, `names` whole names, both in lower case; `runs_code` when loading it may
    run whatever its author wrote.
    """

    name: str
    module: str
    package: str
    extra: str
    suffixes: tuple[str, ...]
    names: tuple[str, ...] = ()
    runs_code: bool = False

    def marks(self) -> tuple[str, ...]:
        """Suffixes and names, for messages."""
        return self.suffixes + self.names


FORMATS: Final = {
    made.name: made
    for made in (
        Format("onnx", "serving.engines.onnx.engine", "onnxruntime", "onnx", (".onnx",)),
        Format("sklearn", "serving.engines.sklearn.engine", "skops", "sklearn", (".skops",)),
        Format("xgboost", "serving.engines.trees.xgboost", "xgboost", "xgboost", (".ubj", ".xgb"), ("model.json",)),
        Format("lightgbm", "serving.engines.trees.lightgbm", "lightgbm", "lightgbm", (".lgb",), ("model.txt",)),
        Format(
            "paddle", "serving.engines.paddle.engine", "paddle", "paddle",
            (".pdmodel", ".pdiparams"), ("inference.json",),
        ),
        Format("tensorflow", "serving.engines.tensorflow.engine", "tensorflow", "tensorflow", (), ("saved_model.pb",)),
        Format("pickle", "serving.engines.sklearn.pickled", "sklearn", "sklearn", (".pkl", ".pickle"), runs_code=True),
        Format("joblib", "serving.engines.sklearn.pickled", "sklearn", "sklearn", (".joblib",), runs_code=True),
        Format("python", "serving.engines.python.engine", "numpy", "python", (), ("model.py",), runs_code=True),
    )
}  # fmt: skip


def find_format(name: str, files: Sequence[str], *, allow_code: bool = False) -> Format:
    """Return the format called `name`, or, without a name, the one that `files` are of. Raises UnknownFormat.

    `allow_code` is whether code may run already, for the advice in the error.
    """
    if name:
        if name not in FORMATS:
            raise UnknownFormat(f"modelFormat {name[:80]!r}: this server knows {', '.join(FORMATS)}")
        return FORMATS[name]
    paths = [file.lower() for file in files]
    found = _by_suffix(paths) or _by_name(paths)
    safe = [made for made in found if not made.runs_code]
    if len(safe) == 1:
        return safe[0]
    if safe:
        both = " and of ".join(made.name for made in safe)
        raise UnknownFormat(f"the artifact has files of {both}: {NAME_IT}, to serve one of them")
    raise UnknownFormat(_unknown(found, allow_code))


def loader_of(made: Format) -> Loader:
    """The function that loads models of this format; imports the engine. Raises MissingEngine.

    The function raises LoadFailed for a format that runs code, unless its options allow that.
    """
    try:
        load: Loader = importlib.import_module(made.module).load
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing in _OUR_OWN:
            raise
        raise MissingEngine(
            f"format {made.name} needs {missing}, which is not installed: pip install 'knodel[{made.extra}]'"
        ) from error
    except OSError as error:  # a wheel that needs a library of the system, as LightGBM's needs OpenMP's
        raise MissingEngine(f"format {made.name}: {made.package} cannot be loaded ({error}): install it") from error
    return _guarded(made, load) if made.runs_code else load


def _by_suffix(paths: Sequence[str]) -> list[Format]:
    return [made for made in FORMATS.values() if made.suffixes and any(path.endswith(made.suffixes) for path in paths)]


def _by_name(paths: Sequence[str]) -> list[Format]:
    names = {path.rpartition("/")[2] for path in paths}
    return [made for made in FORMATS.values() if not names.isdisjoint(made.names)]


def _unknown(code: Sequence[Format], allow_code: bool) -> str:
    if code:
        name = code[0].name
        reason = f"the artifact looks like {name}, which runs code as it is loaded"
        if allow_code:
            return f"{reason}: name the format with --format {name}"
        return (
            f"{reason}: start the server with --format {name} --allow-code; on a platform set modelFormat {name}, "
            f"and allow it by {ALLOW_NAMESPACE}"
        )
    marks = ", ".join(mark for made in FORMATS.values() if not made.runs_code for mark in made.marks())
    return f"the artifact has no file of a known format ({marks}): {NAME_IT}, one of {', '.join(FORMATS)}"


def _guarded(made: Format, load: Loader) -> Loader:
    def load_if_allowed(artifact: Artifact, options: EngineOptions) -> Engine:
        if not options.allow_code:
            raise LoadFailed(f"{artifact.uri}: format {made.name} runs code of the artifact: {ALLOW_CODE}")
        return load(artifact, options)

    return load_if_allowed
