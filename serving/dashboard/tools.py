"""Reads on demand of the pages, apart from objects: logs, findings of doctor, GPUs, the audit log, predictions."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar

from clusters.base.clock import Clock
from clusters.base.errors import KnodelError
from clusters.base.objects import timestamp
from serving.client.blocking import BlockingDriver, HttpTransport
from serving.client.effects import Call, HttpRequest, Items, each, exchange
from serving.client.errors import UsageError
from serving.client.inference.example import example_request
from serving.client.inference.ingress import IngressTarget, ingress_target
from serving.client.models.logs import ReplicaLine, logs
from serving.client.platform_ref import PlatformRef
from serving.dashboard.access import Access
from serving.dashboard.audit import AuditRecords
from serving.dashboard.commands import run_command, run_operation
from serving.dashboard.sessions import Session
from serving.modelserver.base.headers import REVISION

T = TypeVar("T")

TAIL: Final = 300
"""Lines of each replica's log."""
MOST_LINE: Final = 4000
"""Characters of a line that are shown."""
PREDICT_SECONDS: Final = 60.0
MOST_ANSWER: Final = 100_000
"""Characters of a model's response that are shown."""
GPUS_EVERY: Final = 30.0
"""Seconds for which the reading of the GPUs is shown again."""


@dataclass(frozen=True, slots=True)
class Findings:
    """The findings of doctor, and when it ran."""

    at: str
    rows: Sequence[dict[str, Any]]

    @property
    def skipped(self) -> int:
        """The number of checks whose rights are missing."""
        return sum(not row.get("seen", True) for row in self.rows)

    @property
    def good(self) -> int:
        """The number of checks that ran and found no problem."""
        return sum(bool(row["ok"]) for row in self.rows) - self.skipped


@dataclass(frozen=True, slots=True)
class Prediction:
    """A response of a model."""

    status: int
    revision: str
    milliseconds: float
    text: str


@dataclass(frozen=True, slots=True)
class GpuReading:
    """The GPUs, or a note why they cannot be read.

    `rows` are those of one machine, `nodes` the cells of `knodel gpus` for a cluster, and `notes` its lines after them.
    """

    rows: Sequence[dict[str, Any]] = ()
    note: str = ""
    nodes: Sequence[Sequence[str]] = ()
    notes: Sequence[str] = ()


class Tools(Protocol):
    """The operations that differ between one machine and Kubernetes."""

    def findings_for(self, session: Session) -> Findings | None:
        """Return what doctor found when it ran last. Raises Forbidden."""
        ...

    async def logs(self, session: Session, namespace: str, name: str) -> tuple[list[tuple[str, str]], str]:
        """Return the last lines of all replicas as (replica, line), and a note why there are none."""
        ...

    async def examine(self, session: Session) -> None:
        """Run doctor, and keep its findings. Raises KnodelError."""
        ...

    async def gpus(self, session: Session) -> GpuReading:
        """Return the GPUs and who holds them."""
        ...

    def audit(self) -> Sequence[dict[str, Any]]:
        """Return the last changes and refusals, newest first."""
        ...

    async def example(self, session: Session, namespace: str, name: str) -> str:
        """Return an example request of a model. Raises KnodelError."""
        ...

    async def predict(self, session: Session, namespace: str, name: str, body: str) -> Prediction:
        """Send a request to a model. Raises KnodelError."""
        ...


