"""PaddlePaddle inference models, on the CPU, in a process of their own.

PaddlePaddle keeps Python's lock while it infers, wants to be called by one thread, and takes over SIGTERM as it is
imported; a server could neither answer probes nor drain with it inside.
"""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING, Final

from serving.engines.base.errors import LoadFailed
from serving.engines.base.folder import Folder
from serving.engines.child.engine import ChildEngine
from serving.engines.paddle.program import files_of

if TYPE_CHECKING:
    from serving.engines.base.engine import EngineOptions
    from serving.storage.base.artifact import Artifact

PREDICTOR: Final = "serving.engines.paddle.predictor"
_LIBRARY: Final = "paddle"

if importlib.util.find_spec(_LIBRARY) is None:  # it is not imported here
    raise ModuleNotFoundError(f"No module named {_LIBRARY!r}", name=_LIBRARY)


def load(artifact: Artifact, options: EngineOptions) -> ChildEngine:
    """The artifact's model, see `paddle_predictor.load`. Raises LoadFailed, StorageError."""
    if artifact.content is not None:
        raise LoadFailed(
            f"{artifact.uri} is one file: a PaddlePaddle model is a folder with a program and its parameters"
        )
    files_of(artifact)  # before a process is started
    folder = Folder(artifact, copy=not options.allow_code)  # what is checked is loaded
    return ChildEngine(PREDICTOR, folder, artifact, options)
