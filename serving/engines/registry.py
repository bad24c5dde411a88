"""Formats and their engines. Nothing heavy is imported before a model of the format is loaded."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from serving.engines.errors import MissingEngine, UnknownFormat

if TYPE_CHECKING:
    from serving.engines.base import Engine, EngineOptions
    from serving.storage.artifact import Artifact

    Loader = Callable[[Artifact, EngineOptions], Engine]


@dataclass(frozen=True, slots=True)
class Format:
    """A model format: `module` has `load(artifact, options)` and needs `package`, which `extra` installs."""

    name: str
    module: str
    package: str
    extra: str
    suffixes: tuple[str, ...]


FORMATS: Final = {
    made.name: made for made in (Format("onnx", "serving.engines.onnx", "onnxruntime", "onnx", (".onnx",)),)
}


def find_format(name: str, files: Sequence[str]) -> Format:
    """The format called `name`, or, without a name, the one that `files` are of. Raises UnknownFormat."""
    known = ", ".join(FORMATS)
    if name:
        if name not in FORMATS:
            raise UnknownFormat(f"modelFormat {name!r}: this server knows {known}")
        return FORMATS[name]
    for made in FORMATS.values():
        if any(file.lower().endswith(made.suffixes) for file in files):
            return made
    suffixes = ", ".join(suffix for made in FORMATS.values() for suffix in made.suffixes)
    raise UnknownFormat(f"the artifact has no file of a known format ({suffixes}): set modelFormat, one of {known}")


def loader_of(made: Format) -> Loader:
    """The function that loads models of this format; imports the engine. Raises MissingEngine."""
    try:
        load: Loader = importlib.import_module(made.module).load
    except ModuleNotFoundError as error:
        if error.name != made.package:
            raise
        raise MissingEngine(
            f"format {made.name} needs {made.package}, which is not installed: pip install 'knodel[{made.extra}]'"
        ) from error
    return load
