"""Upload the local model files of a deploy to a cluster, whose Pods cannot read this machine."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from serving.client.errors import ClientError, UsageError
from serving.client.home import expand_home
from serving.types.settings.settings import ArtifactSettings

if TYPE_CHECKING:
    from serving.storage.upload.upload import UploadedArtifact

UploadProgress = Callable[[str, int, int], None]
"""Called with the phase ("reading" or "uploading"), the bytes that are done and their total."""


def upload_files(
    path: Path,
    promised: str,
    artifacts: ArtifactSettings,
    context: str,
    *,
    dry_run: bool = False,
    environ: Mapping[str, str] = os.environ,
    progress: UploadProgress | None = None,
    warn: Callable[[str], None] = lambda line: None,
) -> UploadedArtifact:
    """Upload the files at `path` to the store in the settings of the cluster of `context`, a kubeconfig context.

    `promised`, unless it is empty, must be the digest of the files. With `dry_run` nothing is sent. Raises UsageError
    when the cluster has no store, or the files or the credentials cannot be used; ClientError when the store fails.
    """
    from serving.storage.base import digest as digests  # heavy; only local files need these
    from serving.storage.base.errors import HttpStatusError, StorageError, TransferInterrupted
    from serving.storage.upload.upload import ignore_upload_progress, locate, upload

    if not artifacts.prefix:
        raise UsageError(
            f"{path} is on this machine, and the cluster has no store for such files, since its setting "
            f"artifacts.prefix is not set: `knodel config --kube-context {context} --set "
            "artifacts.prefix=s3://BUCKET/PREFIX` sets it; or give the URI of files that are in a store"
        )
    name, report = stored_name(path.name), progress or ignore_upload_progress
    try:
        if promised:
            digests.check(str(path), promised, locate(path, artifacts.prefix, name, report).digest)
        if dry_run:
            return locate(path, artifacts.prefix, name, report)
        return upload(
            path, artifacts.prefix, environ, cache_folder(environ), file_name=name, progress=report, warn=warn
        )
    except (HttpStatusError, TransferInterrupted) as error:
        raise ClientError(str(error)) from error
    except StorageError as error:
        raise UsageError(str(error)) from error


def stored_name(name: str) -> str:
    """Return the name of a single file in the store: the same for all names of the same format.

    So equal bytes have one URI, whatever their local name. The suffix and the whole names that determine the format are
    kept.

    Example:
        stored_name("iris-2.onnx"), stored_name("model.json")  # "model.onnx", "model.json"
    """
    from serving.engines.base.registry import FORMATS  # heavy; only local files need these
    from serving.storage.archives.archive import SUFFIXES, is_archive

    lower = name.lower()
    whole = {known for made in FORMATS.values() for known in made.names}
    if lower in whole:
        return lower
    suffix = next(end for end in SUFFIXES if lower.endswith(end)) if is_archive(name) else Path(lower).suffix
    plain = f"model{suffix}"
    return f"file{suffix}" if plain in whole else plain


def cache_folder(environ: Mapping[str, str]) -> Path:
    """Return the cache folder of the command, by the XDG base directory specification. Raises UsageError."""
    base = Path(environ.get("XDG_CACHE_HOME") or "")
    return (base if base.is_absolute() else expand_home("~/.cache")) / "knodel"
