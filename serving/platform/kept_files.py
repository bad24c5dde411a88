"""Delete kept model files (`serving.storage.kept`) that no version needs, on the embedded cluster."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from autoscaler.types import HELD_ANNOTATION, LOADED_ANNOTATION
from autoscaler.warmpool.claims.assignment import assignment_of
from clusters.base.clock import Clock
from clusters.base.objects import (
    CONFIG_MAP,
    MODEL,
    POD_AUTOSCALER,
    REVISION,
    Key,
    Kind,
    Object,
    annotations_of,
    key_of,
    name_of,
    namespace_of,
)
from clusters.runtime.informer import Informers
from serving.makers.names import ADAPTERS_PREFIX, DIGESTS_PREFIX
from serving.storage import kept
from serving.storage.base.errors import StorageError
from serving.storage.transfer.urls import is_file_uri
from serving.types.annotations import ANNOTATION_DIGEST, ANNOTATION_STORAGE_URI

log = logging.getLogger(__name__)

INTERVAL: Final = 60.0  # s between two collections
_DIGEST: Final = re.compile(r"sha256:[0-9a-f]{64}")
KINDS: Final = (MODEL, REVISION, POD_AUTOSCALER, CONFIG_MAP)
"""Kinds whose objects contain digests of versions."""


class KeptFiles:
    """Delete copies in `folder` that no version needs. Create it before the informers run: it registers some."""

    def __init__(self, folder: Path, informers: Informers, clock: Clock) -> None:
        self._folder = folder
        self._informers = {kind: informers[kind] for kind in KINDS}
        self._clock = clock

    async def run(self) -> None:
        """Delete copies every INTERVAL seconds until cancelled."""
        await asyncio.gather(*(informer.synced() for informer in self._informers.values()))
        while True:
            await self._clock.sleep(INTERVAL)
            before = self._clock.now().timestamp() - kept.GRACE_PERIOD
            try:
                deleted = await asyncio.to_thread(_collect, self._folder, living_digests(self._informers), before)
            except StorageError as error:
                log.warning("kept model files cannot be collected: %s", error)
                continue
            if deleted:
                log.info("deleted %d copies of model files that no version needs", deleted)


def living_digests(objects: Mapping[Kind, Iterable[Object]]) -> frozenset[str] | None:
    """Return the digests of all versions that can be served, now or after a rollback; `objects` are those of KINDS.

    Return None while the digest of a Revision with local files is unknown, because any copy could be its copy.
    """
    records = [record for record in objects[CONFIG_MAP] if name_of(record).startswith(DIGESTS_PREFIX)]
    known: dict[Key, str] = {}
    for record in records:
        known |= {Key(namespace_of(record), name): digest for name, digest in (record.get("data") or {}).items()}
    found = set(known.values())
    for record in objects[CONFIG_MAP]:
        if name_of(record).startswith(ADAPTERS_PREFIX):
            found.update(_DIGEST.findall(str(record.get("data"))))
    for autoscaler in objects[POD_AUTOSCALER]:
        for annotation in (LOADED_ANNOTATION, HELD_ANNOTATION):
            if digest := annotations_of(autoscaler).get(annotation):
                known[key_of(autoscaler)] = digest
                found.add(digest)
    for revision in objects[REVISION]:
        promised = annotations_of(revision).get(ANNOTATION_DIGEST, "")
        is_local = is_file_uri(annotations_of(revision).get(ANNOTATION_STORAGE_URI, ""))
        if is_local and not promised and not known.get(key_of(revision)):
            return None
        found.add(promised)
        if (load := assignment_of(revision, name_of(revision))) is not None:
            found.update(_adapter_digests(load.parameters))
    for model in objects[MODEL]:
        found.update(_adapter_digests(model.get("spec") or {}))
        history = (model.get("status") or {}).get("history") or ()
        found |= {str(entry.get("digest") or "") for entry in ((model.get("spec") or {}), *history)}
    return frozenset(found - {""})


def _adapter_digests(spec: Mapping[str, Any]) -> Iterator[str]:
    """Return the digests of the adapters in a Model's spec, or in the parameters that a revision loads."""
    for adapter in (spec.get("llm") or {}).get("adapters") or ():
        yield str(adapter.get("digest") or "")


def _collect(folder: Path, living: frozenset[str] | None, before: float) -> int:
    kept.delete_leftovers(folder)
    return 0 if living is None else kept.delete_unused(folder, living, before)
