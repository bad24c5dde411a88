"""The files of an artifact in a folder, for libraries that load only from paths."""

from __future__ import annotations

import contextlib
import os
import posixpath
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

from clusters.base.redact import one_line
from serving.engines.base.errors import LoadFailed
from serving.storage.base import digest, disk
from serving.storage.folder_lock import LockedFolder, lock_folder

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType

    from serving.storage.base.artifact import Artifact

PREFIX: Final = "knodel-model-"
ENGINE_PREFIX: Final = "knodel-engine-"
RAY_PREFIX: Final = "knray-"
"""Prefixes of the temporary folders with a model's files, the socket of an engine, and Ray's files."""
_SHORT: Final = Path("/tmp")  # noqa: S108 - only for folders that mkdtemp makes private
_HASHED_AT_ONCE: Final = 4  # files
_ATTEMPTS: Final = 10  # to create a folder that no other server removes as a leftover before it is locked


class ModelFolder:
    """The files of an artifact below `path`, until `close`.

    The files are copied to a temporary folder of this process ($TMPDIR) in these cases:

    - The artifact has a digest. The verified bytes are loaded then, even if the files change meanwhile.
    - The artifact is a single file. The copy is named `only`.
    - With `copy`, because a file that is read twice may have changed in between.

    Any other folder is used in place. With `in_place` every folder is, for files that are too large to be copied: their
    digests were verified when they were fetched, and later changes are not noticed.
    """

    def __init__(self, artifact: Artifact, only: str = "", *, copy: bool = False, in_place: bool = False) -> None:
        names = artifact.names()  # rejects names that lead outside of the folder
        self._copy: LockedFolder | None = None
        self._lock: object = None  # of a folder in the cache that is used in place
        if artifact.content is None and (in_place or not (artifact.digests or copy)):
            self.path, self._lock = artifact.path, artifact.lock
            return
        self._copy = temporary_folder(PREFIX)
        self.path = self._copy.path
        try:
            for name in names:
                content, target = artifact.read(name), self.path / (only if artifact.content is not None else name)
                with _copying():
                    target.parent.mkdir(parents=True, exist_ok=True)
                    target.write_bytes(content)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> ModelFolder:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Remove the copy, if there is one."""
        self._lock = None
        if self._copy is not None:
            self._copy.release()

    def without_path(self, text: str) -> str:
        """Return `text` on one line, without the path of the folder on this machine."""
        return one_line(text.replace(f"{self.path}/", "").replace(str(self.path), "…"))


def check_digests(artifact: Artifact) -> None:
    """Compare the files of a folder with their digests, in place: the weights are too large to copy.

    Raises StorageError.
    """

    def check(name: str) -> None:
        path = f"{artifact.uri}: {name!r}"
        with contextlib.closing(disk.open_regular(artifact.path / name, path, artifact.path)) as file:
            digest.check(path, artifact.digests[name], digest.of_open_file(file))

    from concurrent.futures import ThreadPoolExecutor  # few engines need it

    with ThreadPoolExecutor(_HASHED_AT_ONCE) as threads:
        for _ in threads.map(check, artifact.digests):
            pass


def only_file(artifact: Artifact, suffixes: tuple[str, ...]) -> str:
    """Return the name of the only file with one of the suffixes, in the topmost folder that has any.

    A suffix without a leading dot is a whole file name: `model.py` does not match `my_model.py`. A single-file
    artifact may have any name. Raises LoadFailed, StorageError.
    """
    names = artifact.names()
    if artifact.content is not None:
        return names[0]  # a download may have any name
    found = []
    for name in names:
        lower = posixpath.basename(name).lower()
        if any(lower.endswith(suffix) if suffix.startswith(".") else lower == suffix for suffix in suffixes):
            found.append(name)
    top = min((name.count("/") for name in found), default=0)
    found = [name for name in found if name.count("/") == top]
    if len(found) != 1:
        raise LoadFailed(
            f"{artifact.uri} has {len(found)} files {' or '.join(suffixes)} in one place: name the folder of one model"
        )
    return found[0]


def temporary_folder(prefix: str, place: Path | None = None) -> LockedFolder:
    """Return a new folder in `place`, by default $TMPDIR, which is deleted when it is released.

    Folders that killed servers of this user have left there are deleted. Raises LoadFailed.
    """
    with _copying():
        place = place or Path(tempfile.gettempdir())
        _remove_leftovers(place)
        for _ in range(_ATTEMPTS):
            made = lock_folder(Path(tempfile.mkdtemp(prefix=prefix, dir=place)))
            if made is not None:
                made.temporary = True
                return made
    raise LoadFailed("other servers delete the temporary folder of the model: set $TMPDIR to another place")


def short_folder(prefix: str, name: str, longest: int) -> LockedFolder:
    """Return a temporary folder in which the path of `name` has at most `longest` bytes, for sockets.

    It is in /tmp if $TMPDIR is too long. Raises LoadFailed.
    """
    folder = temporary_folder(prefix)
    if len(os.fsencode(folder.path / name)) > longest:
        folder.release()
        folder = temporary_folder(prefix, _SHORT)
    return folder


def _remove_leftovers(place: Path) -> None:
    """Delete the folders that no process has locked: those of other users stay, and so do links."""
    for left in (found for prefix in (PREFIX, ENGINE_PREFIX, RAY_PREFIX) for found in place.glob(f"{prefix}*")):
        with contextlib.suppress(OSError):  # it belongs to another user, or is gone meanwhile
            if left.lstat().st_uid == os.getuid() and (held := lock_folder(left, exclusive=True)) is not None:
                held.temporary = True
                held.release()


@contextlib.contextmanager
def _copying() -> Iterator[None]:
    """Turn an OSError inside the block into a LoadFailed with the remedy."""
    try:
        yield
    except OSError as error:
        raise LoadFailed(
            f"the temporary folder of the model cannot be written ({error.strerror}): give $TMPDIR more space"
        ) from error
