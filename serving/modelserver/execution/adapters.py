"""The files of a language model's LoRA adapters, on disk while the model is loaded."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import ExitStack
from types import TracebackType
from typing import Final, Self

from serving.engines.base.engine import Adapter
from serving.engines.base.errors import EngineError, LoadFailed
from serving.engines.base.folder import ModelFolder
from serving.modelserver.base.llm import AdapterSource
from serving.storage.base.artifact import Artifact
from serving.storage.base.errors import StorageError

FILE: Final = "adapter"
"""Name of a single file whose URI has none."""


class AdapterFiles:
    """The fetched files of adapters, until `close`. `fetch` returns the artifact of a URI with a digest; it blocks.

    Raises LoadFailed with the name of an adapter that cannot be fetched.
    """

    def __init__(self, sources: Iterable[AdapterSource], fetch: Callable[[str, str], Artifact]) -> None:
        self._stack = ExitStack()
        self._artifacts: list[Artifact] = []  # their locks keep the files in the cache
        found = []
        try:
            for source in sources:
                try:
                    found.append(Adapter(source.name, self._path_of(fetch(source.uri, source.digest))))
                except (StorageError, EngineError) as error:
                    raise LoadFailed(f"adapter {source.name!r} cannot be fetched: {error}") from error
        except BaseException:
            self.close()
            raise
        self.adapters = tuple(found)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Release the files; the engine must be closed before."""
        self._stack.close()
        self._artifacts.clear()

    def _path_of(self, artifact: Artifact) -> str:
        """Return the path of the adapter's folder or single file on this machine. Raises LoadFailed, StorageError."""
        self._artifacts.append(artifact)
        name = (artifact.path.name or FILE) if artifact.content is not None else ""
        folder = self._stack.enter_context(ModelFolder(artifact, name))
        return str(folder.path / name)
