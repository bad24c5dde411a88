"""An artifact's files in a folder, for libraries that load from paths and from nothing else."""

from __future__ import annotations

import contextlib
import os
import posixpath
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

from clusters.base.redact import one_line
from serving.engines.base.errors import LoadFailed
from serving.storage.folder_lock import LockedFolder, lock_folder

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType

    from serving.storage.base.artifact import Artifact

PREFIX: Final = "knodel-model-"
_ATTEMPTS: Final = 10  # to make a folder that no other server takes for a leftover before it is held


class Folder:
    """The files of an artifact below `path`, until `close`.

    What was promised by a digest is copied into a folder of this process's own ($TMPDIR): the very bytes that were
    verified are loaded, whatever happens to the files meanwhile. So is an artifact of one file, under the name `only`,
    and with `copy` every artifact, since whoever reads a file twice may read two files. Else a folder of which nothing
    was promised is used where it is. What servers left there that were killed goes when the next copy is made.
    """

    def __init__(self, artifact: Artifact, only: str = "", *, copy: bool = False) -> None:
        names = artifact.names()  # refuses what leads outside of the folder
        self._copy: LockedFolder | None = None
        if artifact.content is None and not artifact.digests and not copy:
            self.path = artifact.path
            return
        with _writing():
            _remove_leftovers(Path(tempfile.gettempdir()))
            self._copy = _new_folder()
        self.path = self._copy.path
        try:
            for name in names:
                _write(self.path / (only if artifact.content is not None else name), artifact.read(name))
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Folder:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Remove the copy, if there is one."""
        if self._copy is not None:
            self._copy.release()

    def without_path(self, words: str) -> str:
        """`words` on one line, without the place of the folder on this machine."""
        return one_line(words.replace(f"{self.path}/", "").replace(str(self.path), "…"))


def only_file(artifact: Artifact, suffixes: tuple[str, ...]) -> str:
    """The one file of the artifact whose name ends so, the highest in its folders. Raises LoadFailed, StorageError.

    A whole name is a suffix too; `model.py` does not find `my_model.py`.
    """
    names = artifact.names()
    if artifact.content is not None:
        return names[0]  # a download may have any name
    found = [name for name in names if _ends_with(posixpath.basename(name), suffixes)]
    top = min((name.count("/") for name in found), default=0)
    found = [name for name in found if name.count("/") == top]
    if len(found) != 1:
        raise LoadFailed(
            f"{artifact.uri} has {len(found)} files {' or '.join(suffixes)} in one place: name the folder of one model"
        )
    return found[0]


def _ends_with(name: str, suffixes: tuple[str, ...]) -> bool:
    lower = name.lower()
    return any(lower.endswith(suffix) if suffix.startswith(".") else lower == suffix for suffix in suffixes)


def _new_folder() -> LockedFolder:
    for _ in range(_ATTEMPTS):
        made = lock_folder(Path(tempfile.mkdtemp(prefix=PREFIX)))
        if made is not None:
            made.temporary = True
            return made
    raise LoadFailed("the folder for a copy of the model is taken away by other servers: set $TMPDIR to another place")


def _remove_leftovers(place: Path) -> None:
    for left in place.glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError):  # of another user, or gone meanwhile
            if left.lstat().st_uid == os.getuid() and (held := lock_folder(left, exclusive=True)) is not None:
                held.temporary = True
                held.release()


def _write(path: Path, content: bytes) -> None:
    with _writing():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


@contextlib.contextmanager
def _writing() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise LoadFailed(
            f"the model's files cannot be copied to the temporary folder ({error.strerror}): give $TMPDIR more space"
        ) from error
