"""Make an OCI image of a model: layers with the folder /models, as KServe's modelcars have it. Nothing is sent here.

Equal files give equal bytes, and so an equal digest: layers are plain tar files, sorted by path, without times and
owners. A large file has a layer of its own, so that it is sent on its own, and once for all versions that have it.
Source: the OCI image specification, manifest.md and config.md.
"""

from __future__ import annotations

import json
import tarfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from serving.storage.sources.oci_layer import FOLDER
from serving.storage.transfer.parallel import run_all
from serving.storage.upload.artifact import READ_AT_ONCE, Counter, LocalFiles, Report
from serving.storage.upload.content import PART, Blob, BytesContent, Content, JoinedContent, hash_content

MANIFEST: Final = "application/vnd.oci.image.manifest.v1+json"
CONFIG: Final = "application/vnd.oci.image.config.v1+json"
LAYER: Final = "application/vnd.oci.image.layer.v1.tar"
MOST_LARGE: Final = 100
"""Layers of single files; replicas load at most 128 layers (`sources.oci`)."""
_MODE: Final = 0o644
_BLOCK: Final = tarfile.BLOCKSIZE


@dataclass(frozen=True, slots=True)
class Image:
    """An image: its layers, its configuration and its manifest, whose digest identifies it."""

    name: str
    layers: tuple[Blob, ...]
    config: Blob
    manifest: Blob

    @property
    def blobs(self) -> tuple[Blob, ...]:
        """Everything that the registry must have before the manifest."""
        return (*self.layers, self.config)


def make_image(files: LocalFiles, report: Report) -> Image:
    """Read the files, and return their image. Raises StorageError."""
    contents = [_layer(files, group) for group in _groups(files)]
    counter = Counter(report, sum(content.size for content in contents))
    tasks = [partial(hash_content, "", files.name, content, counter.add) for content in contents]
    layers = tuple(run_all(tasks, READ_AT_ONCE, lambda: None))
    config = _document(
        files.name,
        {
            "architecture": "amd64",
            "os": "linux",
            "config": {},
            "rootfs": {"type": "layers", "diff_ids": [layer.digest for layer in layers]},
        },
    )
    manifest = {
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": _descriptor(CONFIG, config),
        "layers": [_descriptor(LAYER, layer) for layer in layers],
    }
    return Image(files.name, layers, config, _document(files.name, manifest))


def _groups(files: LocalFiles) -> list[list[str]]:
    """Return the paths of each layer: the small files together, then each of the largest ones."""
    sizes = {path: content.size for path, content in files.contents.items()}
    large = sorted((path for path in sizes if sizes[path] >= PART), key=lambda path: (-sizes[path], path))[:MOST_LARGE]
    small = sorted(set(sizes) - set(large))
    return ([small] if small else []) + [[path] for path in sorted(large)]


def _layer(files: LocalFiles, paths: Sequence[str]) -> Content:
    """Return the tar file of these files."""
    parts: list[Content] = []
    for path in paths:
        content = files.contents[path]
        entry = tarfile.TarInfo(f"{FOLDER}/{path}")
        entry.size, entry.mode = content.size, _MODE
        parts += [BytesContent(entry.tobuf(tarfile.PAX_FORMAT)), content, BytesContent(bytes(-content.size % _BLOCK))]
    return JoinedContent([*parts, BytesContent(bytes(2 * _BLOCK))])


def _document(name: str, value: dict[str, Any]) -> Blob:
    content = json.dumps(value, separators=(",", ":")).encode()
    return hash_content("", name, BytesContent(content), lambda size: None)


def _descriptor(media_type: str, blob: Blob) -> dict[str, Any]:
    return {"mediaType": media_type, "digest": blob.digest, "size": blob.size}
