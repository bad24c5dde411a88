"""From a URI to its source. What a scheme needs is imported when it is used."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Final

from serving.storage.addresses import shown
from serving.storage.credentials import Credentials
from serving.storage.errors import StorageError
from serving.storage.http import Downloader
from serving.storage.source import Access, Source

SCHEMES: Final = {
    "http": ("serving.storage.web_file", "WebFile"),
    "https": ("serving.storage.web_file", "WebFile"),
    "s3": ("serving.storage.s3", "source"),
    "gs": ("serving.storage.gs", "source"),
    "hf": ("serving.storage.hugging_face", "HubFiles"),
    "oci": ("serving.storage.oci", "Image"),
}
"""Module and name of what makes a source of (URI, Access)."""


def source_of(uri: str, path: Path | None, allow_hosts: frozenset[str], environ: Mapping[str, str]) -> Source:
    """The source at a URI, or the archive at `path`. Raises StorageError, ModuleNotFoundError."""
    if path is not None:
        from serving.storage.local_archive import LocalArchive

        return LocalArchive(path, shown(uri))
    scheme = uri.partition("://")[0]
    if scheme not in SCHEMES:
        known = ", ".join(f"{known}://" for known in ("file", "pvc", *SCHEMES))
        raise StorageError(f"{shown(uri)}: storage of this kind is not supported: use one of {known}")
    module, name = SCHEMES[scheme]
    maker: Callable[[str, Access], Source] = getattr(import_module(module), name)
    return maker(uri, Access(Downloader(allow_hosts), Credentials(environ)))
