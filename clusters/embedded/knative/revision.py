"""The Revision reconciler: create the Deployment and the PodAutoscaler, and derive conditions from them and the first
Pod.

Source: knative/serving `pkg/reconciler/revision`. The Deployment is created once and never changed: its template is the
immutable one of the Revision, and the autoscaler sets its replicas.
"""

from __future__ import annotations

from clusters.base.clock import Clock
from clusters.base.objects import (
    DEPLOYMENT,
    LABEL_REVISION,
    LABEL_REVISION_UID,
    POD,
    POD_AUTOSCALER,
    REVISION,
    Key,
    Object,
    annotations_of,
    is_controlled_by,
    is_deleting,
    labels_of,
    name_of,
    namespace_of,
    uid_of,
)
from clusters.embedded.knative import names
from clusters.embedded.knative.client import CachedClient
from clusters.embedded.knative.defaults import KnativeSettings
from clusters.embedded.knative.lifecycle import RevisionStatus, has_timed_out
from clusters.embedded.knative.revision_resources import (
    make_deployment,
    make_pod_autoscaler,
    make_spec,
    synced_annotations,
)
from clusters.runtime.controller import Controller

INDEX = "knative.revision-uid"


def by_revision_uid(pod: Object) -> list[str]:
    """Index Pods by the Revision of the Deployment that selects them."""
    uid = labels_of(pod).get(LABEL_REVISION_UID)
    return [uid] if uid else []


def revision_key(obj: Object) -> list[Key]:
    """Return the Revision to reconcile when one of its children changes."""
    name = labels_of(obj).get(LABEL_REVISION)
    return [Key(namespace_of(obj), name)] if name else []


class RevisionReconciler:
    """Create the children of a Revision, and report their status."""

    def __init__(self, client: CachedClient, clock: Clock, settings: KnativeSettings) -> None:
        self._client = client
        self._clock = clock
        self._settings = settings
        client.informer(POD).add_index(INDEX, by_revision_uid)

    def controller(self) -> Controller:
        """Return the controller, triggered by the Revision, its Deployment, its PodAutoscaler and its Pods."""
        controller = Controller("knative revision", self.reconcile)
        controller.watches(self._client.informer(REVISION))
        for kind in (DEPLOYMENT, POD_AUTOSCALER, POD):
            controller.watches_mapped(self._client.informer(kind), revision_key)
        return controller

    async def reconcile(self, key: Key) -> None:
        """Reconcile a Revision."""
        revision = self._client.get(REVISION, key.name, key.namespace)
        if revision is None or is_deleting(revision):
            return
        status = RevisionStatus(revision)
        deployment = await self._deployment(revision, status)
        if deployment is not None:
            await self._autoscaler(revision, deployment, status)
        await self._client.update_status(REVISION, revision, status.result(self._clock.now()))

    async def _deployment(self, revision: Object, status: RevisionStatus) -> Object | None:
        """Return the Deployment, or None if it has another owner, and report its status."""
        name = names.deployment(name_of(revision))
        deployment = self._client.get(DEPLOYMENT, name, namespace_of(revision))
        if deployment is None:
            fresh = make_deployment(revision, self._settings)
            deployment = await self._client.create(DEPLOYMENT, fresh, REVISION, revision)
            status.mark_deploying()
        if not is_controlled_by(deployment, revision):
            status.mark_not_owned(DEPLOYMENT.kind, name)
            return None
        self._report(revision, deployment, status)
        return deployment

    def _report(self, revision: Object, deployment: Object, status: RevisionStatus) -> None:
        status.propagate_deployment_status(deployment)
        reported = deployment.get("status") or {}
        if int(deployment["spec"].get("replicas", 1)) > 0 and not reported.get("availableReplicas"):
            pods = [pod for pod in self._client.informer(POD).indexed(INDEX, uid_of(revision)) if not is_deleting(pod)]
            pod = min(pods, key=name_of, default=None)  # any Pod: without a ready replica, all fail for the same reason
            if pod is not None:
                status.propagate_pod_status(pod, has_timed_out(deployment))
        if reported.get("readyReplicas"):
            status.mark_container_healthy()

    async def _autoscaler(self, revision: Object, deployment: Object, status: RevisionStatus) -> None:
        name = names.pod_autoscaler(name_of(revision))
        autoscaler = self._client.get(POD_AUTOSCALER, name, namespace_of(revision))
        if autoscaler is None:
            fresh = make_pod_autoscaler(revision, deployment, self._settings, failed=status.failed)
            autoscaler = await self._client.create(POD_AUTOSCALER, fresh, REVISION, revision)
        if not is_controlled_by(autoscaler, revision):
            status.mark_not_owned(POD_AUTOSCALER.kind, name)
            return
        status.propagate_autoscaler_status(autoscaler)
        want: Object = {"spec": make_spec(revision, deployment, failed=status.failed)}
        annotations = synced_annotations(autoscaler, revision)
        if annotations != annotations_of(autoscaler):
            want["metadata"] = {"annotations": annotations}
        await self._client.update(POD_AUTOSCALER, autoscaler, want)
