"""Deploy a Model, or a new version of it: the fields, the copy of local files, and the wait for the result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from clusters.base.objects import MODEL, WARM_POOL, Kind, Object, generation_of, name_of, namespace_of
from serving.client.api import ApiCalls
from serving.client.effects import Call, Show, Tell, reported_work, work
from serving.client.errors import ClientError, TimedOut, UsageError
from serving.client.mlflow.references import is_reference
from serving.client.models.changes import store_object
from serving.client.models.local_files import (
    is_local_path,
    keep_by_digest,
    keep_files,
    present_object,
    uri_of,
    without_same_bytes,
)
from serving.client.models.waiting import wait_until_ready
from serving.client.platform_ref import PlatformRef
from serving.engines.base.registry import RAY
from serving.types.ray import has_service

if TYPE_CHECKING:
    from serving.storage.upload.upload import UploadedArtifact
    from serving.types.settings.settings import ArtifactSettings

KINDS_OF_FILES = (MODEL, WARM_POOL)


class DeployFields(NamedTuple):
    """The fields that a deploy changes; None leaves a field as it is. `uri` is a URI or a local path.

    `canary` is the percentage of the new version. `rollout`: whether new versions are rolled out in steps,
    or the fields of `spec.rollout` to change. `llm` has the fields of `spec.llm` to change; the `uri` of an adapter may
    be a local path. `ray` has the fields of `spec.ray` to change, and `resources` those of `spec.resources`.
    """

    uri: str | None = None
    digest: str | None = None
    model_format: str | None = None
    secret: str | None = None
    version: str | None = None
    canary: int | None = None
    rollout: bool | Mapping[str, Any] | None = None
    least: int | None = None
    most: int | None = None
    llm: Mapping[str, Any] | None = None
    ray: Mapping[str, Any] | None = None
    resources: Mapping[str, Any] | None = None
    priority: int | None = None
    weight: float | None = None


class LocalFiles(NamedTuple):
    """Which files of a Model are on this machine: its own, and those of adapters, by name."""

    model: bool = False
    adapters: frozenset[str] = frozenset()


NO_FILES: Final = LocalFiles()


class Prepared(NamedTuple):
    """An object to store: as `given`, with the digest of its copied files; what is stored `before`; and `wanted`.

    `wanted` leaves the files alone if the newest version has the same bytes.
    """

    given: Object
    before: Object | None
    wanted: Object

    @property
    def is_model(self) -> bool:
        """Whether the object is a Model."""
        return is_model(self.given)


class Deployed(NamedTuple):
    """A stored Model; `unchanged`: the deploy changed nothing, so it created no version."""

    model: Object
    unchanged: bool


def kind_of(obj: Object) -> Kind:
    """Return the kind of an object of a file."""
    return next(kind for kind in KINDS_OF_FILES if kind.kind == obj["kind"])


def is_model(obj: Object) -> bool:
    """Return whether the object is a Model."""
    return kind_of(obj) is MODEL


def model_of(name: str, namespace: str, fields: DeployFields) -> Object:
    """Return the Model to merge into the stored one. Raises UsageError without a change, or with a contradiction."""
    uri = uri_of(fields.uri) if fields.uri else None
    given = {
        "storageUri": uri,
        "digest": fields.digest,
        "modelFormat": fields.model_format,
        "storage": {"secretRef": {"name": fields.secret}} if fields.secret is not None else None,
        "version": fields.version,
        "minReplicas": fields.least,
        "maxReplicas": fields.most,
        "llm": _llm(fields.llm) if fields.llm is not None else None,
        "ray": dict(fields.ray) if fields.ray is not None else None,
        "resources": dict(fields.resources) if fields.resources is not None else None,
        "priority": fields.priority,
        "weight": fields.weight,
    }
    spec: dict[str, Any] = {field: value for field, value in given.items() if value is not None}
    if fields.uri:
        spec.setdefault("digest", None)  # the digest of the previous files is not that of the new ones
    if fields.ray is not None and fields.ray.get("service"):
        spec.setdefault("modelFormat", RAY)
    if fields.canary is not None:
        spec |= {"canaryTrafficPercent": fields.canary, "traffic": None}  # a canary replaces a pin
    if fields.rollout is not None:
        spec |= _rollout(fields.rollout, fields.canary)
    if not spec:
        raise UsageError(f"no change to model {name} is given: give its files, or another field")
    metadata = {"name": name, "namespace": namespace}
    return {"apiVersion": MODEL.api_version, "kind": MODEL.kind, "metadata": metadata, "spec": spec}


def _rollout(wanted: bool | Mapping[str, Any], canary: int | None) -> dict[str, Any]:
    """Return the fields that enable or disable rollouts; a rollout replaces a pin and a canary.

    Fields of an existing rollout keep their values.
    """
    if wanted is False:
        return {"rollout": None}
    if canary is not None:
        raise UsageError("a rollout and a canary exclude each other: omit one of them")
    fields = {} if wanted is True else dict(wanted)
    return {"rollout": fields, "canaryTrafficPercent": None, "traffic": None}


def _llm(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of `spec.llm` with the file:// URIs of local adapters. Faults are left to the validation."""
    adapters = fields.get("adapters")
    if not isinstance(adapters, list | tuple):
        return dict(fields)
    return {**fields, "adapters": [_adapter(one) if isinstance(one, Mapping) else one for one in adapters]}


