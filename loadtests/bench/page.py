"""The page `docs/evidence/performance.md`: all recorded figures with their aims, and those of peers."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from loadtests.bench.figure import Figure
from loadtests.bench.record import RECORD, Part, read_record

PAGE = RECORD.with_suffix(".md")
PARTS: Mapping[str, tuple[str, str]] = {
    "start": ("The platform starts", "Time and memory of `knodel up` without models."),
    "deploy": ("A deploy", "From the command to the first response."),
    "zero": ("From zero", "Cold start: fork from a pre-warmed process, load the model, answer the first request."),
    "warm": ("Warm pool", "Warm start: claim a pool member, load the model, answer the first request."),
    "gateway": ("Overhead of the gateway", "Requests alternate between the gateway and the replica itself."),
    "load": ("Under load", "`make load`: several load shapes, a rollout, kills of processes, and the gateway."),
    "soak": (
        "Half an hour under load",
        "`make soak`: memory, files and tasks of each process of the platform, and their growth.",
    ),
    "many": ("Many models", "All deployed at once, then idle."),
    "idle": ("Idle", "CPU time of a platform with these models and no requests."),
    "list": ("The command", "Duration of a command, including the start of Python."),
    "decide": (
        "The decision",
        "All revisions of a fleet at once, compared with a copy of the tables and with Knative's rule.",
    ),
    "gpus": (
        "GPUs of models and training",
        "One allocation over all claims when they want four times what there is, as CPU time.",
    ),
    "loop": ("The autoscaler's loop", "One tick: read, decide, scale and record."),
    "simulate": (
        "Real traces",
        "Knodel's policy, Knative's rule and the best possible ([simulation](simulation.md)).",
    ),
    "fleet": (
        "Fleets of models",
        "Added waits relative to fixed keep-alives of the same cost ([simulation](simulation.md)).",
    ),
    "judge": ("The judge of rollouts", "Error rates of the judge in simulated rollouts ([rollouts](../rollouts.md))."),
    "events": ("Events", "The webhook alone, on one core; an event is durable before it is acknowledged."),
    "downloads": (
        "Downloads of folders",
        "Several files at once over kept connections; the server adds 2 ms to each connection and request.",
    ),
    "llm": (
        "Language models",
        "SmolLM2-135M through the model server, by turns with llama.cpp's own server.",
    ),
    "tracing": (
        "Traces and metrics by OTLP",
        "A model server of a trivial model on one core, without a collector and with one, by turns in one run.",
    ),
    "server": (
        "The model server and its peers",
        "KServe and MLServer with the same engines, alternately, on one core.",
    ),
    "cluster": ("On Kubernetes with Knative", "`make bench-cluster`: Knative's own autoscaler class and Knodel's."),
}
"""The parts of the page in order: title and subject."""
BAR = 24  # characters of the longest bar
COMPARED = frozenset({"simulate", "server", "cluster"})
"""Parts with several subjects of one measure: `load: subject, measure`."""
_OF_PEER = re.compile(r"^(?P<load>\S[^:]*): (?P<who>[^,]+(?:, in batches|, silenced)?), (?P<what>.+)$")


def page(record: Mapping[str, Part]) -> str:
    """Return the page."""
    lines = [
        "# Performance", "",
        "`make bench`, `make load`, `make soak` and `make bench-cluster` write this page. Each part shows its last",
        "measurement, with the day and the machine. You can run them on your machine; the exit code is 1 if an aim is",
        "missed. The modules of `loadtests/` document the measurements.", "",
        *_machines(record),
    ]  # fmt: skip
    for name, (title, about) in PARTS.items():
        lines += ["", f"## {title}", "", about]
        lines += _part(name, record[name], record) if name in record else ["", f"Not measured yet (part `{name}`)."]
    return "\n".join(lines) + "\n"


def _machines(record: Mapping[str, Part]) -> Iterator[str]:
    for number, machine in enumerate(_every(record), start=1):
        yield f"Machine {number}: {machine}."


def _every(record: Mapping[str, Part]) -> list[str]:
    return list(dict.fromkeys(str(record[name].machine) for name in PARTS if name in record))


def _part(name: str, part: Part, record: Mapping[str, Part]) -> Iterator[str]:
    yield f"({part.day}, machine {_every(record).index(str(part.machine)) + 1})"
    compared = [figure for figure in part.figures if name in COMPARED and _OF_PEER.match(figure.what)]
    rest = [figure for figure in part.figures if figure not in compared]
    yield from _peers(compared)
    if rest:
        yield from ("", "| | | | aim | |", "|---|--:|---|---|---|")
        yield from (_row(figure) for figure in rest)


def _peers(figures: Sequence[Figure]) -> Iterator[str]:
    """Yield a table for each load and measure: subject, value, and a bar."""
    by_load: dict[tuple[str, str], list[tuple[str, Figure]]] = {}
    for figure in figures:
        found = _OF_PEER.match(figure.what)
        if found is not None:
            by_load.setdefault((found["load"], found["what"]), []).append((found["who"], figure))
    for (load, what), rows in by_load.items():
        most = max(figure.value for _, figure in rows) or 1.0
        yield from ("", f"| {load}, {what} ({rows[0][1].unit}) | | |", "|---|--:|---|")
        for who, figure in rows:
            yield f"| {who} | {_number(figure.value)} | {'█' * max(1, round(BAR * figure.value / most))} |"


def _row(figure: Figure) -> str:
    aim = verdict = ""
    if figure.aim is not None:
        aim = f"{'≥' if figure.least else '≤'} {figure.aim:g} {figure.unit}".rstrip()
        verdict = "**missed**" if figure.missed else "ok"
    what = figure.what.strip()
    mark = "↳ " if figure.what != what else ""
    return f"| {mark}{what} | {_number(figure.value)} | {figure.unit} | {aim} | {verdict} |"


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def write_page(record: Mapping[str, Part], path: Path = PAGE) -> None:
    """Write the page."""
    path.write_text(page(record), encoding="utf-8")


if __name__ == "__main__":
    write_page(read_record())
