"""Promote the version of a Model that serves in one environment to another: the same bytes, rolled out there."""

from __future__ import annotations

import os
import shutil
import tempfile
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from clusters.base.errors import Forbidden, Invalid, NotFound
from clusters.base.objects import MODEL, REVISION, Object, labels_of
from serving.client.api import ApiCalls
from serving.client.effects import Call, work
from serving.client.errors import ClientError, UsageError
from serving.client.models.changes import changed_fields, store_object
from serving.client.models.deploying import LocalFiles, await_ready, uploaded
from serving.client.models.local_files import kept_limit, recorded_digest, short_digest
from serving.client.platform_ref import PlatformRef
from serving.reconciler.rollout.commands import cause_annotation
from serving.reconciler.rollout.versions import shares_of, versions_of
from serving.storage.base.service import service_url
from serving.storage.sources.local import LocalPath, file_uri_path
from serving.storage.transfer.urls import is_file_uri
from serving.types.annotations import ANNOTATION_CAUSE, LABEL_MODEL
from serving.types.model import ALL, Cause, HistoryEntry, history_of
from serving.types.settings.state import KEPT_FOLDER

OWN_PREFIX = "knodel.dev/"
VOLUME = "pvc://"
OF_THE_VERSION = ("storageUri", "digest", "version")
"""Fields of a spec that a promotion takes from the version."""
OF_THE_PLACE = ("traffic", "canaryTrafficPercent", "rollout")
"""Fields of a spec that a promotion does not copy to a new Model."""
TAKES_ALL: dict[str, Any] = {"traffic": None, "canaryTrafficPercent": None}
"""A rollout replaces a pin and a canary."""


class Place(NamedTuple):
    """A platform or cluster with the name of its environment (for people), and a namespace."""

    name: str
    ref: PlatformRef
    namespace: str


class ServingVersion(NamedTuple):
    """A Model, and the entry of its history for the version with all traffic."""

    model: Object
    entry: HistoryEntry


class Promoted(NamedTuple):
    """The stored Model of the target.

    `changes` are lines for the fields that differ from before, empty for a new Model. `unchanged`: the newest version
    had the same bytes already, so nothing was changed.
    """

    model: Object
    is_new: bool
    changes: list[str]
    unchanged: bool


def serving_version(api: ApiCalls, name: str, namespace: str) -> Call[ServingVersion]:
    """Return the version of a Model that has all the traffic. Raises NotFound, UsageError without such a version."""
    model = yield from api.get(MODEL, name, namespace)
    revisions = (yield from api.list(REVISION, namespace, f"{LABEL_MODEL}={name}"))["items"]
    shares = shares_of((model.get("status") or {}).get("traffic") or (), versions_of(revisions))
    holder = next((revision for revision, share in shares.items() if share >= ALL), "")
    if not holder:
        reason = "its traffic is split" if shares else "no version has traffic yet"
        remedy = f"`knodel promote {name}` sends all of it to the newest" if shares else f"`knodel wait {name}` waits"
        raise UsageError(f"model {name} has no version with all the traffic to promote, since {reason}: {remedy}")
    entries = [entry for entry in history_of(model) if entry.revision == holder]
    if entries and (url := service_url(entries[-1].storage_uri)):
        raise UsageError(
            f"version {holder} is the service {url}, which has no files to promote: deploy one of the target with "
            f"`knodel deploy {name} --ray-service URL`"
        )
    if not entries or not entries[-1].digest:
        raise ClientError(f"the digest of version {holder} is not recorded yet: `knodel history {name}` shows it")
    return ServingVersion(model, entries[-1])


def promote_to(
    api: ApiCalls, name: str, source: Place, found: ServingVersion, target: Place, *,
    rollout: bool, wait: float | None, now: str,
) -> Call[Promoted]:  # fmt: skip
    """Deploy the version in the target, of which `api` are the operations; `wait` (s) until it is ready, or None.

    With `rollout`, a Model that exists rolls it out in judged steps. `now` is RFC 3339. Raises UsageError when the
    target cannot read the bytes, and the errors of `store_object` and `wait_until_ready`.
    """
    try:
        before = yield from api.get(MODEL, name, target.namespace)
    except NotFound:
        before = None
    digest = found.entry.digest
    if before is not None and digest == ((before.get("spec") or {}).get("digest") or recorded_digest(before)):
        return Promoted(before, False, [], unchanged=True)
    version = {"storageUri": found.entry.storage_uri, "digest": digest, "version": found.entry.version or None}
    files = yield from _with_files(api, source, target, version)
    wanted = promoted_model(name, source, found, target.namespace, before, files, rollout=rollout, now=now)
    try:
        stored = yield from store_object(api, MODEL, wanted)
    except (Forbidden, Invalid) as error:
        if ANNOTATION_CAUSE not in str(error):
            raise
        raise ClientError(f"{target.name} has an earlier release of Knodel, without promotions: upgrade it") from error
    changes = changed_fields(before, stored) if before is not None else []
    if wait is not None:
        stored = yield from await_ready(api, stored, wait, unchanged=False)
    return Promoted(stored, before is None, [line for line in changes if OWN_PREFIX not in line], unchanged=False)


