"""The device manager of the node: it assigns GPUs to Pods, oldest Pod first, and keeps what each of them has.

The record of an assignment is an annotation of the Pod, written before its process starts. A new kubelet reads the
records of all Pods, so what is held is right after a crash at any time.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from clusters.base.clock import Clock
from clusters.base.objects import Object, uid_of
from clusters.devices.machine import DevicesError, DeviceSource, Machine
from clusters.embedded.kubelet.gpus.assignment import (
    Assignment,
    Request,
    assign,
    recorded_assignment,
    request_of,
    waiting_message,
)

log = logging.getLogger(__name__)

CHECK_INTERVAL: Final = 5.0  # s between checks whether GPUs have failed
FINISHED: Final = ("Succeeded", "Failed")


@dataclass(slots=True)
class _Waiting:
    created: str
    uid: str
    request: Request
    granted: asyncio.Event = field(default_factory=asyncio.Event)


class DeviceManager:
    """Assign the GPUs of `source`. Without GPUs there, Pods that request some start without an assignment."""

    def __init__(self, source: DeviceSource, clock: Clock) -> None:
        self.machine = Machine()
        self.lost: Mapping[str, str] = {}
        self._source = source
        self._clock = clock
        self._held: dict[str, Assignment] = {}
        self._waiting: dict[str, _Waiting] = {}
        self._changed = asyncio.Event()

    async def start(self, pods: Iterable[Object]) -> None:
        """Read the GPUs, and what the Pods have by their records. GPUs that cannot be read are logged, and unknown."""
        try:
            self.machine = await asyncio.to_thread(self._source.read)
            self.lost = await asyncio.to_thread(self._source.faults)
        except DevicesError as error:
            log.warning("GPUs are not assigned to Pods: %s", error)
        for pod in pods:
            record = recorded_assignment(pod)
            if record is not None and (pod.get("status") or {}).get("phase") not in FINISHED:
                self._held[uid_of(pod)] = record

    @property
    def known(self) -> bool:
        """Return whether any GPU is known."""
        return bool(self.machine.devices)

    def assignment(self, uid: str) -> Assignment | None:
        """Return the GPUs of a Pod."""
        return self._held.get(uid)

    def request(self, pod: Object) -> Request | None:
        """Return what a Pod still has to wait for; None if it needs no GPU, has some, or no GPU is known.

        GPUs that are gone since they were assigned do not count. Raises UnsupportedPod.
        """
        request = request_of(pod)
        held = self._held.get(uid_of(pod))
        if held is not None and not self._present(held):
            self.release(uid_of(pod))
            held = None
        return request if self.known and request.count and held is None else None

    def take(self, pod: Object, request: Request) -> asyncio.Event:
        """Request GPUs for a Pod. The event is set when it has them: at once, or when other Pods release theirs."""
        waiting = _Waiting(str(pod["metadata"].get("creationTimestamp", "")), uid_of(pod), request)
        self._waiting[waiting.uid] = waiting
        self._grant()
        return waiting.granted

    def release(self, uid: str) -> None:
        """Free the GPUs of a Pod whose processes have ended, or withdraw its request."""
        self._waiting.pop(uid, None)
        if (released := self._held.pop(uid, None)) is not None:
            if any(uuid in self.lost for uuid in released.uuids):
                self._changed.set()
            self._grant()

    def why_waiting(self, request: Request) -> str:
        """Return why a request is not granted."""
        return waiting_message(self.machine, self._held.values(), self.lost, request)

    def held_uuids(self) -> frozenset[str]:
        """Return the GPUs of which Pods have some or all."""
        return frozenset(uuid for held in self._held.values() for uuid in held.uuids)

    async def changed(self) -> None:
        """Wait until GPUs have failed or recovered, or were released after a failure."""
        await self._changed.wait()
        self._changed.clear()

    async def watch(self) -> None:
        """Check the GPUs for faults until cancelled."""
        while self.known:
            await self._clock.sleep(CHECK_INTERVAL)
            try:
                lost = await asyncio.to_thread(self._source.faults)
            except DevicesError as error:
                log.warning("cannot check the GPUs: %s", error)
                continue
            if lost != self.lost:
                self.lost = lost
                self._changed.set()
                self._grant()

    def fault_of(self, uid: str) -> str:
        """Return what failed of a Pod's GPUs, empty if nothing did."""
        held = self._held.get(uid)
        faults = {uuid: self.lost[uuid] for uuid in (held.uuids if held else ()) if uuid in self.lost}
        return "; ".join(f"{uuid}: {fault}" for uuid, fault in faults.items())

    def _present(self, held: Assignment) -> bool:
        return not self.known or all(
            any(device.uuid == uuid for device in self.machine.devices) and uuid not in self.lost for uuid in held.uuids
        )

    def _grant(self) -> None:
        """Assign GPUs to the waiting Pods, oldest first. One that does not fit does not stop the next ones.

        Pods that were created in the same second come in the order of their requests.
        """
        for waiting in sorted(self._waiting.values(), key=lambda one: one.created):
            granted = assign(self.machine, self._held.values(), self.lost, waiting.request)
            if granted is None:
                continue
            del self._waiting[waiting.uid]
            self._held[waiting.uid] = granted
            waiting.granted.set()
