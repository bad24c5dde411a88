"""From a URI to its source. What a scheme needs is imported when it is used."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Final

from serving.storage.base.errors import StorageError
from serving.storage.sources.local import Place
from serving.storage.sources.source import Access, Source
from serving.storage.transfer.addresses import shown

SCHEMES: Final = {
    "http": ("serving.storage.sources.web_file", "WebFile"),
    "https": ("serving.storage.sources.web_file", "WebFile"),
    "s3": ("serving.storage.sources.s3", "source"),
    "gs": ("serving.storage.sources.gs", "source"),
    "hf": ("serving.storage.sources.hugging_face", "HubFiles"),
    "oci": ("serving.storage.sources.oci", "Image"),
}
"""Module and name of what makes a source of (URI, Access)."""
WEB: Final = ("http", "https")
"""Schemes whose servers resolve `..` themselves."""


def source_of(uri: str, place: Place | None, access: Access) -> Source:
    """The source at a URI, or the archive at `place`. Raises StorageError, ModuleNotFoundError."""
    if place is not None:
        from serving.storage.sources.local_archive import LocalArchive

        return LocalArchive(place, shown(uri))
    scheme, _, rest = uri.partition("://")
    if scheme not in WEB and ".." in rest.split("/"):
        raise StorageError(f"{shown(uri)}: must not contain '..': write the path as it is")
    if scheme not in SCHEMES:
        known = ", ".join(f"{known}://" for known in ("file", "pvc", *SCHEMES))
        raise StorageError(f"{shown(uri)}: storage of this kind is not supported: use one of {known}")
    module, name = SCHEMES[scheme]
    maker: Callable[[str, Access], Source] = getattr(import_module(module), name)
    return maker(uri, access)
