"""The GPUs of a cluster: on which nodes they are, and which Pods hold them. Pure.

Units are counted by resource: whole GPUs (`nvidia.com/gpu`), MIG partitions (`nvidia.com/mig-1g.10gb`), time slices
(`nvidia.com/gpu.shared`), those of AMD and Intel, and devices of ResourceSlices that a DeviceClass gives the name of an
extended resource. With HAMi, `nvidia.com/gpumem` (MiB) and `nvidia.com/gpucores` (hundredths of a GPU) are counted too.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from autoscaler.gpu import hami
from autoscaler.gpu.dra import Devices, DraObjects, read_devices
from autoscaler.gpu.owners import Owner, owner_of
from autoscaler.gpu.units import Amounts, is_gpu, part_of_gpu, read_units, requested_by, type_of
from autoscaler.warmpool.claims.pods import FINISHED
from clusters.base.objects import (
    NVIDIA_GPU,
    Key,
    Object,
    annotations_of,
    controller_of,
    is_deleting,
    is_true,
    key_of,
    labels_of,
    name_of,
    uid_of,
)
from clusters.base.quantities import THOUSANDTHS

CLAIM_KIND: Final = "ResourceClaim"
"""Kind of the owner of devices that are allocated to no Pod."""


@dataclass(frozen=True, slots=True)
class GpuPod:
    """A Pod, or an allocated ResourceClaim without a Pod, that holds or awaits GPUs.

    `recreated`: a controller creates another Pod when this one is evicted. `needs_no_other`: it needs no other node
    when its node is drained, since it belongs to a DaemonSet or is being deleted. `part`: thousandths of a GPU that it
    shares, on one machine.
    """

    key: Key
    owner: Owner
    amounts: Amounts
    node_selector: Mapping[str, str] = field(default_factory=dict)
    tolerations: tuple[Mapping[str, Any], ...] = ()
    recreated: bool = True
    needs_no_other: bool = False
    part: int = 0


@dataclass(frozen=True, slots=True)
class GpuNode:
    """A node with GPUs: the allocatable units and the type of each resource, and the Pods that hold units.

    `state` is `Ready`, `NotReady` or `Cordoned`; only a ready node takes new Pods.
    """

    name: str
    allocatable: Amounts
    types: Mapping[str, str]
    pods: tuple[GpuPod, ...] = ()
    state: str = "Ready"
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Mapping[str, Any], ...] = ()

    def held(self, resource: str) -> int:
        """Return the units that Pods hold."""
        return sum(pod.amounts.get(resource, 0) for pod in self.pods)

    def free(self, resource: str) -> int:
        """Return the units that no Pod holds; 0 if Pods hold more than the node has, as after a device failed."""
        return max(0, self.allocatable.get(resource, 0) - self.held(resource))

    def holders(self, resource: str) -> dict[Owner, int]:
        """Return the units by owner, largest first."""
        found: dict[Owner, int] = {}
        for pod in self.pods:
            if units := pod.amounts.get(resource, 0):
                found[pod.owner] = found.get(pod.owner, 0) + units
        return dict(sorted(found.items(), key=lambda item: (-item[1], item[0])))


@dataclass(frozen=True, slots=True)
class Inventory:
    """The nodes with GPUs by name, the Pods that wait for GPUs, and remarks about objects that were not counted."""

    nodes: tuple[GpuNode, ...] = ()
    waiting: tuple[GpuPod, ...] = ()
    remarks: tuple[str, ...] = ()


def make_inventory(
    nodes: Iterable[Object], pods: Iterable[Object], dra: DraObjects | None = None, more: Collection[str] = ()
) -> Inventory:
    """Return the inventory. `more` are names of further resources that are GPUs.

    Pods that have ended hold nothing. Those that are being deleted hold their GPUs until they are gone.

    Example:
        inventory = make_inventory(nodes, pods)
        sum(node.free("nvidia.com/gpu") for node in inventory.nodes if node.state == "Ready")
    """

    def is_counted(resource: str) -> bool:
        return is_gpu(resource) or resource in (*more, hami.MEMORY, hami.CORES)

    present = [pod for pod in pods if (pod.get("status") or {}).get("phase") not in FINISHED]
    by_uid = {uid_of(pod): pod for pod in present}
    devices = read_devices(dra or DraObjects(), is_counted)
    on: dict[str, list[GpuPod]] = {}
    for pod in present:
        amounts = {**requested_by(pod), **hami.held_by(annotations_of(pod))}
        for resource, units in devices.held.get(uid_of(pod), {}).items():
            amounts[resource] = max(units, amounts.get(resource, 0))
        node = str((pod.get("spec") or {}).get("nodeName") or "")
        counted = {one: units for one, units in amounts.items() if is_counted(one)}
        if counted or (node and part_of_gpu(pod)):
            on.setdefault(node, []).append(_gpu_pod(pod, owner_of(pod, by_uid), counted))
    for node, claim, held in devices.without_pod(by_uid):
        owner = Owner(CLAIM_KIND, claim.namespace, claim.name)
        on.setdefault(node, []).append(GpuPod(claim, owner, held, recreated=False))
    found = [_gpu_node(one, devices, is_counted, on.get(name_of(one), ())) for one in sorted(nodes, key=name_of)]
    return Inventory(tuple(one for one in found if one.allocatable), _sorted(on.get("", ())), devices.remarks)


def parts_of(pods: Iterable[GpuPod], resource: str) -> float:
    """Return the GPUs that Pods with parts of them hold together."""
    return sum(pod.part for pod in pods) / THOUSANDTHS if resource == NVIDIA_GPU else 0.0


def _gpu_pod(pod: Object, owner: Owner, amounts: Amounts) -> GpuPod:
    spec, controller = pod.get("spec") or {}, controller_of(pod)
    return GpuPod(
        key_of(pod),
        owner,
        amounts,
        node_selector=dict(spec.get("nodeSelector") or {}),
        tolerations=tuple(spec.get("tolerations") or ()),
        recreated=controller is not None or owner.kind != "Pod",
        needs_no_other=is_deleting(pod) or (controller or {}).get("kind") in ("DaemonSet", "Node"),
        part=part_of_gpu(pod),
    )


def _gpu_node(node: Object, devices: Devices, is_counted: Callable[[str], bool], pods: Iterable[GpuPod]) -> GpuNode:
    """Return the node. Where a device plugin and ResourceSlices have the same resource, the plugin's units count."""
    name, labels, spec = name_of(node), labels_of(node), node.get("spec") or {}
    listed = (node.get("status") or {}).get("allocatable") or {}
    units = {one: read_units(text) for one, text in listed.items() if is_counted(one)}
    types = {one: type_of(one, labels) for one in units}
    for resource, count in devices.allocatable.get(name, {}).items():
        if not units.get(resource):
            units[resource], types[resource] = count, devices.types[name][resource]
    for resource, count in hami.capacity_of(annotations_of(node)).items():
        units[resource], types[resource] = count, type_of(NVIDIA_GPU, labels)
    return GpuNode(
        name,
        units,
        types,
        _sorted(pods),
        state="Cordoned" if spec.get("unschedulable") else "Ready" if is_true(node, "Ready") else "NotReady",
        labels=labels,
        taints=tuple(spec.get("taints") or ()),
    )


def _sorted(pods: Iterable[GpuPod]) -> tuple[GpuPod, ...]:
    return tuple(sorted(pods, key=lambda pod: pod.key))
