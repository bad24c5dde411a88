"""PaddlePaddle inference models, on the CPU, in a separate process.

PaddlePaddle holds Python's GIL during an inference, must be called by one thread, and replaces the handler of SIGTERM
on import. In the server's process it would block probes and prevent draining.
"""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING, Final

from serving.engines.base.errors import LoadFailed
from serving.engines.base.folder import ModelFolder
from serving.engines.child.engine import ChildEngine
from serving.engines.paddle.program import files_of

if TYPE_CHECKING:
    from serving.engines.base.engine import EngineOptions
    from serving.storage.base.artifact import Artifact

PREDICTOR: Final = "serving.engines.paddle.predictor"
_LIBRARY: Final = "paddle"

if importlib.util.find_spec(_LIBRARY) is None:  # checked here, because only the child imports it
    raise ModuleNotFoundError(f"No module named {_LIBRARY!r}", name=_LIBRARY)


def load(artifact: Artifact, options: EngineOptions) -> ChildEngine:
    """Load the artifact's model, see `serving.engines.paddle.predictor`. Raises LoadFailed, StorageError."""
    if artifact.content is not None:
        raise LoadFailed(
            f"{artifact.uri} is one file: a PaddlePaddle model is a folder with a program and its parameters"
        )
    files_of(artifact)  # before a process is started
    # Without `allow_code` exactly the checked bytes must be loaded.
    folder = ModelFolder(artifact, copy=not options.allow_code)
    return ChildEngine(PREDICTOR, folder, artifact, options)
