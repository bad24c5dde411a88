"""Numbered versions: a folder whose models are in subfolders `1`, `2`, …, as TensorFlow Serving and Triton read them.

The newest version is served. The rules of the names are Triton's: a subfolder is a version when its name is a number
without leading zeros; TensorFlow Serving allows leading zeros, so a folder without `config.pbtxt` may have them.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from serving.engines.layouts.layout import Layout

if TYPE_CHECKING:
    from serving.storage.base.artifact import Artifact

log = logging.getLogger(__name__)

_LONGEST: Final = 18  # digits; both servers read 64-bit numbers


def detect(artifact: Artifact, names: Sequence[str]) -> Layout | None:
    """Return the newest version of a folder with nothing but versions, or None for any other folder."""
    tops = {name.partition("/")[0] for name in names}
    if len(names) == 0 or any("/" not in name for name in names) or not all(is_version(top) for top in tops):
        return None
    newest = max(tops, key=int)
    log.info("serving version %s of %s", newest, ", ".join(sorted(tops, key=int)))
    return Layout(artifact.below(newest), "numbered versions")


def is_version(name: str) -> bool:
    """Return whether a subfolder's name is the number of a version."""
    return name.isascii() and name.isdigit() and len(name) <= _LONGEST and int(name) > 0