def _adapter(given: Mapping[str, Any]) -> dict[str, Any]:
    uri = given.get("uri")
    return {**given, "uri": uri_of(uri)} if isinstance(uri, str) and uri else dict(given)


def local_files(ref: PlatformRef, uri: str | None, llm: Mapping[str, Any] | None) -> LocalFiles:
    """Return which files of a deploy are on this machine, and must be uploaded for a cluster."""
    if ref.kube is None:
        return NO_FILES
    adapters = (llm or {}).get("adapters")
    found = [one for one in adapters if isinstance(one, Mapping)] if isinstance(adapters, list | tuple) else []
    local = [one.get("name") for one in found if isinstance(one.get("uri"), str) and is_local_path(one["uri"])]
    return LocalFiles(bool(uri) and is_local_path(uri or ""), frozenset(map(str, local)))


def prepare(
    api: ApiCalls, ref: PlatformRef, objects: Sequence[Object], *, uploads: LocalFiles = NO_FILES, dry_run: bool = False
) -> Call[list[Prepared]]:
    """Copy the local files of Models into the state folder of a local platform, and compare their bytes.

    Files of `uploads` are at local paths, and are uploaded to the store of the cluster. With `dry_run` nothing is
    copied or sent. Raises UsageError when files cannot be read, ClientError without room for them.
    """
    prepared = []
    for obj in objects:
        given = obj
        if not is_model(obj):
            prepared.append(Prepared(obj, None, obj))
            continue
        if ref.kube is not None:
            if uploads != NO_FILES:
                given = yield from uploaded(api, ref.kube.name, obj, dry_run, uploads)
        else:
            if not dry_run:
                yield Tell(f"{name_of(obj)}: reading its files")
            given = yield from work(partial(keep_files, ref.state, obj, dry_run=dry_run))
        before = yield from present_object(api, MODEL, given)
        given = with_one_source(given, before or {})
        if ref.kube is None:
            yield from work(partial(keep_by_digest, ref.state, given, before or {}, dry_run=dry_run))
        prepared.append(Prepared(given, before, without_same_bytes(given, before or {})))
    return prepared


def with_one_source(given: Object, before: Object) -> Object:
    """Return the Model to merge with files and no service, or a service and no files, where it changes from one."""
    spec, stored = given.get("spec") or {}, before.get("spec") or {}
    if not isinstance(spec, Mapping):  # the platform refuses it
        return given
    if has_service(spec) and stored.get("storageUri"):
        return {**given, "spec": {"storageUri": None, "digest": None, **spec}}
    if spec.get("storageUri") and has_service(stored) and not has_service(spec):
        return {**given, "spec": {**spec, "ray": {**(spec.get("ray") or {}), "service": None}}}
    return given


