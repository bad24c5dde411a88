"""The digest that a revision loaded first, which every later replica of it is held to.

The platform records it in a folder that replicas mount, in a file of the revision's name. A replica also remembers its
own in its scratch folder: a container that restarts may do so before the record is there.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from serving.modelserver.base.errors import BadOptions
from serving.storage.base.digest import check_form
from serving.storage.base.errors import StorageError

RECORD: Final = "KNODEL_DIGESTS"
"""Variable with the folder of the platform's records; without it nothing is recorded."""
FILE: Final = "knodel-first-digest"
_MOST: Final = 100  # bytes; a digest has 71


def first_digest(environ: Mapping[str, str], revision: str, scratch: Path) -> str:
    """Return the digest that the revision loaded first; "" when none is known. Raises BadOptions."""
    folder = environ.get(RECORD)
    if not folder:
        return ""
    for path in (Path(folder) / revision, scratch / FILE):
        with suppress(FileNotFoundError):
            try:
                with path.open("rb") as file:
                    digest = file.read(_MOST).decode("ascii", "replace").strip()
                check_form(str(path), digest)
            except (OSError, StorageError) as error:
                if isinstance(error, FileNotFoundError):
                    raise
                raise BadOptions(f"the recorded digest of {revision} cannot be used: {error}") from error
            if digest:
                return digest
    return ""


def remember(scratch: Path, digest: str) -> None:
    """Keep the digest of what was loaded for this container's next life. What cannot be written is not kept."""
    path = scratch / FILE
    with suppress(OSError):
        path.with_suffix(".new").write_text(digest, encoding="ascii")
        path.with_suffix(".new").replace(path)
