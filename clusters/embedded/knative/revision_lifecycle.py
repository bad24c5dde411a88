"""The named transitions of a Revision's status: what Deployment, first Pod and PodAutoscaler say about it.

Rules, reasons and messages are those of knative/serving 0.50: `pkg/apis/serving/v1/revision_lifecycle.go`,
`pkg/apis/serving/k8s_lifecycle.go` and `pkg/reconciler/revision/reconcile_resources.go`. In short:

    Deployment          Progressing False, ReplicaFailure   ResourcesAvailable False with its reason
    no replica is up    the container ended                 ContainerHealthy False, ExitCodeN
                        it waits past the deadline          ResourcesAvailable False with the container's reason
                        the Pod cannot be scheduled         ResourcesAvailable False with the Pod's reason
    a replica is ready                                      ContainerHealthy True
    PodAutoscaler       without Ready                       Active and ResourcesAvailable Unknown, Deploying
                        ScaleTargetInitialized              ResourcesAvailable and ContainerHealthy True
                        not so, or no serviceName           ResourcesAvailable Unknown, Deploying
                        Ready False, never initialized      ResourcesAvailable False, ProgressDeadlineExceeded
                        Ready                               Active (not needed for Ready: a Revision at zero is ready)
"""

from __future__ import annotations

from clusters.base.objects import Object, condition_of
from clusters.embedded.knative.conditions import FALSE, TRUE, Conditions, ConditionSet, Status
from clusters.embedded.knative.lifecycle import NOT_OWNED, READY, quoted

RESOURCES_AVAILABLE = "ResourcesAvailable"
CONTAINER_HEALTHY = "ContainerHealthy"
ACTIVE = "Active"
DEPLOYING = "Deploying"
PROGRESS_DEADLINE_EXCEEDED = "ProgressDeadlineExceeded"
SCALE_TARGET_INITIALIZED = "ScaleTargetInitialized"
UNSEEN = "ContainerStatusUnknown"
"""Reason of a container's end that nobody watched: after a node went down, new Pods come on Kubernetes, whose Revisions
never hear of the former ones. Here the same Pod starts again, and its end says as little of the version."""

_PROGRESSING = "Progressing"
_REPLICA_SET_READY = "ReplicaSetReady"
_DEPLOYMENT = ConditionSet((_PROGRESSING, _REPLICA_SET_READY))


class RevisionStatus(Status):
    """ResourcesAvailable, ContainerHealthy, Active (informs only), Ready, and the replicas."""

    kinds = ConditionSet((RESOURCES_AVAILABLE, CONTAINER_HEALTHY))

    @property
    def failed(self) -> bool:
        """Whether the resources or the container failed."""
        return FALSE in (self.conditions.status(RESOURCES_AVAILABLE), self.conditions.status(CONTAINER_HEALTHY))

    def deploying(self) -> None:
        """The Deployment was just made."""
        self.conditions.mark_unknown(RESOURCES_AVAILABLE, DEPLOYING)
        self.conditions.mark_unknown(CONTAINER_HEALTHY, DEPLOYING)

    def not_owned(self, kind: str, name: str) -> None:
        """A child of that name belongs to somebody else."""
        message = f"There is an existing {kind} {quoted(name)} that we do not own."
        self.conditions.mark_false(RESOURCES_AVAILABLE, NOT_OWNED, message)

    def from_deployment(self, deployment: Object) -> None:
        """Take over what the Deployment reports."""
        ready = deployment_condition(deployment)
        self.conditions.propagate(RESOURCES_AVAILABLE, ready)

    def from_pod(self, pod: Object, timed_out: bool) -> None:
        """What the first Pod says while no replica is available."""
        scheduled = condition_of(pod, "PodScheduled")
        if scheduled is not None and scheduled["status"] == FALSE:
            self._unavailable(scheduled.get("reason", ""), scheduled.get("message", ""))
        for container in (pod.get("status") or {}).get("containerStatuses") or ():
            ended = (container.get("lastState") or {}).get("terminated")
            waiting = (container.get("state") or {}).get("waiting")
            if ended is not None and ended.get("reason") != UNSEEN:
                self._container_ended(int(ended.get("exitCode", 0)), str(ended.get("message", "")))
            elif waiting is not None and timed_out:
                self._unavailable(waiting.get("reason", ""), waiting.get("message", ""))

    def container_healthy(self) -> None:
        """Some replica is ready."""
        self.conditions.mark_true(CONTAINER_HEALTHY)

    def from_autoscaler(self, autoscaler: Object) -> None:
        """Take over what the PodAutoscaler reports; call it after the Deployment's report."""
        unavailable = self.failed
        status = autoscaler.get("status") or {}
        self.fields["actualReplicas"] = _at_least_zero(status.get("actualScale"))
        self.fields["desiredReplicas"] = _at_least_zero(status.get("desiredScale"))
        ready = condition_of(autoscaler, READY)
        if ready is None:
            self.conditions.mark_unknown(ACTIVE, DEPLOYING)
            if not unavailable:
                self.conditions.mark_unknown(RESOURCES_AVAILABLE, DEPLOYING)
            return
        initialized = (condition_of(autoscaler, SCALE_TARGET_INITIALIZED) or {}).get("status") == TRUE
        self._resources(initialized, unavailable, has_service=bool(status.get("serviceName")))
        never_scaled = ready["status"] == FALSE and not initialized and not unavailable
        if never_scaled and status.get("serviceName"):
            self._unavailable(PROGRESS_DEADLINE_EXCEEDED, "Initial scale was never achieved")
        self.conditions.propagate(ACTIVE, ready)

    def _resources(self, initialized: bool, unavailable: bool, has_service: bool) -> None:
        if initialized and not unavailable:
            self.conditions.mark_true(RESOURCES_AVAILABLE)
            self.conditions.mark_true(CONTAINER_HEALTHY)
        available = self.conditions.status(RESOURCES_AVAILABLE) == TRUE
        if available and not (initialized and has_service):
            self.conditions.mark_unknown(RESOURCES_AVAILABLE, DEPLOYING)

    def _unavailable(self, reason: str, message: str) -> None:
        self.conditions.mark_false(RESOURCES_AVAILABLE, reason, message)

    def _container_ended(self, exit_code: int, message: str) -> None:
        said = message if exit_code or message else "container exited with no error"
        self.conditions.mark_false(CONTAINER_HEALTHY, f"ExitCode{exit_code}", f"Container failed with: {said}")


def deployment_condition(deployment: Object) -> Object:
    """Ready of a Deployment: its Progressing, and its ReplicaFailure turned round."""
    conditions = Conditions(_DEPLOYMENT, ())
    conditions.mark_true(_REPLICA_SET_READY)
    conditions.mark_unknown(_PROGRESSING, DEPLOYING)
    conditions.propagate(_PROGRESSING, condition_of(deployment, "Progressing"))
    failure = condition_of(deployment, "ReplicaFailure")
    if failure is not None:
        turned = {TRUE: FALSE, FALSE: TRUE}.get(failure["status"], failure["status"])
        conditions.propagate(_REPLICA_SET_READY, {**failure, "status": turned})
    return conditions.get(READY) or {"status": "Unknown"}


def has_timed_out(deployment: Object) -> bool:
    """Whether the Deployment made no progress within its deadline."""
    progressing = condition_of(deployment, "Progressing") or {}
    return progressing.get("status") == FALSE and progressing.get("reason") == PROGRESS_DEADLINE_EXCEEDED


def _at_least_zero(scale: int | None) -> int | None:
    return scale if scale is not None and scale >= 0 else None
