"""The digest of the files that a revision loaded first. All later replicas of the revision must load the same files.

The platform records the digest in a folder that replicas mount, in a file with the revision's name. A replica also
stores its own digest in its scratch folder, because its container may restart before the record is mounted.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from serving.modelserver.base.errors import BadOptions
from serving.storage.base.digest import check_form
from serving.storage.base.errors import StorageError

RECORD_VARIABLE: Final = "KNODEL_DIGESTS"
"""Environment variable with the folder of the platform's records; without it nothing is recorded."""
FILE_NAME: Final = "knodel-first-digest"
_MAX_SIZE: Final = 100  # bytes; a digest has 71


def first_digest(environ: Mapping[str, str], revision: str, scratch: Path) -> str:
    """Return the digest that the revision loaded first, "" if unknown. Raises BadOptions for an invalid record."""
    folder = environ.get(RECORD_VARIABLE)
    if not folder:
        return ""
    for path in (Path(folder) / revision, scratch / FILE_NAME):
        with suppress(FileNotFoundError):
            try:
                with path.open("rb") as file:
                    digest = file.read(_MAX_SIZE).decode("ascii", "replace").strip()
                check_form(str(path), digest)
            except (OSError, StorageError) as error:
                if isinstance(error, FileNotFoundError):
                    raise
                raise BadOptions(f"cannot use the recorded digest of {revision}: {error}") from error
            if digest:
                return digest
    return ""


def remember(scratch: Path, digest: str) -> None:
    """Store the digest of the loaded files for a restart of this container. Ignores errors of the file system."""
    path = scratch / FILE_NAME
    with suppress(OSError):
        path.with_suffix(".new").write_text(digest, encoding="ascii")
        path.with_suffix(".new").replace(path)
