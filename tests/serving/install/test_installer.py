"""An installation can be interrupted, run again, changed and removed."""

from __future__ import annotations

import base64
from functools import cache
from pathlib import Path

import pytest

from clusters.base.api import Cluster
from clusters.base.errors import NotFound, Unavailable
from clusters.base.objects import CONFIG_MAP, DEPLOYMENT, MODEL, NAMESPACE, POD, SECRET, WARM_POOL, Key, name_of
from clusters.embedded.cluster import EmbeddedCluster
from clusters.runtime.manager.fence import FencedCluster
from serving.install import bundle
from serving.install.bundle import LABEL
from serving.install.configuration import NAME, settings_of
from serving.install.installer import Installer, ManifestChange
from serving.install.kinds import CRD, ORDER
from serving.install.pool_key import NAME as POOL_KEY
from serving.install.pool_key import make_pool_key
from serving.install.uninstaller import ModelsLeft, delete_owned, owned_by_people, remove_all, require_none
from serving.install.waiting import NotDone, WaitDeadline
from serving.types.settings.settings import SettingsError
from tests.serving.install.conftest import BriskClock, Knative, Kubernetes, versions
from tests.serving.models import model_object
from tests.serving.pools import pool_object
from tests.support.clusters import embedded_cluster

SYSTEM = "knodel-system"
KEY_OF_POOLS = Key(SYSTEM, POOL_KEY)
BUDGETS = next(kind for kind in ORDER if kind.kind == "PodDisruptionBudget")


load_overlay = cache(bundle.load_overlay)
"""Reading one takes a third of a second."""


def silent(_: str) -> None:
    """Nobody looks."""


async def install(
    cluster: Cluster, deadline: WaitDeadline, overlay: str = "production", *, dashboard: bool = False
) -> list[ManifestChange]:
    installer, objects = Installer(cluster, silent), load_overlay(overlay, dashboard=dashboard)
    changes = await installer.apply(objects, deadline)
    await installer.wait(objects, deadline)
    return changes


def done(changes: list[ManifestChange]) -> set[str]:
    return {change.done for change in changes}


async def test_everything_is_made_and_runs(
    cluster: EmbeddedCluster, kubernetes: Kubernetes, knative: Knative, deadline: WaitDeadline
) -> None:
    changes = await install(cluster, deadline)
    assert done(changes) == {"created"}
    assert len(changes) == len(load_overlay("production")) + 1  # the key of warm pools
    for component in ("controller", "autoscaler", "eventing", "router"):
        await cluster.get(DEPLOYMENT, f"knodel-{component}", SYSTEM)


async def test_a_second_time_changes_nothing(
    cluster: EmbeddedCluster, kubernetes: Kubernetes, knative: Knative, deadline: WaitDeadline
) -> None:
    await install(cluster, deadline)
    before = await versions(cluster, ORDER)
    assert done(await install(cluster, deadline)) == {"unchanged"}
    assert await versions(cluster, ORDER) == before


class Patience:
    """So many writes are let through."""

    def __init__(self, writes: int) -> None:
        self._writes = writes

    @property
    def valid(self) -> bool:
        """Whether there is one left; asking takes it."""
        self._writes -= 1
        return self._writes >= 0


@pytest.mark.parametrize("writes", [0, 1, 2, 5, 13, 30])
async def test_one_that_was_interrupted_is_run_again(
    cluster: EmbeddedCluster, kubernetes: Kubernetes, knative: Knative, deadline: WaitDeadline, writes: int
) -> None:
    with pytest.raises(Unavailable):
        await install(FencedCluster(cluster, Patience(writes)), deadline)
    await install(cluster, deadline)
    assert done(await install(cluster, deadline)) == {"unchanged"}


