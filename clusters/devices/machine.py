"""The GPUs of one machine as values, and the sources that they are read from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from clusters.base.errors import KnodelError
from clusters.devices.topology import Scores


class DevicesError(KnodelError):
    """The GPUs of this machine cannot be read."""


@dataclass(frozen=True, slots=True)
class Device:
    """A GPU: the driver's unique id, its product name, and its memory in bytes."""

    uuid: str
    name: str
    memory: int


@dataclass(frozen=True, slots=True)
class Machine:
    """The GPUs of this machine in the driver's order, and the scores of the links between them."""

    devices: tuple[Device, ...] = ()
    scores: Scores = ()


class DeviceSource(Protocol):
    """Where the GPUs are read from. The methods block."""

    def read(self) -> Machine:
        """Return the GPUs and their links. Raises DevicesError."""

    def faults(self) -> Mapping[str, str]:
        """Return why GPUs can no longer be used, by uuid. Raises DevicesError."""


class NoDevices:
    """The source of a machine on which no GPU is known."""

    def read(self) -> Machine:
        """Return a machine without GPUs."""
        return Machine()

    def faults(self) -> Mapping[str, str]:
        """Return nothing."""
        return {}
