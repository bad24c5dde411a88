"""`oci://REGISTRY/REPOSITORY:TAG`: a model in the folder /models of an image, as in KServe's modelcars.

Its digest is that of the manifest with this tag or digest; of a multi-platform image, that of its index.
"""

from __future__ import annotations

import platform
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from clusters.base.redact import redact_url
from clusters.base.sizes import format_size
from serving.storage.archives.folder_writer import FolderWriter
from serving.storage.base import digest as digests
from serving.storage.base.disk import LARGEST_FILE
from serving.storage.base.errors import StorageError
from serving.storage.sources.oci_layer import FOLDER as MODELS
from serving.storage.sources.oci_layer import apply_layer
from serving.storage.sources.oci_reference import basic_credentials, parse_reference
from serving.storage.sources.registry import Registry
from serving.storage.sources.source import PARTS, DownloadedFolder, SourceContext, new_folder
from serving.storage.transfer.credentials import read_small_file
from serving.storage.transfer.progress import FolderProgress, Progress

MOST_LAYERS: Final = 128  # the limit of container runtimes
LARGEST_IMAGE: Final = 2 * LARGEST_FILE  # bytes of all compressed layers: a model and its base image
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
    """A manifest (with `layers`) or an index (with `manifests`)."""

    layers: list[_Descriptor] = []
    manifests: list[_Descriptor] = []


class OciImageSource:
    """The model in an image."""

    is_image: Final = True
    filename: Final = ""

    def __init__(self, uri: str, context: SourceContext) -> None:
        self._reference = parse_reference(uri)
        self._name = redact_url(uri)
        self._context = context

    def download(self, work: Path, progress: Progress) -> DownloadedFolder:
        """Download and unpack the layers. Raises StorageError."""
        downloader = self._context.downloader
        registry = Registry(self._reference, self._login(), downloader.client, downloader.retry, self._name)
        content = registry.manifest(self._reference.manifest)
        digest = digests.of_bytes(content)
        manifest = self._decode(content)
        if manifest.manifests:
            content = registry.manifest(_for_this_platform(manifest.manifests).digest)
            manifest = self._decode(content)
        if not 0 < len(manifest.layers) <= MOST_LAYERS:
            raise StorageError(
                f"{self._name}: has {len(manifest.layers)} layers: an image with a model has 1 to {MOST_LAYERS}"
            )
        writer = FolderWriter(new_folder(work), self._name)
        for path in self._download_layers(registry, manifest.layers, work, progress):
            apply_layer(path, writer, self._name)
        if not writer.digests:
            raise StorageError(f"{self._name}: the image has no files in /{MODELS}: put the model there")
        return DownloadedFolder(writer.folder, writer.digests, digest)

    def _download_layers(
        self, registry: Registry, layers: Sequence[_Descriptor], work: Path, progress: Progress
    ) -> Sequence[Path]:
        """Download the layers, several at once, and return their paths in order. Raises StorageError."""
        total = sum(layer.size for layer in layers)
        if total > LARGEST_IMAGE or any(layer.size < 0 for layer in layers):
            raise StorageError(
                f"{self._name}: its layers have {format_size(total)}, and {format_size(LARGEST_IMAGE)} is the limit"
            )
        parts = {layer.digest: work / PARTS / layer.digest.removeprefix(digests.PREFIX) for layer in layers}
        sizes = {layer.digest: layer.size for layer in layers}  # a layer may occur twice
        wanted = [registry.layer(digest, sizes[digest], path) for digest, path in parts.items()]
        summed = FolderProgress(progress, sum(sizes.values()), LARGEST_IMAGE, self._name)
        self._context.downloader.save_all(wanted, summed)
        return [parts[layer.digest] for layer in layers]

    def _login(self) -> str:
        credentials = self._context.credentials
        config = credentials.file(".dockerconfigjson") or credentials.file("config.json")
        folder = credentials.environ.get("DOCKER_CONFIG")
        if config is None and folder:
            config = read_small_file(Path(folder) / "config.json", "config.json in the folder of DOCKER_CONFIG")
        return "" if config is None else basic_credentials(config, self._reference.host)

    def _decode(self, content: bytes) -> _Manifest:
        try:
            manifest = msgspec.json.decode(content, type=_Manifest)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise StorageError(f"{self._name}: the manifest is not that of an image") from error
        for found in (*manifest.layers, *manifest.manifests):
            digests.check_form(self._name, found.digest or "none")
        return manifest


def _for_this_platform(manifests: Sequence[_Descriptor]) -> _Descriptor:
    """Return the manifest for this machine, else any: the model is the same for all platforms."""
    architecture = _ARCHITECTURES.get(platform.machine(), platform.machine())
    images = [found for found in manifests if found.platform is None or found.platform.os != "unknown"]  # attestations
    fitting = [found for found in images if found.platform == _Platform(architecture, "linux")]
    return (fitting or images or list(manifests))[0]
