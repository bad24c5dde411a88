"""List the modules that a zygote imports for a server, without importing any of them."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from serving.engines.base.errors import UnknownFormat
from serving.engines.base.registry import FORMATS, ModelFormat, find_format
from serving.modelserver.base.options import DEFAULT_POOL_FORMAT

SERVER: Final = ("serving.modelserver.main", "serving.modelserver.run")
FOR_LOADS: Final = (
    "serving.storage.transfer.downloader", "serving.storage.remote", "serving.storage.sources.source",
    "serving.storage.sources.single_file",
    "encodings.idna", "clusters.base.distribution",
)  # fmt: skip
"""Modules that a server otherwise imports on demand: for downloads, host names and `GET /v2`."""
MAX_NAMES: Final = 1000  # of a folder that are read: this runs in the control plane's event loop


def modules_for(argv: Sequence[str]) -> tuple[str, ...]:
    """Return the modules to import; see `serving.modelserver.preload`."""
    if "--pool" in argv:  # all modules that a claim may need, so that it imports nothing
        made = _format(_option(argv, "--format") or DEFAULT_POOL_FORMAT, "")
        server: tuple[str, ...] = (*SERVER, *FOR_LOADS)
    else:
        made = _format(_option(argv, "--format"), _option(argv, "--storage-uri"))
        server = SERVER
    needed = [made]
    if made is not None and made.decides:  # another engine loads the files beside the description
        needed.append(_format("", _option(argv, "--storage-uri"), described=True))
    installed = [one for one in needed if one is not None and importlib.util.find_spec(one.package) is not None]
    return (*server, *(one.module for one in installed))


def _option(argv: Sequence[str], name: str) -> str:
    """Return the value of an option, in the form `NAME VALUE` or `NAME=VALUE`; "" without it."""
    for index, word in enumerate(argv):
        if word == name and index + 1 < len(argv):
            return argv[index + 1]
        if word.startswith(f"{name}="):
            return word.partition("=")[2]
    return ""


def _format(name: str, uri: str, *, described: bool = False) -> ModelFormat | None:
    """Return the format `name` or, if that is empty, the format of the files at `uri`; None if it is unknown.

    With `described`, files that describe a folder, such as `MLmodel`, are left out.
    """
    names: list[str] = []
    if not name:
        with suppress(OSError, ValueError):
            parts = urlsplit(uri)
            path = Path(unquote(parts.path))
            if parts.scheme == "file" and path.is_dir():
                names = [entry.name for entry in islice(path.rglob("*"), MAX_NAMES)]
            else:
                names = [path.name]
    if described:
        deciding = {one for made in FORMATS.values() if made.decides for one in made.names}
        names = [name for name in names if name.lower() not in deciding]
    try:
        return find_format(name, names)
    except UnknownFormat:
        return None  # the server reports it when it loads the model