def uploaded(api: ApiCalls, context: str, model: Object, dry_run: bool, files: LocalFiles) -> Call[Object]:
    """Upload these files of a Model for a cluster, and return the Model with their URIs in the store.

    It gets the Secret of the settings, unless it or the stored Model names one.
    """
    from serving.client.installed import installed_settings  # heavy; only local files need it

    artifacts = (yield from installed_settings(api, context)).artifacts
    spec = model["spec"]
    if files.model:
        found = yield from _upload(spec["storageUri"], spec.get("digest"), artifacts, context, dry_run)
        spec = {**spec, "storageUri": found.uri, "digest": found.digest}
    if files.adapters:
        adapters = []
        for one in spec["llm"]["adapters"]:
            if one.get("name") in files.adapters:
                found = yield from _upload(one["uri"], one.get("digest"), artifacts, context, dry_run)
                one = {**one, "uri": found.uri, "digest": found.digest}
            adapters.append(one)
        spec = {**spec, "llm": {**spec["llm"], "adapters": adapters}}
    before = None if files.model else (yield from present_object(api, MODEL, model))
    if artifacts.secret and "storage" not in {**((before or {}).get("spec") or {}), **spec}:
        spec = {**spec, "storage": {"secretRef": {"name": artifacts.secret}}}
    return {**model, "spec": spec}


def _upload(
    uri: str, promised: str | None, artifacts: ArtifactSettings, context: str, dry_run: bool
) -> Call[UploadedArtifact]:
    """Upload the files at a file:// URI. Raises the errors of `upload_files`."""
    from serving.client.artifacts import upload_files  # heavy; only local files need these
    from serving.client.transfer_meter import TransferMeter
    from serving.storage.sources.local import file_uri_path

    path = file_uri_path(uri, uri).path
    meter = TransferMeter(path.name)

    def upload(show: Show, warn: Show) -> UploadedArtifact:
        try:
            return upload_files(
                path, promised or "", artifacts, context, dry_run=dry_run, warn=warn,
                progress=lambda phase, done, total: show(meter.text(phase, done, total)),
            )  # fmt: skip
        except KeyboardInterrupt:
            warn("the upload was interrupted, and nothing was deployed: the same command continues it")
            raise

    return (yield from reported_work(upload))


def _resolved(fields: DeployFields) -> Call[DeployFields]:
    """Replace a URI of MLflow by the files of its version, whose number is the label unless one is given."""
    if not fields.uri or not is_reference(fields.uri):
        return fields
    from serving.client.mlflow.resolve import resolve_shown  # heavy; only these URIs need it

    uri = fields.uri
    found = yield from reported_work(lambda show, _: resolve_shown(uri, show))
    return fields._replace(uri=found.location, version=fields.version or found.version or None)


def deploy(
    api: ApiCalls, ref: PlatformRef, name: str, namespace: str, fields: DeployFields, wait: float | None
) -> Call[Deployed]:
    """Store one Model and wait for at most `wait` seconds (None: do not wait) until it is ready.

    Raises the errors of `prepare`, `store_model` and `wait_until_ready`.
    """
    fields = yield from _resolved(fields)
    uploads = local_files(ref, fields.uri, fields.llm)
    model = yield from work(partial(model_of, name, namespace, fields))
    (prepared,) = yield from prepare(api, ref, [model], uploads=uploads)
    stored = yield from store_object(api, MODEL, prepared.wanted)
    unchanged = is_unchanged(prepared.before, stored)
    if wait is not None:
        stored = yield from await_ready(api, stored, wait, unchanged)
    return Deployed(stored, unchanged)


def is_unchanged(before: Object | None, stored: Object) -> bool:
    """Return whether storing the object changed nothing. Pure."""
    return before is not None and generation_of(before) == generation_of(stored) > 0


def await_ready(api: ApiCalls, model: Object, seconds: float, unchanged: bool) -> Call[Object]:
    """Wait until the stored Model is ready and return it.

    Raises ClientError, with the command for a new version of the same files if the deploy changed nothing.
    """
    name = name_of(model)
    try:
        return (yield from wait_until_ready(api, name, namespace_of(model), seconds, generation_of(model)))
    except TimedOut:
        raise
    except ClientError as error:
        if not unchanged:
            raise
        remedy = f"`knodel deploy {name} --version LABEL` creates one"
        raise ClientError(f"{error}; nothing was changed, so no new version was created: {remedy}") from error
