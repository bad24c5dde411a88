"""Save scikit-learn estimators with skops, so that equal estimators have equal bytes. A version is its bytes.

skops names the parts of a file by their address in memory, and its archive has the time of the call. Both are replaced:
parts get numbers in the order of the file, and the archive gets the earliest time that the format has. The schema
(skops, `skops/io/_utils.py`) has the address of a part in `__id__`, and the name of a part's file in `file`.
"""

from __future__ import annotations

import io
import json
import posixpath
import zipfile
from collections.abc import Mapping
from typing import Any, Final

SCHEMA: Final = "schema.json"
_ID, _FILE = "__id__", "file"
_EARLIEST: Final = (1980, 1, 1, 0, 0, 0)
_READABLE: Final = 0o600 << 16  # permissions of a file, where the archive keeps them


def dump(estimator: Any) -> bytes:
    """Return the estimator in skops's format. Raises what skops raises for an object that it cannot save."""
    import skops.io

    return reproducible(skops.io.dumps(estimator))


def reproducible(content: bytes) -> bytes:
    """Return the same file without addresses in memory and times. Pure."""
    made = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(content)) as given, zipfile.ZipFile(made, "w") as written:
        names = [name for name in given.namelist() if name != SCHEMA]
        files = {name: f"{number}{posixpath.splitext(name)[1]}" for number, name in enumerate(names)}
        for name in names:
            written.writestr(_entry(files[name]), given.read(name))
        schema = _renamed(json.loads(given.read(SCHEMA)), {}, files)
        written.writestr(_entry(SCHEMA), json.dumps(schema))
    return made.getvalue()


def _renamed(node: Any, ids: dict[int, int], files: Mapping[str, str]) -> Any:
    if isinstance(node, list):
        return [_renamed(one, ids, files) for one in node]
    if not isinstance(node, dict):
        return node
    made = {name: _renamed(value, ids, files) for name, value in node.items() if name not in (_ID, _FILE)}
    if _ID in node:  # a part of the estimator may have a member of this name too; its value is a node, not a number
        given = node[_ID]
        made[_ID] = ids.setdefault(given, len(ids) + 1) if isinstance(given, int) else _renamed(given, ids, files)
    if _FILE in node:
        given = node[_FILE]
        made[_FILE] = files.get(given, given) if isinstance(given, str) else _renamed(given, ids, files)
    return made


def _entry(name: str) -> zipfile.ZipInfo:
    entry = zipfile.ZipInfo(name, _EARLIEST)
    entry.external_attr = _READABLE
    return entry
