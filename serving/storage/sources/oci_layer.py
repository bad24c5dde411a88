"""Apply layers of an OCI image to the model's folder, `/models` as in KServe's modelcars.

Source: the image specification, layer.md. A later layer replaces files of earlier ones, also folders by files and files
by folders. `.wh.NAME` deletes a file, and `.wh..wh..opq` everything that earlier layers have in its folder. All other
folders of the image are ignored.
"""

from __future__ import annotations

import tarfile
from pathlib import Path, PurePosixPath
from typing import Final

from serving.storage.archives.bounded_reader import unpacking_errors
from serving.storage.archives.folder_writer import FolderWriter, safe_relative_path
from serving.storage.archives.tar_file import read_entries, refuse_special_file

FOLDER: Final = "models"
LARGEST_LAYER: Final = 64 << 30  # bytes when inflated; only the model's files are written
_WHITEOUT: Final = ".wh."
_OPAQUE: Final = ".wh..wh..opq"


def apply_layer(path: Path, writer: FolderWriter, uri: str) -> None:
    """Apply the layer at `path` (a tar file, plain or gzipped) to the folder. Raises StorageError."""
    earlier = set(writer.digests)
    with unpacking_errors(uri):
        for entry, read in read_entries(path, uri, LARGEST_LAYER):
            name = _name_in_folder(entry, uri)
            if name is None:
                continue
            folder, _, last = name.rpartition("/")
            if last.startswith(_WHITEOUT):
                deleted = folder if last == _OPAQUE else f"{folder}/{last.removeprefix(_WHITEOUT)}".removeprefix("/")
                _delete(writer, deleted, earlier)
                continue
            refuse_special_file(name, entry, uri)
            for parent in PurePosixPath(name).parents:  # a folder replaces a file
                if str(parent) in earlier:
                    _delete(writer, str(parent), earlier)
            if name in earlier or (not entry.isdir() and (writer.folder / name).is_dir()):
                _delete(writer, name, earlier)
            if entry.isreg():
                writer.write(name, read)


def _name_in_folder(entry: tarfile.TarInfo, uri: str) -> str | None:
    """Return the path of an entry relative to FOLDER; None for an entry outside of it."""
    whole = entry.name.removeprefix("./").removeprefix("/")
    if whole != FOLDER and not whole.startswith(FOLDER + "/"):
        return None
    return safe_relative_path(whole.removeprefix(FOLDER).removeprefix("/"), uri)


def _delete(writer: FolderWriter, deleted: str, earlier: set[str]) -> None:
    """Delete the file `deleted` of earlier layers, or all of their files below it."""
    for name in [name for name in earlier if not deleted or name == deleted or name.startswith(deleted + "/")]:
        earlier.discard(name)
        writer.remove(name)
