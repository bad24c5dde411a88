"""All that a platform leaves behind or shows, place by place: files, processes, objects, what the command prints.

What there is on Kubernetes alone is in `tests.security.cluster_traces`.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from clusters.base.objects import SECRET, Kind
from loadtests.bench.processes import processes_of
from serving.client.client import Client
from tests.platform.machine import KNODEL

Trace = tuple[str, bytes]
"""(place, content)."""

VERBS = (
    ("list", "-A"), ("top", "-A"), ("config",), ("doctor",), ("pool", "list"), ("events", "list", "-A"),
    ("events", "list", "-A", "--direction", "out"), ("events", "sources"),
)  # fmt: skip
"""What the command shows of a whole platform."""
MODEL_VERBS = ("get", "describe", "history", "explain", "logs")
"""What it shows of one Model."""
OTHERS = 0o077
"""Of a mode: the rights of the group and of everybody."""
FORMATS = ("json", "yaml", "table")
PATIENCE = 180  # s for one command


@dataclass(frozen=True, slots=True)
class Command:
    """`knodel` with these variables of the environment; `options`, after its own, say which platform it acts on."""

    environment: Mapping[str, str]
    options: Sequence[str] = ()


def files(state: Path) -> Iterator[Trace]:
    """Every file of the state folder; sockets hold nothing."""
    for path in sorted(state.rglob("*")):
        if path.is_file() and not path.is_symlink():
            yield f"file {path.relative_to(state)}", path.read_bytes()


def open_to_others(state: Path) -> list[str]:
    """What others than their owner may read or change, even where the state folder itself was opened to them.

    A folder that they cannot enter keeps all that is in it.
    """
    found: list[str] = []
    waiting = sorted(state.iterdir())
    while waiting:
        path = waiting.pop()
        if not path.is_symlink() and is_open(path):
            found.append(f"{path.lstat().st_mode:o} {path.relative_to(state)}")
            waiting += path.iterdir() if path.is_dir() else ()
    return found


def is_open(path: Path) -> bool:
    """Whether its mode gives others anything."""
    return bool(path.lstat().st_mode & OTHERS)


def command_lines(state: Path) -> Iterator[Trace]:
    """The arguments of each process of the platform: every user of the machine can read them."""
    for pid, role in processes_of(state):
        yield f"arguments of the {role}", Path(f"/proc/{pid}/cmdline").read_bytes()


def environments(state: Path) -> Iterator[Trace]:
    """The variables of each process that the platform started."""
    for pid, role in processes_of(state):
        if role != "platform":  # it has those of the user's shell
            yield f"variables of the {role}", Path(f"/proc/{pid}/environ").read_bytes()


def objects(client: Client, kinds: Iterable[Kind]) -> Iterator[Trace]:
    """Every object of these kinds, Secrets apart, with the managed fields and the status."""
    for kind in kinds:
        if kind != SECRET:
            listed = client.list(kind, None)
            yield f"objects {kind.resource}", json.dumps(listed, ensure_ascii=False).encode()


def shown(command: Command, models: Iterable[str], formats: Iterable[str] = FORMATS) -> Iterator[Trace]:
    """What each verb that shows something prints, in each format."""
    verbs = (*VERBS, *((verb, model) for model in models for verb in MODEL_VERBS))
    for verb in verbs:
        for form in formats:
            yield said(command, *verb, "-o", form)


def said(command: Command, *words: str, stdin: str | None = None) -> Trace:
    """What a command prints on both channels, however it ends."""
    done = ran(command, *words, stdin=stdin)
    return f"`knodel {' '.join(words)}`", (done.stdout + done.stderr).encode()


def ran(command: Command, *words: str, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
    """A command that has ended."""
    return subprocess.run(
        [*KNODEL, *words, *command.options], env=command.environment, input=stdin, capture_output=True, text=True,
        timeout=PATIENCE, check=False,
    )  # fmt: skip
