"""Keep local files that events name, on the embedded cluster, before the Model changes.

A sender may name files below the `storagePrefixes` of its EventSource. A user who can write there could add a symbolic
link to other files of the machine, even just before a replica loads. So the files are read here, within the prefixes,
and the Model gets the digest of the copy. Replicas load that copy, or the same bytes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

from clusters.base.errors import FieldError, Forbidden, Invalid, Unavailable
from eventing.objects.apis import ModelChange
from eventing.objects.ports import EventSource
from serving.storage import kept
from serving.storage.base import digest as digests
from serving.storage.base.errors import OutsideFolder, RetryableStorageError, StorageError
from serving.storage.sources.local import file_uri_path, restrict_to
from serving.storage.transfer.urls import is_file_uri


class EventFiles:
    """Keep local files of events in `folder`, up to `limit` bytes in all."""

    def __init__(self, folder: Path, limit: int) -> None:
        self._folder = folder
        self._limit = limit

    async def keep(self, change: ModelChange, source: EventSource) -> str:
        """Keep the files and return their digest, or `""` if the address is not a local file.

        Raises Forbidden if the files are outside of the `storagePrefixes`, Unavailable if there is no room for them,
        and Invalid if they cannot be kept for another reason.
        """
        uri = change.storage_uri
        if not is_file_uri(uri):
            return ""
        try:
            return await asyncio.to_thread(self._keep, uri, change.digest, source.storage_prefixes)
        except OutsideFolder as error:
            raise Forbidden(f"{error}: see `storagePrefixes` of EventSource {source.name}") from error
        except RetryableStorageError as error:
            raise Unavailable(str(error)) from error
        except StorageError as error:
            raise Invalid("the event", [FieldError("spec.change.storageUri", str(error))]) from error

    def _keep(self, uri: str, digest: str, prefixes: Sequence[str]) -> str:
        digests.check_form(uri, digest)
        roots = [file_uri_path(prefix, prefix).path.resolve() for prefix in prefixes if is_file_uri(prefix)]
        path = restrict_to(file_uri_path(uri, uri), roots, uri)
        return kept.keep(path, uri, digest, self._folder, self._limit, verify=True)
