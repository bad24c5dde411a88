"""Archives of a model: a name that ends on one of SUFFIXES. Regular files only, or the whole archive is refused."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from serving.storage.base.errors import StorageError

if TYPE_CHECKING:
    from serving.storage.archives.tree import TreeLimits

SUFFIXES: Final = (".tar", ".tar.gz", ".tgz", ".zip")
_ZIP: Final = ".zip"


def is_archive(name: str) -> bool:
    """Whether a file of this name is unpacked."""
    return name.lower().endswith(SUFFIXES)


def unpack(path: Path, name: str, folder: Path, uri: str, limits: TreeLimits | None = None) -> dict[str, str]:
    """Unpack the archive at `path`, called `name`, into the empty `folder`; relative path → digest of each file.

    Refused are links, devices, names that lead out or come twice, too many files or bytes, and what inflates far beyond
    its size. Raises StorageError.
    """
    from serving.storage.archives.tree import Tree  # here and below: the libraries, which few models need

    tree = Tree(folder, uri, limits)
    if name.lower().endswith(_ZIP):
        from serving.storage.archives.zip_file import unpack_zip

        unpack_zip(path, tree, uri)
    else:
        from serving.storage.archives.tar_file import unpack_tar

        unpack_tar(path, tree, uri)
    if not tree.digests:
        raise StorageError(f"{uri}: the archive has no files")
    return tree.digests
