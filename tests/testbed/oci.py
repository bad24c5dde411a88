"""Images as OCI archives, without a container engine: layers and a configuration in one tar that containerd imports.

The layout is that of the OCI Image Format Specification 1.1 (image-layout, image-index, manifest, config).
"""

from __future__ import annotations

import hashlib
import io
import json
import platform
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from tests.testbed import files
from tests.testbed.layers import Layer
from tests.testbed.trees import EPOCH, PLAIN_MODE

MEDIA_INDEX = "application/vnd.oci.image.index.v1+json"
MEDIA_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
MEDIA_CONFIG = "application/vnd.oci.image.config.v1+json"
ANNOTATION_NAME = "io.containerd.image.name"
"""containerd names the imported image by it."""
ANNOTATION_TAG = "org.opencontainers.image.ref.name"
CREATED = "1970-01-01T00:00:00Z"
"""The same for every image, so that the bytes depend on the content alone."""
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
"""Go's words, which OCI uses, for the kernel's."""
DIGEST_SHOWN = 12
"""hexadecimal digits in a file name; enough to tell archives apart, short enough to read."""
NOBODY = "65532:65532"
"""User and group of every image: not root, and nobody's on the machine (distroless' `nonroot`)."""


@dataclass(frozen=True, slots=True)
class Image:
    """An image: its full name with tag, its layers from the lowest on, and how it starts."""

    name: str
    layers: Sequence[Layer]
    entrypoint: Sequence[str] = ()
    command: Sequence[str] = ()
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Blob:
    media_type: str
    data: bytes

    @property
    def digest(self) -> str:
        return f"sha256:{hashlib.sha256(self.data).hexdigest()}"

    def descriptor(self, **more: Any) -> dict[str, Any]:
        return {"mediaType": self.media_type, "digest": self.digest, "size": len(self.data)} | more


def architecture() -> str:
    """This machine's architecture in OCI's words."""
    machine = platform.machine()
    return ARCHITECTURES.get(machine, machine)


def make_config(image: Image) -> dict[str, Any]:
    """The image configuration."""
    started = {
        "User": NOBODY,
        "Env": [f"{name}={value}" for name, value in sorted(image.environment.items())],
        "Entrypoint": list(image.entrypoint),
        "Cmd": list(image.command),
        "WorkingDir": "/",
    }
    return {
        "created": CREATED,
        "architecture": architecture(),
        "os": "linux",
        "config": {key: value for key, value in started.items() if value},
        "rootfs": {"type": "layers", "diff_ids": [layer.diff_id for layer in image.layers]},
    }


def write_archive(images: Sequence[Image], folder: Path, name: str) -> Path:
    """One archive `NAME-DIGEST.tar` with these images in `folder`; a layer that several share is in it once.

    An archive of this content that is there already stays as it is; older ones of this name are removed, and what an
    interrupted run left of one.
    """
    blobs, index = _describe(images)
    path = folder / f"{name}-{hashlib.sha256(index).hexdigest()[:DIGEST_SHOWN]}.tar"
    folder.mkdir(parents=True, exist_ok=True)
    if not path.exists():
        layers = {layer.digest: layer for image in images for layer in image.layers}
        files.write_with(path, lambda file: _write(file, index, blobs, list(layers.values())))
    for old in folder.glob(f"{name}-{'[0-9a-f]' * DIGEST_SHOWN}.tar*"):
        if old != path:
            old.unlink()
    return path


def _describe(images: Sequence[Image]) -> tuple[list[_Blob], bytes]:
    blobs: list[_Blob] = []
    manifests = []
    for image in images:
        config = _json(MEDIA_CONFIG, make_config(image))
        manifest = _json(MEDIA_MANIFEST, _manifest(image, config))
        blobs += [manifest, config]
        names = {ANNOTATION_NAME: image.name, ANNOTATION_TAG: image.name.rpartition(":")[2]}
        where = {"architecture": architecture(), "os": "linux"}
        manifests.append(manifest.descriptor(annotations=names, platform=where))
    return blobs, _json(MEDIA_INDEX, {"schemaVersion": 2, "mediaType": MEDIA_INDEX, "manifests": manifests}).data


def _manifest(image: Image, config: _Blob) -> dict[str, Any]:
    return {
        "schemaVersion": 2,
        "mediaType": MEDIA_MANIFEST,
        "config": config.descriptor(),
        "layers": [_layer_descriptor(layer) for layer in image.layers],
    }


def _layer_descriptor(layer: Layer) -> dict[str, Any]:
    return {"mediaType": layer.media_type, "digest": layer.digest, "size": layer.size}


def _json(media_type: str, document: dict[str, Any]) -> _Blob:
    return _Blob(media_type, json.dumps(document, sort_keys=True, separators=(",", ":")).encode())


def _write(file: BinaryIO, index: bytes, blobs: Sequence[_Blob], layers: Sequence[Layer]) -> None:
    with tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT) as tar:
        _add(tar, "oci-layout", b'{"imageLayoutVersion":"1.0.0"}')
        _add(tar, "index.json", index)
        for blob in blobs:
            _add(tar, _blob_path(blob.digest), blob.data)
        for layer in layers:
            with layer.path.open("rb") as source:
                tar.addfile(_header(_blob_path(layer.digest), layer.size), source)


def _blob_path(digest: str) -> str:
    return "blobs/" + digest.replace(":", "/")


def _header(path: str, size: int) -> tarfile.TarInfo:
    info = tarfile.TarInfo(path)
    info.mode, info.size, info.mtime = PLAIN_MODE, size, EPOCH
    return info


def _add(tar: tarfile.TarFile, path: str, data: bytes) -> None:
    tar.addfile(_header(path, len(data)), io.BytesIO(data))
