"""Parts of a GPU, as one machine gives them: shapes, sums by node, and what is said about them."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, ClassVar

import numpy as np
import pytest

from autoscaler.gpu.claims import AllocationSettings, Tenant
from autoscaler.gpu.dra import DraObjects
from autoscaler.gpu.holdings import Holder, Snapshot, make_snapshot
from autoscaler.gpu.page import gpu_families
from autoscaler.gpu.shapes import ANNOTATION_PRIORITY, shape_of
from autoscaler.gpu.sharing import GpuSharing
from autoscaler.gpu.watch import trim_pod
from autoscaler.usage.account import replica_of
from clusters.base.objects import ANNOTATION_GPU_FRACTION, LABEL_REVISION, Key, Object
from tests.autoscaler.gpu.objects import GPU, node, pod
from tests.support.clock import SteppedClock


class Watch:
    """A cluster that was read once."""

    synced = True
    elastic: ClassVar[dict[Any, Any]] = {}

    def __init__(self, nodes: list[Object], pods: list[Object]) -> None:
        self.nodes, self.pods = nodes, pods

    def snapshot(self) -> Snapshot:
        return make_snapshot(self.nodes, [kept for one in self.pods if (kept := trim_pod(one))], DraObjects())

    def subscribe(self, changed: Callable[[], None]) -> None:
        """Nothing changes."""

    def use(self, user: Hashable, *, needed: bool) -> None:
        """It is read always."""


def template(fraction: str = "", gpus: int = 0) -> Object:
    annotations = {ANNOTATION_GPU_FRACTION: fraction} if fraction else {}
    limits = {GPU: str(gpus)} if gpus else {}
    return {"metadata": {"annotations": annotations}, "spec": {"containers": [{"resources": {"limits": limits}}]}}


def part_pod(name: str, revision: str, fraction: str) -> Object:
    found = pod(name, "embedded", {}, owner=None, namespace="default", labels={LABEL_REVISION: revision})
    found["metadata"]["annotations"] = {ANNOTATION_GPU_FRACTION: fraction}
    return found


def limits(
    gpus: int,
    wants: dict[str, tuple[Object, int]],
    pods: list[Object] | None = None,
    settings: AllocationSettings | None = None,
    priorities: dict[str, str] | None = None,
    least: int = 0,
) -> dict[str, tuple[int, str]]:
    """Return the limits and their reasons of Revisions with these templates that want so many replicas."""
    sharing = GpuSharing(
        Watch([node("embedded", gpus)], pods or []), settings or AllocationSettings(), SteppedClock(), 1.0  # type: ignore[arg-type]
    )  # fmt: skip
    keys = [Key("default", name) for name in wants]
    for key, (made, _) in zip(keys, wants.values(), strict=True):
        annotations = {ANNOTATION_PRIORITY: (priorities or {}).get(key.name, "0")}
        scaler = {"metadata": {"name": key.name, "labels": {}, "annotations": annotations}}
        sharing.observe_revision(key, scaler, made, least=least, more=0)
    found = sharing.limits(keys, np.array([want for _, want in wants.values()]), 0.0)
    return {keys[index].name: (limit.replicas, limit.why) for index, limit in found.items()}


def test_the_shape_of_a_part_is_in_thousandths() -> None:
    shape = shape_of(template("0.3"), "NVIDIA-L4")
    assert shape is not None
    assert (shape.resource, shape.units, shape.part, shape.types) == (GPU, 300, True, ("NVIDIA-L4",))
    assert shape_of(template("0")) is None


def test_parts_of_one_gpu_fit_together_and_no_more() -> None:
    both = {"a": (template("0.6"), 1), "b": (template("0.4"), 1)}
    assert limits(1, both) == {}
    short = limits(1, {**both, "c": (template("0.1"), 1)})
    assert short == {"a": (0, "wants 1 replica and gets 0: 0.5 of 1 nvidia.com/gpu are held by others before it")}


def test_whole_gpus_and_parts_share_by_priority() -> None:
    held = [part_pod("a1", "a", "0.5"), part_pod("a2", "a", "0.5")]
    wants = {"a": (template("0.5"), 2), "whole": (template(gpus=1), 1)}
    assert list(limits(1, wants, held)) == ["whole"]
    reclaimed = limits(1, wants, held, priorities={"whole": "10"})
    assert list(reclaimed) == ["a"]
    assert reclaimed["a"][0] == 0


def test_the_limit_of_a_namespace_is_in_gpus() -> None:
    settings = AllocationSettings(tenants={"default": Tenant(limit={GPU: 1})})
    found = limits(2, {"a": (template("0.3"), 5)}, settings=settings)
    assert found["a"] == (3, "wants 5 replicas and gets 3: the limit of its namespace for nvidia.com/gpu is reached")


def test_who_gives_a_part_is_said_in_gpus() -> None:
    held = [part_pod(f"a{number}", "a", "0.25") for number in range(4)]
    wants = {"a": (template("0.25"), 4), "b": (template("0.5"), 2)}
    found = limits(1, wants, held, priorities={"b": "1"})
    assert found == {"a": (0, "wants 4 replicas and gets 0: 1 of 1 nvidia.com/gpu are held by others before it")}


def test_parts_of_others_are_counted_in_metrics_and_leave_whole_gpus() -> None:
    foreign = [part_pod("x", "x", "0.3"), part_pod("y", "y", "0.3")]
    assert limits(2, {"a": (template(gpus=1), 1)}, foreign) == {}
    assert list(limits(1, {"a": (template(gpus=1), 1)}, foreign)) == ["a"]
    units = next(gpu_families(Watch([node("embedded", 2)], foreign).snapshot().inventory.nodes, (), {}))
    assert {labels["state"]: value for labels, value in units.samples} == {"total": 2.0, "held": pytest.approx(0.6)}


def test_pods_with_a_part_belong_to_their_revision() -> None:
    snapshot = Watch([node("embedded", 1)], [part_pod("a1", "a", "0.5")]).snapshot()
    assert snapshot.held(Holder.revision(Key("default", "a"))) == {"embedded": 1}


def test_a_replica_that_is_being_deleted_keeps_no_floor() -> None:
    """Otherwise two Models take a GPU from each other by turns: the Pod of one ends while that of the other waits."""
    held = [part_pod("a1", "a", "0.6")]
    wants = {"a": (template("0.6"), 1), "d": (template("0.5"), 1)}
    assert list(limits(1, wants, held, priorities={"d": "5"}, least=1)) == ["d"]
    held[0]["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert list(limits(1, wants, held, priorities={"d": "5"}, least=1)) == ["a"]


def test_the_account_of_a_replica_has_its_part() -> None:
    assert replica_of(template("0.25"))[GPU] == 0.25
