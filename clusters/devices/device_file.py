"""GPUs described by a file, for tests and for trying out assignments on a machine without GPUs.

    {"devices": [{"uuid": "GPU-0", "name": "Tesla P4", "memory": "8Gi"}, …],
     "links": [["X", "PIX"], ["PIX", "X"]],
     "faults": {"GPU-1": "GPU is lost"}}

`links` has the words of `nvidia-smi topo -m`; without it, all links are SYS. `faults` is read again and again.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from clusters.base.quantities import parse_quantity
from clusters.devices.machine import Device, DevicesError, Machine
from clusters.devices.topology import SYS, BadLinkError, score_of


class FileSource:
    """The GPUs that a JSON file describes."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self) -> Machine:
        """Return the GPUs and their links. Raises DevicesError."""
        content = self._content()
        try:
            devices = tuple(
                Device(str(one["uuid"]), str(one["name"]), int(parse_quantity(str(one["memory"]))))
                for one in content["devices"]
            )
            words = content.get("links")
            scores = [[score_of(word) for word in row] for row in words] if words else _all_sys(len(devices))
        except (KeyError, TypeError, ValueError, AttributeError, BadLinkError) as error:
            raise DevicesError(f"{self._path}: {error}: each device needs uuid, name and memory") from error
        if len(scores) != len(devices) or any(len(row) != len(devices) for row in scores):
            raise DevicesError(f"{self._path}: links must have {len(devices)} rows and columns, one for each device")
        return Machine(devices, scores)

    def faults(self) -> Mapping[str, str]:
        """Return the faults in the file. Raises DevicesError."""
        faults = self._content().get("faults") or {}
        if not isinstance(faults, dict):
            raise DevicesError(f"{self._path}: faults must be an object")
        return {str(uuid): str(fault) for uuid, fault in faults.items()}

    def _content(self) -> dict[str, Any]:
        try:
            content = json.loads(self._path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise DevicesError(f"cannot read the devices in {self._path}: {error}") from error
        if not isinstance(content, dict):
            raise DevicesError(f"{self._path}: must be a JSON object with the member devices")
        return content


def _all_sys(count: int) -> list[list[int]]:
    return [[SYS] * count for _ in range(count)]