async def test_another_overlay_removes_what_it_has_not(
    cluster: EmbeddedCluster, kubernetes: Kubernetes, knative: Knative, deadline: WaitDeadline
) -> None:
    await install(cluster, deadline)
    await knative.put(BUDGETS, SYSTEM, "theirs", spec={"minAvailable": 1})
    changes = await install(cluster, deadline, "edge")
    deleted = {str(change.key) for change in changes if change.done == "deleted"}
    assert deleted == {f"{SYSTEM}/knodel-{name}" for name in ("controller", "autoscaler", "eventing", "router")}
    assert [name_of(obj) for obj in (await cluster.list(BUDGETS)).items] == ["theirs"]


async def test_the_dashboard_comes_with_its_option_and_goes_without(
    cluster: EmbeddedCluster, kubernetes: Kubernetes, knative: Knative, deadline: WaitDeadline
) -> None:
    await install(cluster, deadline, "edge", dashboard=True)
    await cluster.get(DEPLOYMENT, "knodel-dashboard", SYSTEM)
    assert done(await install(cluster, deadline, "edge", dashboard=True)) == {"unchanged"}
    changes = await install(cluster, deadline, "edge")
    deleted = [change for change in changes if change.done == "deleted"]
    assert {change.key.name for change in deleted} == {"knodel-dashboard", "dashboard"}
    assert {change.key.namespace for change in deleted} == {"", SYSTEM, "knative-serving"}
    with pytest.raises(NotFound):
        await cluster.get(DEPLOYMENT, "knodel-dashboard", SYSTEM)


async def test_a_dry_run_changes_nothing_and_tells_what_would_be(
    cluster: EmbeddedCluster, kubernetes: Kubernetes, knative: Knative, deadline: WaitDeadline
) -> None:
    before = await versions(cluster, ORDER)
    changes = await Installer(cluster, silent, dry_run=True).apply(load_overlay("edge"), deadline)
    assert done(changes) == {"created"}
    assert await versions(cluster, ORDER) == before

    await install(cluster, deadline)
    before = await versions(cluster, ORDER)
    changes = await Installer(cluster, silent, dry_run=True).apply(load_overlay("edge"), deadline)
    assert done(changes) == {"unchanged", "configured", "deleted"}
    assert await versions(cluster, ORDER) == before
    assert "dry run" not in str(changes[0])


async def test_the_ingress_is_found_and_written_down(
    cluster: EmbeddedCluster, kubernetes: Kubernetes, knative: Knative, deadline: WaitDeadline
) -> None:
    await install(cluster, deadline)
    settings = settings_of(await cluster.get(CONFIG_MAP, NAME, SYSTEM))
    assert (settings.gateway.address, settings.gateway.port) == ("198.18.128.80", 80)
    assert settings.gateway.domain == "knodel.test"


async def test_settings_that_somebody_changed_stay(
    cluster: EmbeddedCluster, kubernetes: Kubernetes, knative: Knative, deadline: WaitDeadline
) -> None:
    await install(cluster, deadline)
    theirs = "# ours, please keep\ngateway: {address: 10.0.0.1, port: 8080, domain: models.example.org}\n"
    await cluster.patch(CONFIG_MAP, NAME, {"data": {"config.yaml": theirs}}, SYSTEM, manager="somebody")
    assert done(await install(cluster, deadline, "testbed")) == {"unchanged", "configured"}
    assert (await cluster.get(CONFIG_MAP, NAME, SYSTEM))["data"]["config.yaml"] == theirs


async def test_settings_that_nobody_changed_follow_the_overlay(
    cluster: EmbeddedCluster, kubernetes: Kubernetes, knative: Knative, deadline: WaitDeadline
) -> None:
    await install(cluster, deadline)
    await install(cluster, deadline, "testbed")
    settings = settings_of(await cluster.get(CONFIG_MAP, NAME, SYSTEM))
    assert settings.server.image.startswith("dev.local/")


async def test_settings_that_nobody_understands_end_it(
    cluster: EmbeddedCluster, kubernetes: Kubernetes, knative: Knative, deadline: WaitDeadline
) -> None:
    await install(cluster, deadline)
    await cluster.patch(CONFIG_MAP, NAME, {"data": {"config.yaml": "gatewy: {}"}}, SYSTEM, manager="somebody")
    with pytest.raises(SettingsError, match=r"gatewy: unknown setting in ConfigMap knodel-config"):
        await install(cluster, deadline)


