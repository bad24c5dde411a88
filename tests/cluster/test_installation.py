"""Knodel as it is installed on a real cluster; nothing here changes the installation."""

from __future__ import annotations

import pytest

from clusters.base.api import Cluster
from clusters.base.clock import SystemClock
from clusters.base.objects import CONFIG_MAP, DEPLOYMENT, MODEL, NAMESPACE, Kind, key_of, name_of
from serving.crds.admission import NAME as POLICY
from serving.crds.admission import SUBJECT
from serving.crds.definition import make_crd
from serving.install.bundle import OVERLAYS, load_overlay
from serving.install.installer import Installer
from serving.install.kinds import CRD, ORDER, kind_of
from serving.install.knative import flags_off, require_knative
from serving.install.waiting import WaitDeadline, not_available
from serving.types.settings.settings import Settings
from tests.serving.models import model_object

MANAGER = "knodel"
POLICIES: Kind = next(kind for kind in ORDER if kind.kind == "ValidatingAdmissionPolicy")


@pytest.fixture(autouse=True)
def _needed(installed: Settings) -> None:
    """Knodel is on the cluster."""


async def test_all_components_run_in_a_namespace_that_takes_only_restricted_pods(cluster: Cluster) -> None:
    namespace = await cluster.get(NAMESPACE, "knodel-system")
    assert namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"
    for deployment in (await cluster.list(DEPLOYMENT, "knodel-system")).items:
        assert await not_available(cluster, key_of(deployment)) == ""


async def test_the_definition_is_the_one_that_the_types_make(cluster: Cluster) -> None:
    """Each field that we say stands in it; the API server adds its own."""
    live = await cluster.apply(CRD, make_crd(MODEL), manager=MANAGER, force=True, dry_run=True)
    there = await cluster.get(CRD, MODEL.resource)
    assert live["spec"] == there["spec"]


@pytest.mark.parametrize("name", [POLICY, SUBJECT])
async def test_a_policy_is_typed_without_a_warning(cluster: Cluster, name: str) -> None:
    policy = await cluster.get(POLICIES, name)
    checked = (policy.get("status") or {}).get("typeChecking") or {}
    assert not checked.get("expressionWarnings")


@pytest.mark.parametrize("overlay", OVERLAYS)
async def test_every_manifest_is_taken_by_the_api_server_as_it_is_written(cluster: Cluster, overlay: str) -> None:
    for obj in load_overlay(overlay):
        await cluster.apply(kind_of(obj), obj, manager=MANAGER, force=True, dry_run=True)  # unknown fields are refused


async def test_what_an_installation_would_change_is_told_and_not_done(cluster: Cluster) -> None:
    before = await cluster.get(CONFIG_MAP, "knodel-config", "knodel-system")
    deadline = WaitDeadline(SystemClock(), 30.0, lambda _: None)
    changes = await Installer(cluster, lambda _: None, dry_run=True).apply(load_overlay("edge"), deadline)
    deleted = {change.key.name for change in changes if change.done == "deleted"}
    assert deleted == {
        "knodel-controller",
        "knodel-autoscaler",
        "knodel-eventing",
        "knodel-router",
    }  # disruption budgets
    assert await cluster.get(CONFIG_MAP, "knodel-config", "knodel-system") == before


async def test_knative_is_there_with_all_that_models_need(cluster: Cluster) -> None:
    await require_knative(cluster)
    assert await flags_off(cluster) == []


async def test_a_field_of_a_later_release_is_not_lost_silently(cluster: Cluster, namespace: str) -> None:
    made = model_object("plain")
    made["metadata"]["namespace"] = namespace
    stored = await cluster.create(MODEL, made, manager=MANAGER, dry_run=True)
    assert name_of(stored) == "plain"
    assert stored["spec"] == made["spec"]  # no default was written into it
