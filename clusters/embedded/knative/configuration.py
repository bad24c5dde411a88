"""The Configuration reconciler: create one immutable Revision for each generation.

Source: knative/serving `pkg/reconciler/configuration`.
"""

from __future__ import annotations

from datetime import datetime

from clusters.base.clock import Clock
from clusters.base.errors import Invalid, TemporaryError
from clusters.base.objects import (
    CONFIGURATION,
    LABEL_CONFIGURATION,
    LABEL_CONFIGURATION_GENERATION,
    LABEL_SERVICE,
    REVISION,
    Key,
    Object,
    annotations_of,
    condition_of,
    generation_of,
    is_controlled_by,
    is_deleting,
    is_true,
    labels_of,
    name_of,
    namespace_of,
    owner_reference,
    timestamp,
    uid_of,
)
from clusters.embedded.knative import defaults, names
from clusters.embedded.knative.client import CachedClient
from clusters.embedded.knative.conditions import FALSE
from clusters.embedded.knative.lifecycle import READY, ConfigurationStatus
from clusters.runtime.controller import Controller

INDEX = "knative.configuration"


def by_configuration(revision: Object) -> list[str]:
    """Index Revisions by their Configuration."""
    name = labels_of(revision).get(LABEL_CONFIGURATION)
    return [f"{namespace_of(revision)}/{name}"] if name else []


def configuration_key(revision: Object) -> list[Key]:
    """Return the Configuration to reconcile when its Revision changes."""
    name = labels_of(revision).get(LABEL_CONFIGURATION)
    return [Key(namespace_of(revision), name)] if name else []


class ConfigurationReconciler:
    """Create the Revision of the present generation, and find the newest ready one."""

    def __init__(self, client: CachedClient, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        client.informer(REVISION).add_index(INDEX, by_configuration)

    def controller(self) -> Controller:
        """Return the controller, triggered by the Configuration and its Revisions."""
        controller = Controller("knative configuration", self.reconcile)
        controller.watches(self._client.informer(CONFIGURATION))
        controller.watches_mapped(self._client.informer(REVISION), configuration_key)
        return controller

    async def reconcile(self, key: Key) -> None:
        """Reconcile a Configuration."""
        configuration = self._client.get(CONFIGURATION, key.name, key.namespace)
        if configuration is None or is_deleting(configuration):
            return
        status = ConfigurationStatus(configuration)
        try:
            latest = await self._latest_created(configuration)
        except Invalid as error:
            status.mark_revision_creation_failed(str(error))
        else:
            status.set_latest_created(name_of(latest))
            ready = condition_of(latest, READY) or {}
            if ready.get("status") == FALSE:
                status.mark_latest_created_failed(name_of(latest), str(ready.get("message", "")))
            newest = self._newest_ready(configuration, status.latest_ready)
            if newest is not None:
                status.set_latest_ready(name_of(newest))
        await self._client.update_status(CONFIGURATION, configuration, status.result(self._clock.now()))

    async def _latest_created(self, configuration: Object) -> Object:
        """Return the Revision of the present generation, which is created if absent."""
        name = names.revision(name_of(configuration), generation_of(configuration))
        revision = self._client.get(REVISION, name, namespace_of(configuration))
        if revision is None:
            fresh = make_revision(configuration, self._clock.now())
            revision = await self._client.create(REVISION, fresh, CONFIGURATION, configuration)
        if not is_controlled_by(revision, configuration):
            raise TemporaryError(f"failed to create Revision: {name} is still held by another Configuration")
        return revision

    def _newest_ready(self, configuration: Object, latest_ready: str) -> Object | None:
        """Return the newest ready Revision that is not older than the one in the status."""
        namespace = namespace_of(configuration)
        known = self._client.get(REVISION, latest_ready, namespace) if latest_ready else None
        oldest = config_generation(known) if known is not None else 0
        revisions = self._client.informer(REVISION).indexed(INDEX, f"{namespace}/{name_of(configuration)}")
        ready = [
            revision
            for revision in revisions
            if is_controlled_by(revision, configuration)
            and config_generation(revision) >= oldest
            and is_true(revision, READY)
        ]
        return max(ready, key=config_generation, default=None)


def config_generation(revision: Object) -> int:
    """Return the generation of the Configuration that created the Revision, or 0 without that label."""
    text = labels_of(revision).get(LABEL_CONFIGURATION_GENERATION, "")
    return int(text) if text.isdecimal() else 0


def make_revision(configuration: Object, now: datetime) -> Object:
    """Return the Revision of a Configuration's present generation."""
    template = configuration["spec"]["template"]
    metadata = template.get("metadata") or {}
    routes = annotations_of(configuration).get(names.ANNOTATION_ROUTES)
    annotations = {**(metadata.get("annotations") or {}), names.ANNOTATION_ROUTING_STATE_MODIFIED: timestamp(now)}
    if routes:
        annotations[names.ANNOTATION_ROUTES] = routes
    return {
        "apiVersion": REVISION.api_version,
        "kind": REVISION.kind,
        "metadata": {
            "name": names.revision(name_of(configuration), generation_of(configuration)),
            "namespace": namespace_of(configuration),
            "labels": {**(metadata.get("labels") or {}), **_revision_labels(configuration)},
            "annotations": annotations,
            "ownerReferences": [owner_reference(CONFIGURATION, configuration)],
        },
        "spec": defaults.revision_spec(template.get("spec") or {}),
    }


def _revision_labels(configuration: Object) -> dict[str, str]:
    routed = bool(annotations_of(configuration).get(names.ANNOTATION_ROUTES))
    labels = {
        LABEL_CONFIGURATION: name_of(configuration),
        LABEL_CONFIGURATION_GENERATION: str(generation_of(configuration)),
        names.LABEL_CONFIGURATION_UID: uid_of(configuration),
        names.LABEL_ROUTING_STATE: names.STATE_ACTIVE if routed else names.STATE_PENDING,
    }
    for label in (LABEL_SERVICE, names.LABEL_SERVICE_UID):
        if labels_of(configuration).get(label):
            labels[label] = labels_of(configuration)[label]
    return labels
