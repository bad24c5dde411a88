"""Nodes that could be drained, because other nodes have room for the Pods that hold their GPUs. Pure.

The plan is on paper: it compares GPUs, their types, node selectors and taints, but neither CPU and memory nor affinity.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from autoscaler.gpu.inventory import GpuNode, GpuPod, Inventory
from autoscaler.gpu.tolerations import is_tolerated


@dataclass(frozen=True, slots=True)
class Move:
    """A Pod, and the node that has room for it."""

    pod: GpuPod
    to: str


@dataclass(frozen=True, slots=True)
class Drain:
    """A node that could be drained, with the moves of its Pods; without moves, its GPUs are free."""

    node: str
    moves: tuple[Move, ...] = ()


class _Room:
    """Free units by node and resource, which the moves so far have reduced."""

    def __init__(self, nodes: Mapping[str, GpuNode]) -> None:
        self.nodes = nodes
        self.free = {name: {one: node.free(one) for one in node.allocatable} for name, node in nodes.items()}

    def take(self, pod: GpuPod, source: GpuNode) -> Move | None:
        """Take the units of a Pod from the node that holds the most already. Return None if no node has room.

        That node is the last one to be drained itself.
        """
        fitting = [name for name, node in self.nodes.items() if self._fits(pod, source, node)]
        if not fitting:
            return None
        best = min(fitting, key=lambda name: (-self._held(name), name))
        for one, units in pod.amounts.items():
            self.free[best][one] -= units
        return Move(pod, best)

    def give_back(self, moves: list[Move]) -> None:
        """Undo moves."""
        for move in moves:
            for one, units in move.pod.amounts.items():
                self.free[move.to][one] += units

    def _held(self, name: str) -> int:
        return sum(self.nodes[name].allocatable.values()) - sum(self.free[name].values())

    def _fits(self, pod: GpuPod, source: GpuNode, node: GpuNode) -> bool:
        free = self.free[node.name]
        return (
            all(free.get(one, 0) >= units for one, units in pod.amounts.items())
            and all(node.types.get(one, "") == source.types.get(one, "") for one in pod.amounts)
            and pod.node_selector.items() <= node.labels.items()
            and all(is_tolerated(taint, pod.tolerations, pod.amounts) for taint in node.taints)
        )


def plan_drains(inventory: Inventory) -> tuple[Drain, ...]:
    """Return the nodes that could be drained all together, those with the fewest held units first.

    Pods that no controller would create again are not moved, and those of DaemonSets and those that are being
    deleted need no other node. A node that takes Pods of another one is not drained itself.
    """
    targets = {node.name: node for node in inventory.nodes if node.state == "Ready"}
    room = _Room(targets)
    drains: list[Drain] = []
    receivers: set[str] = set()
    for node in sorted(inventory.nodes, key=lambda one: (sum(map(one.held, one.allocatable)), one.name)):
        pods = [pod for pod in node.pods if not pod.needs_no_other]
        if node.name in receivers or not all(pod.recreated for pod in pods):
            continue
        former = targets.pop(node.name, None)
        moves: list[Move] = []
        for pod in sorted(pods, key=lambda one: (-sum(one.amounts.values()), one.key)):
            if (move := room.take(pod, node)) is None:
                break
            moves.append(move)
        if len(moves) == len(pods):
            drains.append(Drain(node.name, tuple(moves)))
            receivers |= {move.to for move in moves}
            continue
        room.give_back(moves)
        if former is not None:
            targets[node.name] = former
    return tuple(drains)
