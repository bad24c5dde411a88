"""Apply accepted events to Models.

The change and the mark of the event are one patch with a resourceVersion, so that a change is never without its record.
"""

from __future__ import annotations

from typing import Any

from clusters.base.api import Cluster
from clusters.base.errors import AlreadyExists, ClusterError, Conflict, FieldError, Forbidden, Invalid, NotFound
from clusters.base.objects import MODEL, Object, generation_of, is_deleting, uid_of, version_of
from eventing.controller.target import AppliedEvent, ObservedModel
from eventing.mapping.event_source import Reach
from eventing.objects.apis import ANNOTATION_NEWEST, MANAGER, ModelChange, ModelRef
from eventing.objects.model_event import EventSpec, ModelEvent, event_name
from eventing.objects.order import mark_after
from eventing.objects.ports import EventSource
from serving.platform.event_files import EventFiles
from serving.reconciler.rollout.commands import cause_annotation, done_command
from serving.types.annotations import ANNOTATION_TRACEPARENT
from serving.types.code import runs_code
from serving.types.faults import version_fault
from serving.types.model import Cause


class ModelTarget:
    """The `EventTarget` of a cluster's Models. `files` stores local files on this machine."""

    def __init__(self, cluster: Cluster, reach: Reach, files: EventFiles | None = None) -> None:
        self._files = files
        self._cluster = cluster
        self._reach = reach

    async def observe(self, model: ModelRef) -> ObservedModel:
        """Return the present Model. A Model that is being deleted counts as absent."""
        try:
            obj = await self._cluster.get(MODEL, model.name, model.namespace)
        except NotFound:
            return ObservedModel()
        return ObservedModel() if is_deleting(obj) else ObservedModel(obj)

    async def apply(self, event: ModelEvent, source: EventSource, seen: ObservedModel) -> AppliedEvent:
        """Change the Model, or create it if the EventSource permits. Raises Conflict, NotFound, Invalid, Forbidden."""
        model, change = event.spec.model, event.spec.change
        if model is None or change is None:
            raise _changes_nothing(event.spec)
        if (refused := self.refusal(event, source, seen)) is not None:
            raise refused
        kept = await self._files.keep(change, source) if self._files is not None else ""
        obj = await self._write(event, model, change, seen, kept)
        return AppliedEvent(generation_of(obj), f"{model} has generation {generation_of(obj)} with it")

    def refusal(self, event: ModelEvent, source: EventSource, seen: ObservedModel) -> ClusterError | None:
        """Return why the event cannot change the Model that was seen, or None. The API validates the result later."""
        model, change = event.spec.model, event.spec.change
        if model is None or change is None:
            return _changes_nothing(event.spec)
        if model.namespace != source.namespace and not self._reach(source.namespace):
            return Forbidden(
                f"EventSource {source.namespace}/{source.name} may not change {model}: it must be in the namespace "
                "of the Model, or in the platform's namespace"
            )
        if (words := _code_refusal(change, source, seen.object)) is not None:
            return words
        if seen.object is None and not source.create_models:
            return NotFound(f"there is no Model {model}: deploy it, or set createModels in EventSource {source.name}")
        return None

    async def _write(
        self, event: ModelEvent, model: ModelRef, change: ModelChange, seen: ObservedModel, kept: str
    ) -> Object:
        annotations, fields, present = _annotations(event, seen), _fields(event.spec, change, kept), seen.object
        if present is not None:
            metadata = {"resourceVersion": version_of(present), "annotations": annotations}
            patch = {"metadata": metadata, "spec": fields}
            return await self._cluster.patch(MODEL, model.name, patch, model.namespace, manager=MANAGER)
        metadata = {"name": model.name, "namespace": model.namespace, "annotations": _without_none(annotations)}
        try:
            return await self._cluster.create(
                MODEL, {"metadata": metadata, "spec": _without_none(fields)}, manager=MANAGER
            )
        except AlreadyExists as exc:
            raise Conflict(f"Model {model} was created meanwhile") from exc


def _changes_nothing(spec: EventSpec) -> Invalid:
    return Invalid(f"event {spec.id}", [FieldError("spec.change", "the event changes no Model")])


def _code_refusal(change: ModelChange, source: EventSource, present: Object | None) -> Forbidden | None:
    """Return an error if the Model's format runs code and the EventSource does not allow that."""
    spec = (present.get("spec") if present is not None else None) or {}
    model_format = change.model_format or str(spec.get("modelFormat") or "")
    if runs_code(model_format) and not source.allow_code:
        return Forbidden(
            f"{model_format} runs code of the artifact, and EventSource {source.namespace}/{source.name} does not "
            "allow that: see its `allowCode`"
        )
    return None


def _fields(spec: EventSpec, change: ModelChange, kept: str) -> dict[str, Any]:
    """Return the fields of `spec` that the artifact determines. Absent ones are removed, except the format.

    Without version and digest, the event's id is the version: every event is a new version, even if each training
    writes to the same address. `kept` is the digest of its local files, if they were kept.
    """
    version = change.version or ("" if change.digest else _version_of(spec))
    fields: dict[str, Any] = {
        "storageUri": change.storage_uri,
        "digest": change.digest or kept or None,
        "version": version or None,
    }
    return fields | ({"modelFormat": change.model_format} if change.model_format else {})


def _version_of(spec: EventSpec) -> str:
    """Return the event's id, or the name of its object if the id is not a valid version."""
    return event_name(spec.source, spec.id) if version_fault(spec.id) else spec.id


def _annotations(event: ModelEvent, seen: ObservedModel) -> dict[str, Any]:
    spec, uid = event.spec, uid_of(seen.object) if seen.object is not None else ""
    return {
        **cause_annotation(Cause("event", spec.id, spec.source)),
        ANNOTATION_NEWEST: mark_after(spec, seen.newest, event.arrival, uid).to_text(),
        ANNOTATION_TRACEPARENT: spec.traceparent or None,
        **(done_command(seen.object) if seen.object is not None else {}),
    }


def _without_none(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}
