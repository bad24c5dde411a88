"""Resolve a URI of MLflow to the address of the model's files, and the label of its version.

The Model then names that very version: an alias that moves later changes nothing. Artifacts that only the tracking
server can read (`mlflow-artifacts:`) are downloaded, and deployed as files of this machine.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, unquote, urlsplit

from serving.client.artifacts import cache_folder
from serving.client.errors import ClientError, DoesNotExist, UsageError
from serving.client.mlflow.download import download_artifacts
from serving.client.mlflow.references import REGISTERED, Reference, is_reference, read_reference
from serving.client.mlflow.tracking import API, ARTIFACTS, TrackingServer, tracking_server
from serving.client.transfer_meter import TransferMeter
from serving.storage.transfer.progress import Progress, ignore_progress
from serving.types.faults import SCHEMES

_READY: Final = frozenset({"READY", "LOGGED_MODEL_READY", ""})
_MOST: Final = 3  # addresses that lead to another: a version to a logged model to its artifacts


@dataclass(frozen=True, slots=True)
class ResolvedModel:
    """The files of a model: a storage URI, or a path of this machine. `version` is its label, `text` for people."""

    location: str
    version: str
    text: str


def resolve(uri: str, environ: Mapping[str, str], cache: Path, progress: Progress = ignore_progress) -> ResolvedModel:
    """Return the files of a URI of MLflow. Downloads proxied artifacts to the folder `cache`.

    Raises UsageError for a URI or setting that cannot be used, DoesNotExist for a model, version, alias or run that the
    server does not have, ClientError when it fails, and Unreachable.

    Example:
        resolve("models:/churn@champion", os.environ, Path("cache")).version  # "7"
    """
    reference = read_reference(uri)
    version, label = "", ""
    for _ in range(_MOST):
        server = tracking_server(environ, uri, registry=reference.kind in REGISTERED)
        if reference.kind == "artifacts":
            return _proxied(server, reference, version, uri, cache, progress)
        address, found = _address(server, reference)
        version, label = version or found, label or found
        if is_reference(address):
            reference = read_reference(address)
            continue
        return _located(server, address, version, uri, cache, progress)
    raise ClientError(f"{uri} leads from one address to another without end: log the model again")


def resolve_shown(uri: str, show: Callable[[str], None]) -> ResolvedModel:
    """Resolve a URI of MLflow with the environment and cache of this user. `show` gets the text of the progress."""
    meter = TransferMeter(uri)
    return resolve(
        uri,
        os.environ,
        cache_folder(os.environ),
        lambda done, total: show(meter.text("downloading", done, total or done)),
    )


def _address(server: TrackingServer, reference: Reference) -> tuple[str, str]:
    """Return the address of the artifacts, and the version's label."""
    if reference.kind == "logged":
        info = _logged_model(server, reference.name, reference.uri)
        return _text(info, "artifact_uri", reference.uri), reference.name
    if reference.kind == "run":
        return _of_run(server, reference), reference.name
    version = _version(server, reference)
    found = server.get(
        f"{API}/model-versions/get-download-uri",
        f"{reference.uri} does not exist",
        name=reference.name,
        version=version,
    )
    return _text(found, "artifact_uri", reference.uri), version


def _version(server: TrackingServer, reference: Reference) -> str:
    """Return the number of the version that the reference means. Raises DoesNotExist, ClientError."""
    name, part, missing = reference.name, reference.part, f"{reference.uri} does not exist"
    if reference.kind == "alias":
        missing = f"{missing}: the registered model {name!r} has no alias {part!r}, or does not exist"
        versions = [server.get(f"{API}/registered-models/alias", missing, name=name, alias=part).get("model_version")]
    elif reference.kind == "version":
        versions = [server.get(f"{API}/model-versions/get", missing, name=name, version=part).get("model_version")]
    else:
        stages = {"stages": [part]} if reference.kind == "stage" else {}
        asked = {"name": name, **stages}
        versions = server.post(f"{API}/registered-models/get-latest-versions", asked, missing).get("model_versions", [])
        if not isinstance(versions, list) or not versions:
            raise DoesNotExist(f"{missing}: the registered model {name!r} has no version{f' in {part}' * bool(stages)}")
    newest = max(versions, key=lambda one: _number(one, reference.uri))
    if newest.get("status", "") not in _READY:
        raise ClientError(f"{reference.uri} is not ready: its status is {str(newest.get('status'))[:40]}")
    return str(newest["version"])


