"""Read the GPU inventory of a cluster with the rights of the caller, and turn it into rows and structured output."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

from autoscaler.gpu.dra import DraObjects
from autoscaler.gpu.draining import Drain, plan_drains
from autoscaler.gpu.inventory import GpuNode, GpuPod, Inventory, make_inventory
from autoscaler.gpu.owners import Owner
from clusters.base.errors import Forbidden
from clusters.base.objects import DEVICE_CLASS, NODE, POD, RESOURCE_CLAIM, RESOURCE_SLICE, Kind, Object
from serving.client.client import Client
from serving.client.errors import ClientError

HEADS = ("node", "resource", "gpu type", "total", "held", "free", "state", "holders")
UNKNOWN = "?"


@dataclass(frozen=True, slots=True)
class View:
    """An inventory, and the namespace whose holders are named (None: all).

    It is `whole` if the Pods of all namespaces were read; otherwise the free GPUs are unknown.
    """

    inventory: Inventory
    namespace: str | None = None
    whole: bool = True

    @property
    def drains(self) -> tuple[Drain, ...]:
        """Nodes that could be drained."""
        return plan_drains(self.inventory) if self.whole else ()


def read_view(client: Client, namespace: str | None, more: Collection[str]) -> View:
    """Return the GPUs of the cluster. Pods of one namespace are read if the caller may not list those of all.

    Raises Forbidden if the caller may not list Nodes, or Pods of `namespace`.
    """
    nodes = client.list(NODE, None)["items"]
    whole = True
    try:
        pods = client.list(POD, None)["items"]
    except Forbidden:
        if namespace is None:
            raise
        pods, whole = client.list(POD, namespace)["items"], False
    dra = DraObjects(*(_optional(client, kind) for kind in (RESOURCE_SLICE, DEVICE_CLASS, RESOURCE_CLAIM)))
    return View(make_inventory(nodes, pods, dra, more), namespace, whole)


def _optional(client: Client, kind: Kind) -> list[Object]:
    """Return the objects; none from a cluster that does not have the kind, or that does not let the caller read it."""
    try:
        return list(client.list(kind, None)["items"])
    except (Forbidden, ClientError):
        return []


def rows(view: View) -> Iterator[list[str]]:
    """Yield the cells of each resource of each node."""
    for node in view.inventory.nodes:
        for resource, total in sorted(node.allocatable.items()):
            held, free = str(node.held(resource)), str(node.free(resource))
            yield [
                node.name,
                resource,
                node.types.get(resource, "") or "-",
                str(total),
                *((held, free) if view.whole else (f"{held}+", UNKNOWN)),
                node.state,
                _holders(view, node, resource) or "-",
            ]


def lines(view: View) -> Iterator[str]:
    """Yield the sentences after the table: Pods that wait, nodes that could be drained, remarks."""
    waiting = [pod for pod in view.inventory.waiting if _is_shown(view, pod.owner)]
    if waiting:
        yield f"waiting for GPUs: {', '.join(f'{pod.owner} (Pod {pod.key.name}, {_amounts(pod)})' for pod in waiting)}"
    for drain in view.drains:
        if drain.moves:
            yield f"node {drain.node} could be drained: {', '.join(_move(view, drain))}"
        else:
            yield f"node {drain.node} could be drained: nobody holds its GPUs"
    if not view.whole:
        yield (
            f"free GPUs are not known: you may list the Pods of namespace {view.namespace}, not those of all namespaces"
        )
    yield from view.inventory.remarks


def value(view: View) -> dict[str, Any]:
    """Return the structured output. With incomplete Pods, `free` is null and `drainable` is absent."""
    drains = [
        {"node": drain.node, "moves": [{**_pod_value(move.pod), "to": move.to} for move in drain.moves]}
        for drain in view.drains
    ]
    return {
        "nodes": [_node_value(view, node) for node in view.inventory.nodes],
        "waiting": [_pod_value(pod) for pod in view.inventory.waiting if _is_shown(view, pod.owner)],
        **({"drainable": drains} if view.whole else {}),
        "remarks": list(view.inventory.remarks),
    }


def _node_value(view: View, node: GpuNode) -> dict[str, Any]:
    gpus = [
        {
            "resource": resource,
            "type": node.types.get(resource, ""),
            "allocatable": total,
            "held": node.held(resource),
            "free": node.free(resource) if view.whole else None,
        }
        for resource, total in sorted(node.allocatable.items())
    ]
    pods = [_pod_value(pod) for pod in node.pods if _is_shown(view, pod.owner)]
    return {"name": node.name, "state": node.state, "gpus": gpus, "pods": pods}


def _pod_value(pod: GpuPod) -> dict[str, Any]:
    return {
        "namespace": pod.key.namespace,
        "pod": pod.key.name,
        "owner": {"kind": pod.owner.kind, "name": pod.owner.name},
        "amounts": dict(sorted(pod.amounts.items())),
    }


def _holders(view: View, node: GpuNode, resource: str) -> str:
    """Return the holders with their units; those of other namespaces together."""
    words, others = [], 0
    for owner, units in node.holders(resource).items():
        if _is_shown(view, owner):
            words.append(f"{_name(view, owner)} {units}")
        else:
            others += units
    return ", ".join([*words, *([f"other namespaces {others}"] if others else [])])


def _move(view: View, drain: Drain) -> Iterator[str]:
    for move in drain.moves:
        who = _name(view, move.pod.owner) if _is_shown(view, move.pod.owner) else "a Pod of another namespace"
        yield f"{who} ({_amounts(move.pod)}) fits on {move.to}"


def _name(view: View, owner: Owner) -> str:
    return str(owner) if view.namespace is None else f"{owner.kind} {owner.name}"


def _is_shown(view: View, owner: Owner) -> bool:
    return view.namespace in (None, owner.namespace)


def _amounts(pod: GpuPod) -> str:
    return " and ".join(f"{units} {resource}" for resource, units in sorted(pod.amounts.items()))
