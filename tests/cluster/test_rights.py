"""Rights of our components: what RBAC grants is what the audit log has seen used, no verb more and none less.

The log holds all that happened since the testbed came up, so this comes after the other tests (`make test-cluster`).
"""

from __future__ import annotations

import pytest

from autoscaler.gpu.elastic import ELASTIC_KINDS
from clusters.base.api import Cluster
from clusters.base.objects import DEVICE_CLASS, RESOURCE_CLAIM, RESOURCE_SLICE, Kind
from eventing.mapping.jobs import JOB_KINDS
from serving.types.settings.settings import Settings
from tests.support.kubernetes import KubeTarget
from tests.support.rbac import granted, missing, unused, used

GROUP = "rbac.authorization.k8s.io"
ROLES = (
    Kind(GROUP, "v1", "ClusterRole", "clusterroles", namespaced=False, status=False),
    Kind(GROUP, "v1", "Role", "roles", status=False),
)
BINDINGS = (
    Kind(GROUP, "v1", "ClusterRoleBinding", "clusterrolebindings", namespaced=False, status=False),
    Kind(GROUP, "v1", "RoleBinding", "rolebindings", status=False),
)
SYSTEM = "knodel-system"
LATER = {
    "delete modelevents.knodel.dev",
    "create podgroups.scheduling.volcano.sh",
    *(f"{verb} nodes" for verb in ("get", "list", "watch")),
    *(f"{verb} {one.resource}" for verb in ("list", "watch") for one in (RESOURCE_SLICE, DEVICE_CLASS, RESOURCE_CLAIM)),
    *(f"{verb} {one.resource}" for verb in ("list", "watch", "patch") for one in ELASTIC_KINDS),
}
"""Rights that no test needs: events go after an hour at least, by the settings; the testbed has neither Volcano nor
GPUs, and no elastic jobs."""
GIVEN_BY_OTHERS = {("get", "secrets"), *(("list", one.kind.plural) for one in JOB_KINDS)}
"""What is refused while nobody has given it: keys are read by Roles that come after their EventSources, and go with
them; finished jobs are looked for where somebody lets that happen (docs/event-sources.md)."""


@pytest.mark.parametrize("account", ["knodel-controller", "knodel-autoscaler", "knodel-eventing", "knodel-router"])
async def test_a_component_has_the_rights_that_it_uses_and_no_others(
    cluster: Cluster, target: KubeTarget, installed: Settings, account: str
) -> None:
    if target.audit_log is None:
        pytest.skip("this cluster's audit log is not at hand: the testbed's is")
    roles = [{**one, "kind": kind.kind} for kind in ROLES for one in (await cluster.list(kind)).items]
    bindings = [one for kind in BINDINGS for one in (await cluster.list(kind)).items]

    grants = granted(account, SYSTEM, bindings, roles)
    with target.audit_log.open() as log:
        allowed, forbidden = used(account, SYSTEM, log)

    refused = {right for right in forbidden if (right.verb, right.resource) not in GIVEN_BY_OTHERS}
    assert [str(right) for right in missing(grants, refused)] == []
    assert [str(right) for right in unused(grants, allowed) if str(right) not in LATER] == []
