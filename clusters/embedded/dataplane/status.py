"""What the data plane says of Ingresses and ServerlessServices, in Knative's conditions, reasons and messages. Pure.

Sources: knative/networking `pkg/apis/networking/v1alpha1/{ingress,serverlessservice}_lifecycle.go`, and for when each
is marked the reconciler of ServerlessServices in knative/serving.
"""

from __future__ import annotations

from datetime import datetime
from typing import Final

from clusters.base.objects import Object, name_of
from clusters.embedded.knative.conditions import ConditionSet, Status

NETWORK_CONFIGURED: Final = "NetworkConfigured"
LOAD_BALANCER_READY: Final = "LoadBalancerReady"
ENDPOINTS_POPULATED: Final = "EndpointsPopulated"
ACTIVATOR_ENDPOINTS_POPULATED: Final = "ActivatorEndpointsPopulated"


class _IngressStatus(Status):
    kinds = ConditionSet((NETWORK_CONFIGURED, LOAD_BALANCER_READY))


class _ServerlessServiceStatus(Status):
    kinds = ConditionSet((ENDPOINTS_POPULATED,))


def ingress_ready(ingress: Object, now: datetime) -> Object:
    """A probe saw this very wording at Envoy."""
    status = _IngressStatus(ingress)
    status.conditions.mark_true(NETWORK_CONFIGURED)
    status.conditions.mark_true(LOAD_BALANCER_READY)
    return status.result(now)


def ingress_waiting(ingress: Object, reason: str, message: str, now: datetime) -> Object:
    """It is not in force yet, for a reason that may pass."""
    status = _IngressStatus(ingress)
    status.conditions.mark_unknown(LOAD_BALANCER_READY, reason, message)
    return status.result(now)


def ingress_refused(ingress: Object, reason: str, message: str, now: datetime) -> Object:
    """It cannot come into force as it is worded."""
    status = _IngressStatus(ingress)
    status.conditions.mark_false(NETWORK_CONFIGURED, reason, message)
    return status.result(now)


def service_status(service: Object, *, populated: bool, direct: bool, now: datetime) -> Object:
    """`populated`: some Pod of the revision is ready. `direct`: Envoy sends requests past the activator."""
    status = _ServerlessServiceStatus(service)
    status.fields["serviceName"] = name_of(service)
    status.fields["privateServiceName"] = f"{name_of(service)}-private"
    conditions = status.conditions
    if populated:
        conditions.mark_true(ENDPOINTS_POPULATED)
    else:
        conditions.mark_unknown(ENDPOINTS_POPULATED, "NoHealthyBackends", "K8s Service is not ready")
    backed = "Revision is backed by Activator"  # said in both cases: Knative tells them apart by the status alone
    if direct:
        conditions.mark_false(ACTIVATOR_ENDPOINTS_POPULATED, ACTIVATOR_ENDPOINTS_POPULATED, backed)
    else:
        conditions.mark_true(ACTIVATOR_ENDPOINTS_POPULATED, ACTIVATOR_ENDPOINTS_POPULATED, backed)
    return status.result(now)
