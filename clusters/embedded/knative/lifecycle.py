"""The transitions of the statuses of Services, Configurations, Routes and Revisions, with Knative's names.

Conditions, reasons and messages are those of knative/serving 0.50: `pkg/apis/serving/v1/*_lifecycle.go`,
`pkg/apis/serving/k8s_lifecycle.go` and `pkg/reconciler/revision/reconcile_resources.go`.
"""

from __future__ import annotations

import json

from clusters.base.objects import Object, condition_of
from clusters.embedded.knative.conditions import FALSE, TRUE, UNKNOWN, Conditions, ConditionSet, Status

CONFIGURATIONS_READY = "ConfigurationsReady"
ROUTES_READY = "RoutesReady"
READY = "Ready"
ALL_TRAFFIC_ASSIGNED = "AllTrafficAssigned"
INGRESS_READY = "IngressReady"
CERTIFICATE_PROVISIONED = "CertificateProvisioned"

OUT_OF_DATE = "OutOfDate"
NOT_OWNED = "NotOwned"
REVISION_MISSING = "RevisionMissing"

RESOURCES_AVAILABLE = "ResourcesAvailable"
CONTAINER_HEALTHY = "ContainerHealthy"
ACTIVE = "Active"
DEPLOYING = "Deploying"
PROGRESS_DEADLINE_EXCEEDED = "ProgressDeadlineExceeded"
SCALE_TARGET_INITIALIZED = "ScaleTargetInitialized"
UNSEEN = "ContainerStatusUnknown"
"""Reason of a container's end that was not observed, after a node stopped. On Kubernetes, new Pods replace the old ones
then, and Revisions ignore the old ones. Here the same Pod restarts, and such an end is ignored, too."""

_PROGRESSING = "Progressing"
_REPLICA_SET_READY = "ReplicaSetReady"
_DEPLOYMENT = ConditionSet((_PROGRESSING, _REPLICA_SET_READY))


def quoted(name: str) -> str:
    """Return a name as Go's `%q` prints it."""
    return json.dumps(name, ensure_ascii=False)


class ServiceStatus(Status):
    """Conditions ConfigurationsReady and RoutesReady, and fields of the Configuration and the Route."""

    condition_set = ConditionSet((CONFIGURATIONS_READY, ROUTES_READY))

    def mark_configuration_not_owned(self, name: str) -> None:
        """Report that the existing Configuration has another owner."""
        message = f"There is an existing Configuration {quoted(name)} that we do not own."
        self.conditions.mark_false(CONFIGURATIONS_READY, NOT_OWNED, message)

    def mark_route_not_owned(self, name: str) -> None:
        """Report that the existing Route has another owner."""
        message = f"There is an existing Route {quoted(name)} that we do not own."
        self.conditions.mark_false(ROUTES_READY, NOT_OWNED, message)

    def mark_configuration_not_reconciled(self) -> None:
        """Report that the Configuration has not observed its present generation yet."""
        message = "The Configuration is still working to reflect the latest desired specification."
        self.conditions.mark_unknown(CONFIGURATIONS_READY, OUT_OF_DATE, message)

    def mark_route_not_reconciled(self) -> None:
        """Report that the Route has not observed its present generation yet."""
        message = "The Route is still working to reflect the latest desired specification."
        self.conditions.mark_unknown(ROUTES_READY, OUT_OF_DATE, message)

    def mark_route_not_yet_ready(self) -> None:
        """Report that the Route is ready, but not yet for the latest revision."""
        message = "Traffic is not yet migrated to the latest revision."
        self.conditions.mark_unknown(ROUTES_READY, "TrafficNotMigrated", message)

    def propagate_configuration_status(self, configuration: Object) -> None:
        """Copy the status of the Configuration."""
        status = configuration.get("status") or {}
        for field in ("latestCreatedRevisionName", "latestReadyRevisionName"):
            self.fields[field] = status.get(field)
        self.conditions.propagate(CONFIGURATIONS_READY, condition_of(configuration, READY))

    def propagate_route_status(self, route: Object) -> None:
        """Copy the status of the Route."""
        status = route.get("status") or {}
        for field in ("url", "address", "traffic"):
            self.fields[field] = status.get(field)
        self.conditions.propagate(ROUTES_READY, condition_of(route, READY))


