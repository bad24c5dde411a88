"""The list of LoRA adapters that the platform changes while a replica runs, and its comparison with what is loaded.

Pure but for `AdapterListFile`. The file is of the form

    {"default": LIST, "revisions": {REVISION: LIST}}      LIST: {"id": TEXT, "adapters": [{"name", "uri", "digest"?}]}

`default` is the list of the Model's newest version. Former versions keep the list that they had, below `revisions`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from serving.engines.base.llm_arguments import ADAPTERS_FILE, BadLlmOptions
from serving.modelserver.base.llm import AdapterSource, LlmParameters

MAX_SIZE: Final = 1 << 20  # bytes; the limit of a ConfigMap


class AdapterList(msgspec.Struct, frozen=True):
    """The adapters of one version. The `id` identifies the list; the platform compares it with what replicas report."""

    id: str
    adapters: tuple[AdapterSource, ...] = ()


class _Lists(msgspec.Struct, frozen=True):
    default: AdapterList
    revisions: Mapping[str, AdapterList] = {}


class AdapterChanges(NamedTuple):
    """What to change so that exactly the wanted adapters are served: sources to load, names to remove.

    A source whose name is served replaces what is served.
    """

    load: Sequence[AdapterSource]
    remove: Sequence[str]


_DECODER: Final = msgspec.json.Decoder(_Lists)


def read_list(content: bytes, revision: str) -> AdapterList:
    """Return the list of the revision. Raises BadLlmOptions."""
    try:
        lists = _DECODER.decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadLlmOptions(f"the platform's list of adapters is invalid: {error}") from error
    found = lists.revisions.get(revision, lists.default)
    LlmParameters(adapters=found.adapters).check()
    return found


def changes_to(wanted: Sequence[AdapterSource], served: Mapping[str, AdapterSource]) -> AdapterChanges:
    """Return the changes from the `served` adapters, by name, to the wanted ones."""
    names = {source.name for source in wanted}
    return AdapterChanges(
        [source for source in wanted if served.get(source.name) != source],
        [name for name in served if name not in names],
    )


class AdapterListFile:
    """The file in `folder`, as of the last `read`."""

    def __init__(self, folder: Path, revision: str) -> None:
        self._path = folder / ADAPTERS_FILE
        self._revision = revision
        self._identity: tuple[int, int, int] | None = None

    def read(self) -> AdapterList | None:
        """Return the list, or None if the file is the one that was read last. Raises BadLlmOptions, OSError."""
        with self._path.open("rb") as file:
            status = os.fstat(file.fileno())
            identity = (status.st_ino, status.st_mtime_ns, status.st_size)
            if identity == self._identity:
                return None
            content = file.read(MAX_SIZE + 1)
        self._identity = identity
        return read_list(content, self._revision)
