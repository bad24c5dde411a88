"""The inventory: allocatable, held and free units by node, and the owners of the Pods that hold them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from autoscaler.gpu import hami
from autoscaler.gpu.dra import DraObjects
from autoscaler.gpu.inventory import Inventory, make_inventory
from autoscaler.gpu.owners import LABEL_MODEL, Owner, owner_of
from clusters.base.objects import Object
from serving.types.annotations import LABEL_MODEL as LABEL_OF_MODELS
from tests.autoscaler.gpu.objects import DRIVER, GPU, H100, claim, device_class, node, pod, resource_slice

OF_DRIVER = f"device.driver == '{DRIVER}'"


def test_a_node_has_what_its_pods_leave() -> None:
    pods = [pod("a-1", "a", 2, model="chat"), pod("a-2", "a", 1, model="chat"), pod("t", "a", 4), pod("b-1", "b", 8)]
    found = make_inventory([node("b"), node("a")], pods)
    a, b = found.nodes
    assert (a.name, a.types[GPU], a.allocatable[GPU], a.held(GPU), a.free(GPU)) == ("a", H100, 8, 7, 1)
    assert a.holders(GPU) == {Owner("PyTorchJob", "team", "train"): 4, Owner("Model", "team", "chat"): 3}
    assert (b.name, b.free(GPU)) == ("b", 0)


def test_an_empty_cluster_has_no_inventory() -> None:
    assert make_inventory([], []) == Inventory()
    assert make_inventory([node("plain", {})], [pod("web", "plain", {})]) == Inventory()


@pytest.mark.parametrize(("phase", "held"), [("Succeeded", 0), ("Failed", 0), ("Pending", 2), ("Running", 2)])
def test_a_pod_that_ended_holds_nothing(phase: str, held: int) -> None:
    (found,) = make_inventory([node("a")], [pod("one", "a", 2, phase=phase)]).nodes
    assert found.held(GPU) == held


def test_a_pod_that_is_being_deleted_holds_its_gpus_until_it_is_gone() -> None:
    going = pod("one", "a", 2)
    going["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert make_inventory([node("a")], [going]).nodes[0].free(GPU) == 6


def test_a_pod_without_a_node_waits() -> None:
    found = make_inventory([node("a")], [pod("two", gpus=2), pod("one", model="chat"), pod("web", gpus={})])
    assert [(one.key.name, dict(one.amounts)) for one in found.waiting] == [("one", {GPU: 1}), ("two", {GPU: 2})]
    assert found.nodes[0].held(GPU) == 0


def test_wrong_values_count_as_nothing_and_too_many_holders_leave_nothing() -> None:
    broken: Object = {"metadata": {"name": "broken"}, "status": {"allocatable": {GPU: "lots"}}}
    bare: Object = {"metadata": {"name": "bare"}}
    wrong = pod("wrong", "a", {GPU: "x"})
    a, found = make_inventory([broken, bare, node("a", 2)], [wrong, pod("one", "a", 1), pod("two", "a", 4)]).nodes
    assert (a.held(GPU), a.free(GPU)) == (5, 0)
    assert (found.name, found.allocatable, found.state) == ("broken", {GPU: 0}, "NotReady")


@pytest.mark.parametrize(
    ("made", "state"),
    [
        (node("a"), "Ready"),
        (node("a", ready="Unknown"), "NotReady"),
        (node("a", unschedulable=True), "Cordoned"),
        (node("a", ready="False", unschedulable=True), "Cordoned"),
    ],
)
def test_the_state_of_a_node(made: Object, state: str) -> None:
    assert make_inventory([made], []).nodes[0].state == state


def test_partitions_and_shares_have_names_of_their_own() -> None:
    mig, shared = "nvidia.com/mig-1g.10gb", "nvidia.com/gpu.shared"
    made = node("a", {GPU: "1", mig: "7", shared: "10", "nvidia.com/gpumem": "5"})
    made["metadata"]["labels"][f"{mig}.product"] = f"{H100}-MIG-1g.10gb"
    (found,) = make_inventory([made], [pod("one", "a", {mig: 2, shared: 1})]).nodes
    assert {one: (found.held(one), found.free(one)) for one in (GPU, mig, shared)} == {
        GPU: (0, 1), mig: (2, 5), shared: (1, 9),
    }  # fmt: skip
    assert (found.types[mig], found.types[GPU]) == (f"{H100}-MIG-1g.10gb", H100)


def test_other_resources_are_counted_by_their_names() -> None:
    npu = "example.com/npu"
    nodes, pods = [node("a", {npu: "4"}, product="")], [pod("one", "a", {npu: 3})]
    assert make_inventory(nodes, pods) == Inventory()
    assert make_inventory(nodes, pods, more=[npu]).nodes[0].free(npu) == 1


def of_hami(name: str, *devices: Any) -> Object:
    made = node(name, 20)
    made["metadata"]["annotations"] = {hami.NODE_ANNOTATION: json.dumps(devices)}
    return made


def test_shares_of_hami_are_counted_by_memory_and_compute() -> None:
    device = {"id": "GPU-1", "count": 10, "devmem": 80_000, "devcore": 100, "health": True}
    one = pod("one", "a", {GPU: 2, hami.MEMORY: 3000, hami.CORES: 30})
    one["metadata"]["annotations"] = {hami.POD_ANNOTATION: "GPU-1,NVIDIA,3000,30:GPU-2,NVIDIA,3000,30:;"}
    broken = {**device, "health": False}
    (found,) = make_inventory([of_hami("a", device, {**device, "id": "GPU-2"}, broken, "x")], [one]).nodes
    assert {name: (found.allocatable[name], found.held(name)) for name in found.allocatable} == {
        GPU: (20, 2), hami.MEMORY: (160_000, 6000), hami.CORES: (200, 60),
    }  # fmt: skip
    assert found.types[hami.MEMORY] == H100


@pytest.mark.parametrize("text", ["", "[", "{}", "null", "7", "[[]]", "[" * 100_000])
def test_an_annotation_of_hami_that_is_not_readable_has_no_shares(text: str) -> None:
    assert hami.capacity_of({hami.NODE_ANNOTATION: text}) == {}


@pytest.mark.parametrize("text", ["", ";;", "GPU-1,NVIDIA", "a,b,c,d:;", "GPU-1,NVIDIA,-3,x:;"])
def test_a_pod_without_shares_of_hami(text: str) -> None:
    assert hami.held_by({hami.POD_ANNOTATION: text}) == {}


@pytest.mark.parametrize(
    ("made", "owner"),
    [
        (pod("one", model="chat", owner=("ReplicaSet", "chat-1")), "Model team/chat"),
        (pod("one", labels={"autoscaling.knodel.dev/pool": "fast"}, owner=None), "WarmPool team/fast"),
        (pod("one", labels={"ray.io/cluster": "ray"}), "RayCluster team/ray"),
        (pod("one", owner=("Job", "train")), "Job team/train"),
        (pod("one", owner=("ReplicaSet", "web-7d4"), labels={"pod-template-hash": "7d4"}), "Deployment team/web"),
        (pod("one", owner=("ReplicaSet", "web-7d4"), labels={"pod-template-hash": "other"}), "ReplicaSet team/web-7d4"),
        (pod("one", owner=("Pod", "leader")), "Model team/large"),
        (pod("one", owner=("Pod", "gone")), "Pod team/gone"),
        (pod("one", owner=None), "Pod team/one"),
    ],
)
def test_the_owner_is_the_object_that_people_know(made: Object, owner: str) -> None:
    leader = pod("leader", model="large", owner=None)
    assert str(owner_of(made, {"uid-leader": leader})) == owner


def test_the_label_of_models_is_that_of_their_pods() -> None:
    assert LABEL_OF_MODELS == LABEL_MODEL


def test_devices_of_slices_are_counted_by_the_resource_of_their_class() -> None:
    dra = DraObjects(
        [resource_slice("a", "gpu-0", "gpu-1", "gpu-2"), resource_slice("b", "gpu-0", driver="nic.example.com")],
        [device_class(OF_DRIVER)],
        [claim("one-x", "a", "gpu-0", pods=("one",)), claim("two-x", "a", "gpu-1")],
    )
    (found,) = make_inventory([node("a", {}), node("b", {})], [pod("one", "a", 1)], dra).nodes
    assert (found.name, found.allocatable[GPU], found.free(GPU), found.types[GPU]) == ("a", 3, 1, H100)
    assert set(found.holders(GPU)) == {Owner("PyTorchJob", "team", "train"), Owner("ResourceClaim", "team", "two-x")}


def test_a_claim_of_a_pod_without_limits_holds_and_access_of_an_admin_does_not() -> None:
    dra = DraObjects(
        [resource_slice("a", "gpu-0", "gpu-1")],
        [device_class(OF_DRIVER)],
        [claim("x", "a", "gpu-0", "gpu-7", pods=("one", "two")), claim("y", "a", "gpu-1", pods=("two",), admin=True)],
    )
    (found,) = make_inventory([node("a", {})], [pod("one", "a", {}), pod("two", "a", {})], dra).nodes
    assert [one.key.name for one in found.pods] == ["one"]
    assert found.free(GPU) == 1


def test_only_the_newest_generation_of_a_pool_counts() -> None:
    slices = [resource_slice("a", "gpu-0", "gpu-1"), resource_slice("a", "gpu-0", generation=2)]
    dra = DraObjects(slices, [device_class(OF_DRIVER)])
    assert make_inventory([node("a", {})], [], dra).nodes[0].allocatable == {GPU: 1}


@pytest.mark.parametrize(("plugin", "expected"), [("8", 8), ("0", 2)])
def test_units_of_a_device_plugin_are_not_counted_twice(plugin: str, expected: int) -> None:
    dra = DraObjects([resource_slice("a", "gpu-0", "gpu-1")], [device_class(OF_DRIVER)])
    assert make_inventory([node("a", plugin)], [], dra).nodes[0].allocatable == {GPU: expected}


@pytest.mark.parametrize(
    ("expressions", "counted"),
    [
        ((f"{OF_DRIVER} && device.attributes['{DRIVER}'].type == 'gpu'",), 1),
        ((OF_DRIVER, f"device.attributes['{DRIVER}'].type == \"mig\""), 1),
        (("device.driver == 'other'",), 0),
        ((), 2),
    ],
)
def test_selectors_of_driver_and_attributes_are_read(expressions: tuple[str, ...], counted: int) -> None:
    slices = [resource_slice("a", "gpu-0"), resource_slice("b", "mig-0", kind="mig")]
    found = make_inventory([node("a", {}), node("b", {})], [], DraObjects(slices, [device_class(*expressions)]))
    assert (len(found.nodes), found.remarks) == (counted, ())


@pytest.mark.parametrize(
    ("made", "remarks"),
    [
        (device_class("device.capacity['gpu.nvidia.com'].memory.compareTo(quantity('40Gi')) > 0"), 1),
        (device_class(OF_DRIVER, resource="example.com/nic"), 0),
        (device_class(OF_DRIVER, resource=""), 0),
    ],
)
def test_other_classes_are_not_counted_and_remarked_if_they_may_be_gpus(made: Object, remarks: int) -> None:
    found = make_inventory([node("a", {})], [], DraObjects([resource_slice("a", "gpu-0")], [made]))
    assert (found.nodes, len(found.remarks)) == ((), remarks)