class ConfigurationStatus(Status):
    """Condition Ready, latestCreatedRevisionName and latestReadyRevisionName."""

    condition_set = ConditionSet()

    @property
    def latest_created(self) -> str:
        """The newest Revision."""
        return str(self.fields.get("latestCreatedRevisionName") or "")

    @property
    def latest_ready(self) -> str:
        """The newest Revision that was ready."""
        return str(self.fields.get("latestReadyRevisionName") or "")

    def set_latest_created(self, name: str) -> None:
        """Set the newest Revision; Ready is Unknown until it is ready."""
        self.fields["latestCreatedRevisionName"] = name
        if self.latest_ready != name:
            self.conditions.mark_unknown(READY)

    def set_latest_ready(self, name: str) -> None:
        """Set the newest ready Revision; Ready is True when it is the newest of all."""
        self.fields["latestReadyRevisionName"] = name
        if self.latest_created == name:
            self.conditions.mark_true(READY)

    def mark_latest_created_failed(self, name: str, message: str) -> None:
        """Report that the newest Revision failed."""
        text = f"Revision {quoted(name)} failed with message: {message}."
        self.conditions.mark_false(READY, "RevisionFailed", text)

    def mark_revision_creation_failed(self, message: str) -> None:
        """Report that the Revision could not be created."""
        self.conditions.mark_false(READY, "RevisionFailed", f"Revision creation failed with message: {message}.")


class RouteStatus(Status):
    """Conditions AllTrafficAssigned, IngressReady and CertificateProvisioned, url, address and the present traffic."""

    condition_set = ConditionSet((ALL_TRAFFIC_ASSIGNED, INGRESS_READY, CERTIFICATE_PROVISIONED))

    def mark_ingress_not_configured(self) -> None:
        """Report that the Ingress has not observed its present generation yet."""
        message = "Ingress has not yet been reconciled."
        self.conditions.mark_unknown(INGRESS_READY, "IngressNotConfigured", message)

    def mark_ingress_not_owned(self, name: str) -> None:
        """Report that the existing Ingress has another owner."""
        message = f"There is an existing Ingress {quoted(name)} that we do not own."
        self.conditions.mark_false(INGRESS_READY, NOT_OWNED, message)

    def propagate_ingress_status(self, ingress: Object) -> None:
        """Copy the condition of the Ingress."""
        condition = condition_of(ingress, READY)
        if condition is None:
            self.mark_ingress_not_configured()
        else:
            self.conditions.propagate(INGRESS_READY, condition)

    def mark_traffic_assigned(self, traffic: list[Object]) -> None:
        """Report that all targets exist and are ready."""
        self.fields["traffic"] = traffic
        self.conditions.mark_true(ALL_TRAFFIC_ASSIGNED)

    def mark_bad_traffic_target(self, status: str, reason: str, message: str) -> None:
        """Report that a target is missing or not ready, so the traffic does not change."""
        if status not in (FALSE, UNKNOWN):
            raise ValueError(f"a bad traffic target has status False or Unknown, not {status}")
        condition = {"status": status, "reason": reason, "message": message}
        self.conditions.propagate(ALL_TRAFFIC_ASSIGNED, condition)

    def mark_tls_not_enabled(self) -> None:
        """Report that no certificate is needed."""
        message = "external-domain-tls is not enabled"
        self.conditions.mark_true(CERTIFICATE_PROVISIONED, "TLSNotEnabled", message)