class LocalTools:
    """The tools of one machine."""

    def __init__(self, state: Path, access: Access, records: AuditRecords, clock: Clock) -> None:
        self._findings: Findings | None = None
        self._state = state
        self._platform = PlatformRef(state)
        self._access = access
        self._clock = clock
        self._records = records
        self._target = ("--state", str(state))
        self._gpus: tuple[float, GpuReading] | None = None

    async def logs(self, session: Session, namespace: str, name: str) -> tuple[list[tuple[str, str]], str]:
        """Return the last lines of all replicas; of those that ended in the last day, if none runs."""
        connect = partial(self._access.connect, session)

        def lines(api: Any) -> Call[list[tuple[str, str]]]:
            return collected(logs(api, name, namespace, state=self._state, tail=TAIL))

        try:
            return await run_operation(connect, lines, PREDICT_SECONDS), ""
        except KnodelError as error:
            return [], str(error)

    async def examine(self, session: Session) -> None:
        """Run `knodel doctor`. Raises KnodelError."""
        rows = await run_command(["doctor"], self._target)
        self._findings = Findings(timestamp(self._clock.now()), rows)

    def findings_for(self, session: Session) -> Findings | None:
        """Return what doctor found when it ran last."""
        return self._findings

    async def gpus(self, session: Session) -> GpuReading:
        """Run `knodel gpus`, at most once in GPUS_EVERY seconds."""
        now = self._clock.monotonic()
        if self._gpus is None or now - self._gpus[0] > GPUS_EVERY:
            try:
                found = await run_command(["gpus", "-A"], self._target)
                reading = GpuReading(
                    found.get("gpus") or (), "" if found.get("gpus") else "This machine has no NVIDIA GPUs."
                )
            except KnodelError as error:
                reading = GpuReading(note=str(error))
            self._gpus = (now, reading)
        return self._gpus[1]

    def audit(self) -> Sequence[dict[str, Any]]:
        """Return what the control API and the dashboard logged since the platform started."""
        return self._records.newest()

    async def example(self, session: Session, namespace: str, name: str) -> str:
        """Return the example request that `knodel predict --example` sends."""

        def example() -> Call[str]:
            return (yield from example_of((yield from ingress_target(self._platform, name, namespace)), name))

        return await in_thread(example())

    async def predict(self, session: Session, namespace: str, name: str, body: str) -> Prediction:
        """Send a request as `knodel predict -d` does. Raises UsageError for a body that is not JSON."""

        def predict() -> Call[Prediction]:
            return (yield from prediction_of((yield from ingress_target(self._platform, name, namespace)), name, body))

        return await in_thread(predict())


def example_of(target: IngressTarget, name: str) -> Call[str]:
    """Return the example request of a model, with indents unless it is large. Raises as `example_request`."""
    text = yield from example_request(target, name, PREDICT_SECONDS)
    return pretty(text) if len(text) < MOST_LINE else text


def prediction_of(target: IngressTarget, name: str, body: str) -> Call[Prediction]:
    """Return the response of a model to a request. Raises UsageError for a body that is not JSON, Unreachable."""
    try:
        json.loads(body)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"the request is not JSON: {error}") from error
    headers = {**target.headers, "Content-Type": "application/json"}
    path, began = f"/v2/models/{name}/infer", time.perf_counter()
    request = HttpRequest(target.endpoint, "POST", path, headers, body.encode(), PREDICT_SECONDS)
    answer = yield from exchange(request)
    took = 1000 * (time.perf_counter() - began)
    text = answer.content.decode("utf-8", "replace")[:MOST_ANSWER]
    return Prediction(answer.status, answer.headers.get(REVISION.decode(), ""), took, pretty(text))


def pretty(text: str) -> str:
    """Return JSON with indents; other texts unchanged. Pure."""
    try:
        return json.dumps(json.loads(text), indent=2, ensure_ascii=False)
    except (ValueError, RecursionError):
        return text


def collected(items: Items[ReplicaLine]) -> Call[list[tuple[str, str]]]:
    """Return all lines of an operation that yields them."""
    found: list[tuple[str, str]] = []

    def keep(line: ReplicaLine) -> Call[bool]:
        yield from ()
        found.append((line.replica, line.line.decode("utf-8", "replace").rstrip("\n")[:MOST_LINE]))
        return False

    yield from each(items, keep)
    return found


async def in_thread(call: Call[T]) -> T:
    """Return the result of an operation that names its own servers; raises its errors."""
    return await asyncio.to_thread(BlockingDriver(HttpTransport()).run, call)
