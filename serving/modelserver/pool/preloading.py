"""What a zygote imports for a server: looked up without importing any of it."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from serving.engines.base.errors import UnknownFormat
from serving.engines.base.registry import Format, find_format
from serving.modelserver.base.options import DEFAULT_POOL_FORMAT

SERVER: Final = ("serving.modelserver.main", "serving.modelserver.run")
FOR_LOADS: Final = (
    "serving.storage.transfer.http", "serving.storage.remote", "serving.storage.sources.sources",
    "serving.storage.sources.web_file",
    "encodings.idna", "clusters.base.version",
)  # fmt: skip
"""What a server imports only when it is asked for: downloads, names of hosts, `GET /v2`."""
MOST_NAMES: Final = 1000  # of a folder that are looked at: this runs in the control plane's loop


def modules_for(argv: Sequence[str]) -> tuple[str, ...]:
    """See `serving.modelserver.preload`."""
    if "--pool" in argv:
        return _for_pool(_option(argv, "--format") or DEFAULT_POOL_FORMAT)
    made = _format(_option(argv, "--format"), _option(argv, "--storage-uri"))
    return SERVER if made is None or not _is_installed(made) else (*SERVER, made.module)


def _for_pool(name: str) -> tuple[str, ...]:
    """All that a claim may need: nothing is to be imported when it comes."""
    made = _format(name, "")
    return (*SERVER, *FOR_LOADS) if made is None or not _is_installed(made) else (*SERVER, *FOR_LOADS, made.module)


def _option(argv: Sequence[str], name: str) -> str:
    for index, word in enumerate(argv):
        if word == name and index + 1 < len(argv):
            return argv[index + 1]
        if word.startswith(f"{name}="):
            return word.partition("=")[2]
    return ""


def _format(name: str, uri: str) -> Format | None:
    try:
        return find_format(name, () if name else _names(uri))
    except UnknownFormat:
        return None  # the server will say so when it loads


def _names(uri: str) -> list[str]:
    try:
        parts = urlsplit(uri)
        path = Path(unquote(parts.path))
        if parts.scheme == "file" and path.is_dir():
            return [entry.name for entry, _ in zip(path.iterdir(), range(MOST_NAMES), strict=False)]
    except (OSError, ValueError):
        return []
    return [path.name]


def _is_installed(made: Format) -> bool:
    return importlib.util.find_spec(made.package) is not None
