"""The named transitions of a Service's, Configuration's and Route's status; a Revision's are in `revision_lifecycle`.

Conditions, reasons and messages are those of knative/serving 0.50, `pkg/apis/serving/v1/*_lifecycle.go`.
"""

from __future__ import annotations

import json

from clusters.base.objects import Object, condition_of
from clusters.embedded.knative.conditions import FALSE, UNKNOWN, ConditionSet, Status

CONFIGURATIONS_READY = "ConfigurationsReady"
ROUTES_READY = "RoutesReady"
READY = "Ready"
ALL_TRAFFIC_ASSIGNED = "AllTrafficAssigned"
INGRESS_READY = "IngressReady"
CERTIFICATE_PROVISIONED = "CertificateProvisioned"

OUT_OF_DATE = "OutOfDate"
NOT_OWNED = "NotOwned"
REVISION_MISSING = "RevisionMissing"


def quoted(name: str) -> str:
    """A name as Go's `%q` prints it."""
    return json.dumps(name, ensure_ascii=False)


class ServiceStatus(Status):
    """Conditions ConfigurationsReady and RoutesReady, and what Configuration and Route report."""

    kinds = ConditionSet((CONFIGURATIONS_READY, ROUTES_READY))

    def configuration_not_owned(self, name: str) -> None:
        """A Configuration of that name belongs to somebody else."""
        message = f"There is an existing Configuration {quoted(name)} that we do not own."
        self.conditions.mark_false(CONFIGURATIONS_READY, NOT_OWNED, message)

    def route_not_owned(self, name: str) -> None:
        """A Route of that name belongs to somebody else."""
        message = f"There is an existing Route {quoted(name)} that we do not own."
        self.conditions.mark_false(ROUTES_READY, NOT_OWNED, message)

    def configuration_out_of_date(self) -> None:
        """The Configuration has not seen its present spec yet."""
        message = "The Configuration is still working to reflect the latest desired specification."
        self.conditions.mark_unknown(CONFIGURATIONS_READY, OUT_OF_DATE, message)

    def route_out_of_date(self) -> None:
        """The Route has not seen its present spec yet."""
        message = "The Route is still working to reflect the latest desired specification."
        self.conditions.mark_unknown(ROUTES_READY, OUT_OF_DATE, message)

    def traffic_not_migrated(self) -> None:
        """The Route is ready, but not yet for the latest revision."""
        message = "Traffic is not yet migrated to the latest revision."
        self.conditions.mark_unknown(ROUTES_READY, "TrafficNotMigrated", message)

    def from_configuration(self, configuration: Object) -> None:
        """Take over what the Configuration reports."""
        status = configuration.get("status") or {}
        for field in ("latestCreatedRevisionName", "latestReadyRevisionName"):
            self.fields[field] = status.get(field)
        self.conditions.propagate(CONFIGURATIONS_READY, condition_of(configuration, READY))

    def from_route(self, route: Object) -> None:
        """Take over what the Route reports."""
        status = route.get("status") or {}
        for field in ("url", "address", "traffic"):
            self.fields[field] = status.get(field)
        self.conditions.propagate(ROUTES_READY, condition_of(route, READY))


class ConfigurationStatus(Status):
    """Ready, latestCreatedRevisionName, latestReadyRevisionName."""

    kinds = ConditionSet()

    @property
    def latest_created(self) -> str:
        """The newest Revision made."""
        return str(self.fields.get("latestCreatedRevisionName") or "")

    @property
    def latest_ready(self) -> str:
        """The newest Revision that was seen ready."""
        return str(self.fields.get("latestReadyRevisionName") or "")

    def set_latest_created(self, name: str) -> None:
        """The newest Revision; Ready is Unknown until it is ready."""
        self.fields["latestCreatedRevisionName"] = name
        if self.latest_ready != name:
            self.conditions.mark_unknown(READY)

    def set_latest_ready(self, name: str) -> None:
        """The newest ready Revision; Ready is True when it is the newest of all."""
        self.fields["latestReadyRevisionName"] = name
        if self.latest_created == name:
            self.conditions.mark_true(READY)

    def latest_created_failed(self, name: str, message: str) -> None:
        """The newest Revision failed."""
        text = f"Revision {quoted(name)} failed with message: {message}."
        self.conditions.mark_false(READY, "RevisionFailed", text)

    def creation_failed(self, message: str) -> None:
        """The Revision could not be made at all."""
        self.conditions.mark_false(READY, "RevisionFailed", f"Revision creation failed with message: {message}.")


class RouteStatus(Status):
    """AllTrafficAssigned, IngressReady and CertificateProvisioned, url, address and the traffic in force."""

    kinds = ConditionSet((ALL_TRAFFIC_ASSIGNED, INGRESS_READY, CERTIFICATE_PROVISIONED))

    def ingress_not_configured(self) -> None:
        """The Ingress has not seen its present spec yet."""
        message = "Ingress has not yet been reconciled."
        self.conditions.mark_unknown(INGRESS_READY, "IngressNotConfigured", message)

    def ingress_not_owned(self, name: str) -> None:
        """An Ingress of that name belongs to somebody else."""
        message = f"There is an existing Ingress {quoted(name)} that we do not own."
        self.conditions.mark_false(INGRESS_READY, NOT_OWNED, message)

    def from_ingress(self, ingress: Object) -> None:
        """Take over what the Ingress reports."""
        condition = condition_of(ingress, READY)
        if condition is None:
            self.ingress_not_configured()
        else:
            self.conditions.propagate(INGRESS_READY, condition)

    def traffic_assigned(self, traffic: list[Object]) -> None:
        """Every target is there and ready."""
        self.fields["traffic"] = traffic
        self.conditions.mark_true(ALL_TRAFFIC_ASSIGNED)

    def bad_target(self, status: str, reason: str, message: str) -> None:
        """Some target is missing or not ready: the traffic stays as it was."""
        if status not in (FALSE, UNKNOWN):
            raise ValueError(f"a bad traffic target has status False or Unknown, not {status}")
        condition = {"status": status, "reason": reason, "message": message}
        self.conditions.propagate(ALL_TRAFFIC_ASSIGNED, condition)

    def tls_not_enabled(self) -> None:
        """No certificate is asked for."""
        message = "external-domain-tls is not enabled"
        self.conditions.mark_true(CERTIFICATE_PROVISIONED, "TLSNotEnabled", message)