def promoted_model(
    name: str, source: Place, found: ServingVersion, namespace: str, before: Object | None, files: dict[str, Any], *,
    rollout: bool, now: str,
) -> Object:  # fmt: skip
    """Return the Model to merge into that of the target, `before`; None: there is none yet. Pure.

    `files` has the location and digest in the target, and the Secret to read it, if it was uploaded. Fields of a Model
    that exists keep their values, except those of the version, and `modelFormat` if the version has another one. A new
    one gets the fields of the source.
    """
    given = found.model.get("spec") or {}
    metadata: dict[str, Any] = {"name": name, "namespace": namespace}
    source_id = f"{source.namespace}/{found.entry.revision}@{now}"
    metadata["annotations"] = cause_annotation(Cause("promotion", source_id, source.name))
    if before is None:
        left_out = (*OF_THE_VERSION, *OF_THE_PLACE)
        spec = {field: value for field, value in given.items() if field not in left_out} | files
        if rollout:
            spec["rollout"] = given.get("rollout") or {}
        labels = {key: value for key, value in labels_of(found.model).items() if not key.startswith(OWN_PREFIX)}
        metadata |= {"labels": labels} if labels else {}
    else:
        former = before.get("spec") or {}
        same_format = given.get("modelFormat") == former.get("modelFormat")
        spec = files | ({} if same_format else {"modelFormat": given.get("modelFormat")})
        spec |= {"rollout": former.get("rollout") or given.get("rollout") or {}, **TAKES_ALL} if rollout else {}
        spec |= {"rollout": None} if not rollout and "rollout" in former else {}
    return {"apiVersion": MODEL.api_version, "kind": MODEL.kind, "metadata": metadata, "spec": spec}


def _with_files(api: ApiCalls, source: Place, target: Place, version: dict[str, Any]) -> Call[dict[str, Any]]:
    """Make the bytes readable in the target, and return the fields of the version there."""
    uri, digest = str(version["storageUri"]), str(version["digest"])
    if uri.startswith(VOLUME):
        raise UsageError(f"{uri} is in a volume of {source.name}, which {target.name} cannot read: deploy from a store")
    if not is_file_uri(uri):
        return version
    if source.ref.kube is not None:
        raise UsageError(f"{uri} is a file in the Pods of {source.name}, which cannot be copied: deploy from a store")
    path = file_uri_path(uri, uri)
    if target.ref.kube is None:
        if target.ref.state != source.ref.state:
            yield from work(partial(_copy, source.ref.state, path, uri, digest, target.ref.state))
        return version
    folder = yield from work(partial(_named_copy, source.ref.state, path, digest))
    try:
        local = {"spec": {"storageUri": (folder / path.path.name).as_uri(), "digest": digest}}
        made = yield from uploaded(api, target.ref.kube.name, local, False, LocalFiles(model=True))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    spec: dict[str, Any] = made["spec"]
    return version | spec


def _copy(source: Path, path: LocalPath, uri: str, digest: str, target: Path) -> None:
    """Copy the kept files of one state folder to another. Raises UsageError, ClientError without room."""
    from serving.storage import kept
    from serving.storage.base.errors import RetryableStorageError, StorageError

    try:
        kept.keep_from(source / KEPT_FOLDER, path, uri, digest, target / KEPT_FOLDER, kept_limit(target))
    except RetryableStorageError as error:
        raise ClientError(str(error)) from error
    except StorageError as error:
        raise UsageError(str(error)) from error


def _named_copy(state: Path, path: LocalPath, digest: str) -> Path:
    """Return a new folder with the kept files under the name that they were deployed by, from which formats are found.

    Raises UsageError when the state folder has no such copy.
    """
    from serving.storage import kept
    from serving.storage.archives.archive import is_archive

    name = path.path.name
    copy = path.path if is_archive(name) else kept.copy_of(state / KEPT_FOLDER, path, digest)
    if copy is None or not copy.exists():
        raise UsageError(f"{path.path}: {state} has no copy with the digest {short_digest(digest)}: deploy it again")
    folder = Path(tempfile.mkdtemp(prefix="knodel-"))
    if copy.is_dir():
        shutil.copytree(copy, folder / name, copy_function=_link)
    else:
        _link(str(copy), str(folder / name))
    return folder


def _link(source: str, target: str) -> None:
    """Link a file, or copy it where the file system cannot."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)
