"""Load the applications of Ray Serve: `serve.yaml`, or an import path such as `app:app`.

The registry requires that the format is named, and allowed. The model server passes all paths on to the applications,
except those of its health.
"""

from __future__ import annotations

import importlib.util
import posixpath
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec

from serving.engines.base.engine import Cancellation, EngineOptions
from serving.engines.base.errors import InputRefused, LoadFailed
from serving.engines.base.folder import ModelFolder
from serving.engines.base.group import address_towards
from serving.engines.ray.applications import CONFIG, DEFAULT
from serving.engines.ray.program import RayProgram
from serving.engines.ray.settings import LOOPBACK, RaySettings
from serving.engines.upstream.engine import UpstreamEngine
from serving.engines.upstream.process import EngineProcess

if TYPE_CHECKING:
    from serving.engines.base.datatypes import Tensor
    from serving.storage.base.artifact import Artifact

LEAST_STORE: Final = 78_643_200  # bytes; Ray accepts no smaller object store
STORE_SHARE: Final = 0.1  # of the memory; Ray's own default is 0.3
MOST_STORE: Final = 2 << 30  # bytes

if importlib.util.find_spec("ray") is None:  # only its own processes import it
    raise ModuleNotFoundError("No module named 'ray'", name="ray")


def load(artifact: Artifact, options: EngineOptions) -> RayEngine:
    """Start a Ray with the applications. Raises LoadFailed, StorageError."""
    if not options.alone:
        raise LoadFailed(f"{artifact.uri}: format ray takes all paths of a server: serve it by a server of its own")
    folder = ModelFolder(artifact, "app.py")
    try:
        program = RayProgram(settings_of(artifact, folder, options), folder, options.group.token)
    except BaseException:
        folder.close()
        raise
    return RayEngine(program, options)


def start_worker(artifact: Callable[[], Artifact], options: EngineOptions) -> EngineProcess:
    """Start a node that joins the Ray of the leader. Raises LoadFailed, StorageError.

    It has the files of the applications, too: Ray's workers import them on the node on which they run.
    """
    files = artifact()
    folder = ModelFolder(files, "app.py")
    try:
        settings = settings_of(files, folder, options)
        settings = msgspec.structs.replace(
            settings, address=address_towards(options.group.leader), leader=options.group.leader
        )
        return RayWorker(RayProgram(settings, folder, options.group.token))
    except BaseException:
        folder.close()
        raise


class RayWorker(EngineProcess):
    """The process of a worker, with the files that it needs."""

    def __init__(self, program: RayProgram) -> None:
        super().__init__(program.worker_command())
        self._program = program

    def close(self) -> None:
        """End the process and release the files."""
        super().close()
        self._program.close()


class RayEngine(UpstreamEngine):
    """Applications of Ray Serve, which take all requests themselves."""

    serves_own_paths = True

    def infer(
        self, inputs: Mapping[str, Tensor], outputs: Sequence[str], cancellation: Cancellation | None = None
    ) -> Sequence[Any]:
        """Raise InputRefused: the signature of an application has no tensors."""
        raise InputRefused("a Ray Serve application takes requests over HTTP only, at its own paths")


def settings_of(artifact: Artifact, folder: ModelFolder, options: EngineOptions) -> RaySettings:
    """Return the settings of the Ray. Raises LoadFailed for files without an application."""
    names = [] if artifact.content is not None else artifact.names()
    application = options.ray.application
    configured = CONFIG in names and not application
    if not configured:
        module = (application or DEFAULT).partition(":")[0].replace(".", "/")
        found = artifact.content is not None or any(
            name in names for name in (f"{module}.py", posixpath.join(module, "__init__.py"))
        )
        if not found:
            raise LoadFailed(
                f"{artifact.uri} has no {CONFIG} and no {module}.py: add one of them, or name the application by "
                "spec.ray.application (--ray-application MODULE:NAME)"
            )
    group = options.group
    store = max(LEAST_STORE, min(int(options.memory * STORE_SHARE), MOST_STORE))
    return RaySettings(
        folder=str(folder.path),
        config=configured,
        application=application,
        cpus=options.threads + int(group.local_cpus),
        object_store=store,
        timeout=options.timeout,
        address=group.leader if group.nodes > 1 else LOOPBACK,
        nodes=group.nodes,
        tolerates=group.tolerates,
    )
