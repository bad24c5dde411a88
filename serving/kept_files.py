"""Deletion of kept model files that no version needs any more (`serving.storage.kept`), on the embedded cluster."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Final

from clusters.clock import Clock
from clusters.informer import Informers
from clusters.objects import MODEL, REVISION, annotations_of
from serving.apis.annotations import ANNOTATION_DIGEST
from serving.storage import kept
from serving.storage.errors import StorageError

log = logging.getLogger(__name__)

INTERVAL: Final = 60.0  # s between two collections
GRACE: Final = 600.0  # s since a copy was made or deployed last: its Model may not be stored yet


async def collect_kept_files(folder: Path, informers: Informers, clock: Clock) -> None:
    """Delete, again and again, the copies that neither a Model nor a Revision names."""
    await asyncio.gather(informers[MODEL].synced(), informers[REVISION].synced())
    while True:
        await clock.sleep(INTERVAL)
        before = clock.now().timestamp() - GRACE
        try:
            deleted = await asyncio.to_thread(kept.collect, folder, living_digests(informers), before)
        except StorageError as error:
            log.warning("kept model files cannot be collected: %s", error)
            continue
        if deleted:
            log.info("deleted %d copies of model files that no version needs", deleted)


def living_digests(informers: Informers) -> set[str]:
    """Return the digests of all versions that can be served, now or by a rollback."""
    models = {str((model.get("spec") or {}).get("digest") or "") for model in informers[MODEL]}
    return models | {annotations_of(revision).get(ANNOTATION_DIGEST, "") for revision in informers[REVISION]}