def _number(version: Any, uri: str) -> int:
    text = str(version.get("version", "")) if isinstance(version, dict) else ""
    if not (text.isascii() and text.isdigit()):
        raise ClientError(f"{uri}: the tracking server answered without a version")
    return int(text)


def _of_run(server: TrackingServer, reference: Reference) -> str:
    """Return the address of a path of a run. Models that MLflow 3 logs are beside the run, by their name."""
    missing = f"{reference.uri} does not exist: the tracking server has no run {reference.name!r}"
    run = server.get(f"{API}/runs/get", missing, run_id=reference.name).get("run")
    info = run.get("info") if isinstance(run, dict) else None
    if not isinstance(info, dict):
        raise ClientError(f"{reference.uri}: the tracking server answered without a run")
    name, _, rest = reference.part.partition("/")
    found = _logged_in_run(server, str(info.get("experiment_id", "")), reference.name, name) if name else ""
    base, path = (found, rest) if found else (_text(info, "artifact_uri", reference.uri), reference.part)
    return f"{base.rstrip('/')}/{path}" if path else base


def _logged_in_run(server: TrackingServer, experiment: str, run: str, name: str) -> str:
    """Return the address of the model that a run has logged under a name; "" without one, as before MLflow 3."""
    if "'" in name:
        return ""
    query = {"experiment_ids": [experiment], "filter": f"name = '{name}'"}
    try:
        models = server.post(f"{API}/logged-models/search", query, "no logged models").get("models")
    except DoesNotExist:
        return ""
    found = [one.get("info") for one in models if isinstance(one, dict)] if isinstance(models, list) else []
    infos = [info for info in found if isinstance(info, dict)]
    return next((str(info.get("artifact_uri", "")) for info in infos if info.get("source_run_id") == run), "")


def _logged_model(server: TrackingServer, model_id: str, uri: str) -> Mapping[str, Any]:
    missing = f"{uri} does not exist: write models:/NAME/VERSION or models:/NAME@ALIAS for a registered model"
    model = server.get(f"{API}/logged-models/{quote(model_id, safe='')}", missing).get("model")
    info = model.get("info") if isinstance(model, dict) else None
    if not isinstance(info, dict):
        raise ClientError(f"{uri}: the tracking server answered without a model")
    if info.get("status", "") not in _READY:
        raise ClientError(f"{uri} is not ready: its status is {str(info.get('status'))[:40]}")
    return info


def _text(found: Mapping[str, Any], name: str, uri: str) -> str:
    value = found.get(name)
    if not isinstance(value, str) or not value:
        raise ClientError(f"{uri}: the tracking server answered without the address of the artifacts")
    return value


def _located(
    server: TrackingServer, address: str, version: str, uri: str, cache: Path, progress: Progress
) -> ResolvedModel:
    """Return the model whose artifacts have this address in a store."""
    parts = urlsplit(address)
    text = f"{uri} is version {version}: {address}"
    if parts.scheme in ("", "file"):
        path = Path(unquote(parts.path) if parts.scheme else address)
        if not path.exists():
            raise UsageError(
                f"{text}, a folder of the tracking server's own machine: start it with --serve-artifacts or with an "
                "artifact root in s3:// or gs://, or deploy on that machine"
            )
        return ResolvedModel(str(path), version, text)
    if parts.scheme in ("http", "https"):
        root, found, path_in_store = address.partition(f"{ARTIFACTS}/")
        if not found or not server.url.startswith(root.rstrip("/")):
            raise UsageError(f"{text}, which is not a folder of the tracking server: upload it to s3:// or gs://")
        return _proxied(server, Reference(uri, "artifacts", path_in_store), version, uri, cache, progress)
    if parts.scheme not in SCHEMES:
        raise UsageError(
            f"{text}, and the store {parts.scheme}: is not supported: `mlflow artifacts download --artifact-uri {uri} "
            "--dst-path DIR` fetches it; deploy DIR"
        )
    return ResolvedModel(address, version, text)


def _proxied(
    server: TrackingServer, reference: Reference, version: str, uri: str, cache: Path, progress: Progress
) -> ResolvedModel:
    """Download artifacts that the tracking server gives out, and return their folder."""
    if reference.part and reference.part.partition(":")[0] != server.address.host:
        raise UsageError(f"{reference.uri} is on another server than MLFLOW_TRACKING_URI: set it to that server")
    folder = download_artifacts(server, reference.name, uri, cache, progress)
    return ResolvedModel(str(folder), version, f"{uri} is version {version}" if version else uri)
