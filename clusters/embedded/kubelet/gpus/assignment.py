"""Assign GPUs of the node to Pods: requests, assignments, and their records. Pure."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from clusters.base.objects import ANNOTATION_DEVICES, ANNOTATION_GPU_FRACTION, NVIDIA_GPU, Object, annotations_of
from clusters.base.quantities import THOUSANDTHS, parse_part, parse_quantity
from clusters.devices.machine import Machine
from clusters.devices.topology import MOST_COMPARED, choose
from clusters.embedded.kubelet.process.errors import UnsupportedPod

VISIBLE: Final = "CUDA_VISIBLE_DEVICES"
"""Variable with the GPUs that a process sees."""
WHOLE: Final = THOUSANDTHS


@dataclass(frozen=True, slots=True)
class Request:
    """The request of a Pod: `count` whole GPUs, or `share` thousandths of one."""

    count: int = 0
    share: int = WHOLE

    def __str__(self) -> str:
        return f"{self.count * self.share / WHOLE:g} {NVIDIA_GPU}"


@dataclass(frozen=True, slots=True)
class Assignment:
    """The GPUs of a Pod by uuid, and the thousandths of each that it has."""

    uuids: tuple[str, ...]
    share: int = WHOLE

    def to_text(self, *, isolated: bool = True) -> str:
        """Return the value of the Pod's annotation. A part is `isolated` by MPS, or by nothing."""
        part = {"isolated": isolated} if self.share < WHOLE else {}
        return json.dumps({"uuids": self.uuids, "share": self.share, **part})

    @classmethod
    def parse(cls, text: str) -> Assignment | None:
        """Return the assignment in an annotation; None for a text that is none."""
        try:
            record = json.loads(text)
            return cls(tuple(map(str, record["uuids"])), int(record["share"]))
        except (ValueError, KeyError, TypeError):
            return None


def recorded_assignment(pod: Object) -> Assignment | None:
    """Return the assignment that the Pod's annotation records."""
    return Assignment.parse(annotations_of(pod).get(ANNOTATION_DEVICES, ""))


def request_of(pod: Object) -> Request:
    """Return what a Pod requests of the node's GPUs. Raises UnsupportedPod for an invalid fraction or quantity."""
    text = annotations_of(pod).get(ANNOTATION_GPU_FRACTION)
    if text is not None:
        try:
            return Request(1, parse_part(text))
        except ValueError as error:
            raise UnsupportedPod(f"annotation {ANNOTATION_GPU_FRACTION} {error}, not {text!r}") from error
    amounts = (resources.get("limits") or {} for resources in _resources(pod))
    try:
        return Request(sum(int(parse_quantity(str(limits.get(NVIDIA_GPU, 0)))) for limits in amounts))
    except ValueError as error:
        raise UnsupportedPod(f"invalid limit {NVIDIA_GPU}: it {error}") from error


def assign(
    machine: Machine, held: Collection[Assignment], lost: Collection[str], request: Request
) -> Assignment | None:
    """Return the GPUs for a request: those with the best links; None if not enough are free.

    A part goes to the GPU with the least room that is sufficient, so that whole GPUs stay free.
    """
    room = room_of(machine, held, lost)
    uuids = [device.uuid for device in machine.devices]
    if request.share < WHOLE:
        partly = [uuid for uuid in uuids if request.share <= room[uuid] < WHOLE]
        if partly:
            return Assignment((min(partly, key=room.__getitem__),), request.share)
    free = [index for index, uuid in enumerate(uuids) if room[uuid] == WHOLE][:MOST_COMPARED]
    if len(free) < request.count:
        return None
    chosen = choose(machine.scores, free, request.count)
    return Assignment(tuple(uuids[index] for index in chosen), request.share)


def room_of(machine: Machine, held: Iterable[Assignment], lost: Collection[str]) -> Mapping[str, int]:
    """Return the free thousandths of each GPU by uuid; 0 for a lost one."""
    used: Counter[str] = Counter()
    for one in held:
        for uuid in one.uuids:
            used[uuid] += one.share
    return {device.uuid: 0 if device.uuid in lost else max(0, WHOLE - used[device.uuid]) for device in machine.devices}


def waiting_message(machine: Machine, held: Iterable[Assignment], lost: Collection[str], request: Request) -> str:
    """Return why a request waits, and the remedy.

    Example:
        "0/1 GPUs free, and the Pod requests 1 nvidia.com/gpu: it starts when others end"
    """
    room = room_of(machine, held, lost)
    free, total = sum(1 for one in room.values() if one == WHOLE), len(room)
    parts = [f"{one / WHOLE:g}" for one in room.values() if 0 < one < WHOLE]
    in_parts = f" ({', '.join(parts)} of others)" if parts else ""
    failed = f", {len(lost)} failed" if lost else ""
    usable = total - len(lost)
    if request.count <= usable:
        then = "it starts when others end"
    elif lost:
        then = "`nvidia-smi` shows the state of the failed ones"
    else:
        then = f"reduce resources.gpu to {usable} or fewer"
    return f"{free}/{total} GPUs free{in_parts}{failed}, and the Pod requests {request}: {then}"


def _resources(pod: Object) -> Iterable[Object]:
    return (container.get("resources") or {} for container in pod["spec"].get("containers") or ())
