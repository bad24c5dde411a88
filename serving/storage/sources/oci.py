"""`oci://REGISTRY/REPOSITORY:TAG`: a model in an image's /models, as KServe's modelcars have it.

Its digest is that of the manifest which the reference names; of an image for several machines, of their index.
"""

from __future__ import annotations

import platform
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from clusters.base.sizes import format_size
from serving.storage.archives.tree import Tree
from serving.storage.base import digest as digests
from serving.storage.base.disk import LARGEST_FILE
from serving.storage.base.errors import StorageError
from serving.storage.sources.oci_layer import FOLDER as MODELS
from serving.storage.sources.oci_layer import apply_layer
from serving.storage.sources.oci_reference import login_of, reference_of
from serving.storage.sources.registry import Registry
from serving.storage.sources.source import PARTS, Access, Folder, new_folder
from serving.storage.transfer.addresses import shown
from serving.storage.transfer.credentials import read
from serving.storage.transfer.progress import FolderProgress, Progress

MOST_LAYERS: Final = 128  # as container runtimes have it
LARGEST_IMAGE: Final = 2 * LARGEST_FILE  # bytes of all layers as they are sent: a model, and what it is built upon
_ARCHITECTURES: Final = {"x86_64": "amd64", "aarch64": "arm64"}


class _Platform(msgspec.Struct):
    architecture: str = ""
    os: str = ""


class _Descriptor(msgspec.Struct, rename="camel"):
    digest: str
    size: int
    media_type: str = ""
    platform: _Platform | None = None


class _Manifest(msgspec.Struct):
    """An image's manifest has layers, an index manifests."""

    layers: list[_Descriptor] = []
    manifests: list[_Descriptor] = []


class Image:
    """The model of one image."""

    is_image: Final = True
    filename: Final = ""

    def __init__(self, uri: str, access: Access) -> None:
        self._reference = reference_of(uri)
        self._name = shown(uri)
        self._access = access

    def bring(self, work: Path, progress: Progress) -> Folder:
        """Bring and unpack the layers. Raises StorageError."""
        registry = Registry(self._reference, self._login(), self._access.downloader, self._name)
        content = registry.manifest(self._reference.manifest)
        digest = digests.of_bytes(content)
        manifest = self._decoded(content)
        if manifest.manifests:
            content = registry.manifest(_for_this_machine(manifest.manifests).digest)
            manifest = self._decoded(content)
        if not 0 < len(manifest.layers) <= MOST_LAYERS:
            raise StorageError(
                f"{self._name}: has {len(manifest.layers)} layers: an image with a model has 1 to {MOST_LAYERS}"
            )
        tree = Tree(new_folder(work), self._name)
        for path in self._layers(registry, manifest.layers, work, progress):
            apply_layer(path, tree, self._name)
        if not tree.digests:
            raise StorageError(f"{self._name}: the image has no files in /{MODELS}: put the model there")
        return Folder(tree.folder, tree.digests, digest)

    def _layers(
        self, registry: Registry, layers: Sequence[_Descriptor], work: Path, progress: Progress
    ) -> Sequence[Path]:
        total = sum(layer.size for layer in layers)
        if total > LARGEST_IMAGE or any(layer.size < 0 for layer in layers):
            raise StorageError(
                f"{self._name}: its layers have {format_size(total)}, and {format_size(LARGEST_IMAGE)} is the limit"
            )
        parts = {layer.digest: work / PARTS / layer.digest.removeprefix(digests.PREFIX) for layer in layers}
        sizes = {layer.digest: layer.size for layer in layers}  # a layer may come twice
        wanted = [registry.layer(digest, sizes[digest], path) for digest, path in parts.items()]
        summed = FolderProgress(progress, sum(sizes.values()), LARGEST_IMAGE, self._name)
        self._access.downloader.save_all(wanted, summed)
        return [parts[layer.digest] for layer in layers]

    def _login(self) -> str:
        credentials = self._access.credentials
        config = credentials.file(".dockerconfigjson") or credentials.file("config.json")
        folder = credentials.environ.get("DOCKER_CONFIG")
        if config is None and folder:
            config = read(Path(folder) / "config.json", "the config.json that DOCKER_CONFIG names")
        return "" if config is None else login_of(config, self._reference.host)

    def _decoded(self, content: bytes) -> _Manifest:
        try:
            manifest = msgspec.json.decode(content, type=_Manifest)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise StorageError(f"{self._name}: the registry's manifest is none of an image") from error
        for found in (*manifest.layers, *manifest.manifests):
            digests.check_form(self._name, found.digest or "none")
        return manifest


def _for_this_machine(manifests: Sequence[_Descriptor]) -> _Descriptor:
    """The manifest for this machine; a model is the same for all, so that any will do in its place."""
    architecture = _ARCHITECTURES.get(platform.machine(), platform.machine())
    images = [found for found in manifests if found.platform is None or found.platform.os != "unknown"]  # attestations
    fitting = [found for found in images if found.platform == _Platform(architecture, "linux")]
    return (fitting or images or list(manifests))[0]
