"""GPUs read by the command `nvidia-smi`, where the package `nvidia-ml-py` is not installed."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from clusters.devices.machine import Device, DevicesError, Machine
from clusters.devices.topology import score_of

COMMAND: Final = "nvidia-smi"
TIMEOUT: Final = 30.0  # s; the first call loads the driver
MIB: Final = 1 << 20
_QUERY: Final = ("--query-gpu=uuid,name,memory.total", "--format=csv,noheader,nounits")
_ESCAPE: Final = re.compile(r"\x1b\[[0-9;]*m")
_GPU: Final = re.compile(r"GPU\d+")

Run = Callable[[Sequence[str]], str]


def run_smi(arguments: Sequence[str]) -> str:
    """Return the output of `nvidia-smi`. Raises DevicesError."""
    try:
        done = subprocess.run([COMMAND, *arguments], capture_output=True, text=True, timeout=TIMEOUT, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise DevicesError(f"cannot run `{COMMAND}`: {error}") from error
    if done.returncode:
        said = (done.stderr or done.stdout).strip()
        raise DevicesError(f"`{COMMAND} {' '.join(arguments)}` failed with code {done.returncode}: {said}")
    return done.stdout


def parse_topology(text: str) -> list[list[int]]:
    """Return the scores of the pairs in the output of `nvidia-smi topo -m`.

    The output names only the NVLinks of a pair that has some, so such a score lacks the PCIe part. Raises DevicesError.
    """
    lines = [_ESCAPE.sub("", line).split() for line in text.splitlines()]
    heads = next((line for line in lines if line and line[0] == "GPU0"), [])
    count = sum(1 for word in heads if _GPU.fullmatch(word))
    start = lines.index(heads) + 1 if heads else 0
    rows = [line[1 : count + 1] for line in lines[start:] if line and _GPU.fullmatch(line[0])]
    if len(rows) != count or any(len(row) != count for row in rows):
        raise DevicesError(f"`{COMMAND} topo -m` printed no matrix of the GPUs: {text[:200]!r}")
    return [[score_of(word) for word in row] for row in rows]


class SmiSource:
    """The GPUs of this machine by `nvidia-smi`. It does not notice GPUs that fail later."""

    def __init__(self, run: Run = run_smi) -> None:
        self._run = run

    def read(self) -> Machine:
        """Return the GPUs and their links. Raises DevicesError."""
        listed = self._run(_QUERY)
        devices = tuple(_device(line) for line in listed.splitlines() if line.strip())
        scores = parse_topology(self._run(("topo", "-m"))) if devices else []
        if len(scores) != len(devices):
            raise DevicesError(f"`{COMMAND}` lists {len(devices)} GPUs, and links of {len(scores)}")
        return Machine(devices, scores)

    def faults(self) -> Mapping[str, str]:
        """Return nothing."""
        return {}


def _device(line: str) -> Device:
    try:
        uuid, name, memory = (word.strip() for word in line.split(","))
        return Device(uuid, name, int(memory) * MIB)
    except ValueError as error:
        raise DevicesError(f"`{COMMAND}` printed a line without uuid, name and memory: {line!r}") from error
