"""Layers of an OCI image: what of them is the model (KServe's modelcars keep it in /models), one upon the other.

As the image specification has it (layer.md): a later layer replaces files of earlier ones, also by folders and folders
by files, `.wh.NAME` deletes one, and `.wh..wh..opq` all that earlier layers have in its folder. All else of an image is
passed over.
"""

from __future__ import annotations

import tarfile
from pathlib import Path, PurePosixPath
from typing import Final

from serving.storage.archives.guard import unpacking
from serving.storage.archives.tar_file import entries, refuse_special
from serving.storage.archives.tree import Tree, plain_name

FOLDER: Final = "models"
LARGEST_LAYER: Final = 64 << 30  # bytes when inflated; only those of the model are written
_WHITEOUT: Final = ".wh."
_OPAQUE: Final = ".wh..wh..opq"


def apply_layer(path: Path, tree: Tree, uri: str) -> None:
    """Change the tree as the layer at `path` (a tar file, plain or gzipped) tells. Raises StorageError."""
    earlier = set(tree.digests)
    with unpacking(uri):
        for entry, read in entries(path, uri, LARGEST_LAYER):
            name = _name_inside(entry, uri)
            if name is None:
                continue
            folder, _, last = name.rpartition("/")
            if last.startswith(_WHITEOUT):
                gone = folder if last == _OPAQUE else f"{folder}/{last.removeprefix(_WHITEOUT)}".removeprefix("/")
                _remove(tree, gone, earlier)
                continue
            refuse_special(name, entry, uri)
            _make_way(tree, name, entry.isdir(), earlier)
            if entry.isreg():
                tree.write(name, read)


def _name_inside(entry: tarfile.TarInfo, uri: str) -> str | None:
    """The name below FOLDER; None for what is not there."""
    whole = entry.name.removeprefix("./").removeprefix("/")
    if whole != FOLDER and not whole.startswith(FOLDER + "/"):
        return None
    return plain_name(whole.removeprefix(FOLDER).removeprefix("/"), uri)


def _make_way(tree: Tree, name: str, is_folder: bool, earlier: set[str]) -> None:
    """Take out what earlier layers have where the file or folder `name` comes now."""
    for parent in PurePosixPath(name).parents:
        if str(parent) in earlier:
            _remove(tree, str(parent), earlier)
    if name in earlier or (not is_folder and (tree.folder / name).is_dir()):
        _remove(tree, name, earlier)


def _remove(tree: Tree, gone: str, earlier: set[str]) -> None:
    """Take `gone`, or all that is below it, out of what earlier layers have brought."""
    for name in [name for name in earlier if not gone or name == gone or name.startswith(gone + "/")]:
        earlier.discard(name)
        tree.remove(name)