async def test_what_does_not_come_up_is_named_with_the_reason(
    cluster: EmbeddedCluster, kubernetes: Kubernetes, knative: Knative
) -> None:
    kubernetes.broken.add("knodel-controller")
    labels = {"app.kubernetes.io/name": "knodel-controller"}
    waiting = {"reason": "ImagePullBackOff", "message": "no such image"}
    await cluster.create(
        POD, {"metadata": {"name": "knodel-controller-x", "namespace": SYSTEM, "labels": labels}}, manager="kubelet"
    )
    status = {"status": {"containerStatuses": [{"state": {"waiting": waiting}}]}}
    await cluster.patch(POD, "knodel-controller-x", status, SYSTEM, manager="kubelet", subresource="status")
    with pytest.raises(NotDone) as caught:
        await install(cluster, WaitDeadline(BriskClock(), 1.0, silent))
    assert "deployment knodel-controller: 0 of 2 replicas are available" in str(caught.value)
    assert "ImagePullBackOff: no such image" in str(caught.value)


async def test_uninstall_removes_all_of_ours_and_nothing_of_theirs(
    cluster: EmbeddedCluster, kubernetes: Kubernetes, knative: Knative, deadline: WaitDeadline
) -> None:
    before = {key for key, _ in (await versions(cluster, ORDER)).items()}
    await install(cluster, deadline)
    await remove_all(cluster, deadline)
    assert {key for key, _ in (await versions(cluster, ORDER)).items()} - before <= set()
    for kind in ORDER:
        assert not (await cluster.list(kind, selector=f"{LABEL}=knodel")).items
    assert await remove_all(cluster, deadline) == []


async def test_uninstall_with_a_dry_run_only_tells(
    cluster: EmbeddedCluster, kubernetes: Kubernetes, knative: Knative, deadline: WaitDeadline
) -> None:
    await install(cluster, deadline)
    before = await versions(cluster, ORDER)
    changes = await remove_all(cluster, deadline, dry_run=True)
    assert (changes[0].kind, changes[-1].kind) == (NAMESPACE, CRD)
    assert await versions(cluster, ORDER) == before


async def test_models_and_warm_pools_that_are_left_are_named(cluster: EmbeddedCluster, deadline: WaitDeadline) -> None:
    require_none(await owned_by_people(cluster))
    for number in range(7):
        await cluster.create(MODEL, model_object(f"m{number}"), manager="user")
    await cluster.create(WARM_POOL, pool_object("small"), manager="user")
    owned = await owned_by_people(cluster)
    words = "default/m4 and 2 more; warm pools still exist: default/small; delete them first"
    with pytest.raises(ModelsLeft, match=words):
        require_none(owned)
    assert len(await delete_owned(cluster, owned, deadline)) == len(owned) == 8
    require_none(await owned_by_people(cluster))


async def test_the_key_of_warm_pools_is_made_once_and_never_written_over(
    cluster: EmbeddedCluster, kubernetes: Kubernetes, knative: Knative, deadline: WaitDeadline
) -> None:
    assert ManifestChange(SECRET, KEY_OF_POOLS, "created") in await install(cluster, deadline)
    made = await cluster.get(SECRET, KEY_OF_POOLS.name, SYSTEM)
    assert len(base64.b64decode(made["data"]["key"])) == 32

    assert ManifestChange(SECRET, KEY_OF_POOLS, "unchanged") in await install(cluster, deadline)
    assert await cluster.get(SECRET, KEY_OF_POOLS.name, SYSTEM) == made


async def test_every_installation_has_a_key_of_its_own(tmp_path: Path) -> None:
    keys = set()
    for number in range(2):
        async with embedded_cluster(tmp_path / f"{number}.db") as cluster:
            assert await make_pool_key(cluster)
            keys.add((await cluster.get(SECRET, KEY_OF_POOLS.name, SYSTEM))["data"]["key"])
    assert len(keys) == 2
