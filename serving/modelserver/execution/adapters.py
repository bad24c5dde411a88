"""The files of a language model's LoRA adapters, on disk while they are loaded."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from typing import Final, NamedTuple

from serving.engines.base.engine import Adapter
from serving.engines.base.errors import EngineError, LoadFailed
from serving.engines.base.folder import ModelFolder, check_digests
from serving.modelserver.base.llm import AdapterSource
from serving.storage.base.artifact import Artifact
from serving.storage.base.errors import StorageError

FILE: Final = "adapter"
"""Name of a single file whose URI has none."""

FetchAdapter = Callable[[str, str], Artifact]
"""Return the artifact of a URI with a digest; blocks. Raises StorageError."""


class AdapterFiles(NamedTuple):
    """The files of an adapter, in `folder` until that is closed, and their digest."""

    adapter: Adapter
    folder: ModelFolder
    digest: str


def fetch_adapters(sources: Iterable[AdapterSource], fetch: FetchAdapter, files: ExitStack) -> Sequence[Adapter]:
    """Return adapters, whose files stay until `files` is closed. Raises LoadFailed."""
    adapters = []
    for source in sources:
        found = fetch_adapter(source, fetch)
        files.enter_context(found.folder)
        adapters.append(found.adapter)
    return adapters


def fetch_adapter(source: AdapterSource, fetch: FetchAdapter) -> AdapterFiles:
    """Return the files of an adapter. A folder is used in place, once its files have their digests.

    Raises LoadFailed with the name of the adapter if it cannot be fetched.
    """
    try:
        artifact = fetch(source.uri, source.digest)
        name = (artifact.path.name or FILE) if artifact.content is not None else ""
        folder = ModelFolder(artifact, name, in_place=True)
        try:
            check_digests(artifact)
        except BaseException:
            folder.close()
            raise
        return AdapterFiles(Adapter(source.name, str(folder.path / name)), folder, artifact.digest)
    except (StorageError, EngineError) as error:
        raise LoadFailed(f"adapter {source.name!r} cannot be fetched: {error}") from error