class RevisionStatus(Status):
    """ResourcesAvailable, ContainerHealthy, Active (informs only), Ready, and the replicas.

    Deployment          Progressing False, ReplicaFailure   ResourcesAvailable False with its reason
    no ready replica    the container ended                 ContainerHealthy False, ExitCodeN
                        it waits past the deadline          ResourcesAvailable False with the container's reason
                        the Pod cannot be scheduled         ResourcesAvailable False with the Pod's reason
    a replica is ready                                      ContainerHealthy True
    PodAutoscaler       without Ready                       Active and ResourcesAvailable Unknown, Deploying
                        ScaleTargetInitialized              ResourcesAvailable and ContainerHealthy True
                        otherwise, or no serviceName        ResourcesAvailable Unknown, Deploying
                        Ready False, never initialized      ResourcesAvailable False, ProgressDeadlineExceeded
                        Ready                               Active (not needed for Ready: a Revision at zero is ready)
    """

    condition_set = ConditionSet((RESOURCES_AVAILABLE, CONTAINER_HEALTHY))

    @property
    def failed(self) -> bool:
        """Whether the resources or the container failed."""
        return FALSE in (self.conditions.status(RESOURCES_AVAILABLE), self.conditions.status(CONTAINER_HEALTHY))

    def mark_deploying(self) -> None:
        """Report that the Deployment was just created."""
        self.conditions.mark_unknown(RESOURCES_AVAILABLE, DEPLOYING)
        self.conditions.mark_unknown(CONTAINER_HEALTHY, DEPLOYING)

    def mark_not_owned(self, kind: str, name: str) -> None:
        """Report that the existing child has another owner."""
        message = f"There is an existing {kind} {quoted(name)} that we do not own."
        self.conditions.mark_false(RESOURCES_AVAILABLE, NOT_OWNED, message)

    def propagate_deployment_status(self, deployment: Object) -> None:
        """Copy the condition of the Deployment."""
        ready = deployment_condition(deployment)
        self.conditions.propagate(RESOURCES_AVAILABLE, ready)

    def propagate_pod_status(self, pod: Object, timed_out: bool) -> None:
        """Report the state of the first Pod while no replica is available."""
        scheduled = condition_of(pod, "PodScheduled")
        if scheduled is not None and scheduled["status"] == FALSE:
            self._mark_resources_unavailable(scheduled.get("reason", ""), scheduled.get("message", ""))
        for container in (pod.get("status") or {}).get("containerStatuses") or ():
            ended = (container.get("lastState") or {}).get("terminated")
            waiting = (container.get("state") or {}).get("waiting")
            if ended is not None and ended.get("reason") != UNSEEN:
                exit_code, message = int(ended.get("exitCode", 0)), str(ended.get("message", ""))
                said = message if exit_code or message else "container exited with no error"
                self.conditions.mark_false(CONTAINER_HEALTHY, f"ExitCode{exit_code}", f"Container failed with: {said}")
            elif waiting is not None and timed_out:
                self._mark_resources_unavailable(waiting.get("reason", ""), waiting.get("message", ""))

    def mark_container_healthy(self) -> None:
        """Report that a replica is ready."""
        self.conditions.mark_true(CONTAINER_HEALTHY)

    def propagate_autoscaler_status(self, autoscaler: Object) -> None:
        """Copy the status of the PodAutoscaler. Call this after `propagate_deployment_status`."""
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
        has_service = bool(status.get("serviceName"))
        if initialized and not unavailable:
            self.conditions.mark_true(RESOURCES_AVAILABLE)
            self.conditions.mark_true(CONTAINER_HEALTHY)
        available = self.conditions.status(RESOURCES_AVAILABLE) == TRUE
        if available and not (initialized and has_service):
            self.conditions.mark_unknown(RESOURCES_AVAILABLE, DEPLOYING)
        never_scaled = ready["status"] == FALSE and not initialized and not unavailable
        if never_scaled and has_service:
            self._mark_resources_unavailable(PROGRESS_DEADLINE_EXCEEDED, "Initial scale was never achieved")
        self.conditions.propagate(ACTIVE, ready)

    def _mark_resources_unavailable(self, reason: str, message: str) -> None:
        self.conditions.mark_false(RESOURCES_AVAILABLE, reason, message)


def deployment_condition(deployment: Object) -> Object:
    """Return condition Ready of a Deployment: its Progressing, and the inverse of its ReplicaFailure."""
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
    """Return whether the Deployment made no progress within its deadline."""
    progressing = condition_of(deployment, "Progressing") or {}
    return progressing.get("status") == FALSE and progressing.get("reason") == PROGRESS_DEADLINE_EXCEEDED


def _at_least_zero(scale: int | None) -> int | None:
    return scale if scale is not None and scale >= 0 else None
