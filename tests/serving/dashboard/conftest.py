"""A dashboard over an embedded cluster, with a browser that keeps its cookies."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from clusters.base.errors import Forbidden
from clusters.base.objects import Kind, Object
from clusters.embedded.cluster import EmbeddedCluster
from clusters.runtime.informer import Informers
from serving.client.http import ServerAddress
from serving.client.server import Server
from serving.dashboard.app import Dashboard
from serving.dashboard.history import History
from serving.dashboard.objects import Objects
from serving.dashboard.sampler import Pages, Sampler
from serving.dashboard.sessions import Session, Sessions
from serving.dashboard.tools import Findings, GpuReading, Prediction
from tests.support.clock import SteppedClock
from tests.support.clusters import embedded_cluster
from tests.support.loops import at_work

BASE = "http://127.0.0.1:8081"


class Rights:
    """Everybody may do everything, at the API server of `address`."""

    takes_token = False
    user = "tester"

    def __init__(self) -> None:
        self.server: Server | None = None
        self.foreign = False

    def check_peer(self, scope: Mapping[str, Any]) -> None:
        """Refuse the peers that a test calls foreign."""
        if self.foreign:
            raise Forbidden("this dashboard is another user's")

    async def log_in(self, token: str) -> Session:
        """Tokens are no login."""
        raise Forbidden("log in with a one-time link")

    def connect(self, session: Session) -> Server:
        """The API server of the test."""
        assert self.server is not None
        return self.server


@dataclass
class FixedTools:
    """What a test wants to be read."""

    findings: Findings | None = None
    lines: list[tuple[str, str]] = field(default_factory=list)
    records: list[dict[str, Any]] = field(default_factory=list)
    gpu: GpuReading = field(default_factory=lambda: GpuReading(note="This machine has no NVIDIA GPUs."))
    text: str = '{"outputs": []}'

    async def logs(self, session: Session, namespace: str, name: str) -> tuple[list[tuple[str, str]], str]:
        """The lines."""
        return self.lines, ""

    async def examine(self, session: Session) -> None:
        """Nothing is found."""
        self.findings = Findings("2026-01-01T00:00:00Z", [])

    def findings_for(self, session: Session) -> Findings | None:
        """The findings."""
        return self.findings

    async def gpus(self, session: Session) -> GpuReading:
        """The GPUs."""
        return self.gpu

    def audit(self) -> Sequence[dict[str, Any]]:
        """The records."""
        return self.records

    async def example(self, session: Session, namespace: str, name: str) -> str:
        """An example."""
        return '{"inputs": []}'

    async def predict(self, session: Session, namespace: str, name: str, body: str) -> Prediction:
        """A response."""
        return Prediction(200, f"{name}-00001", 1.5, self.text)


class PlainServer:
    """The API server of a test as the client's `Server`, without TLS."""

    validates_models = True
    restart_window = 0.0

    def __init__(self, address: str, token: str) -> None:
        host, _, port = address.rpartition(":")
        self.endpoint = ServerAddress(host, int(port), "the API server", "look at the test")
        self._token = token

    def credentials(self) -> Mapping[str, str]:
        """The token of the test."""
        return {"Authorization": f"Bearer {self._token}"}

    def unauthorized_message(self, message: str) -> str:
        """As it is."""
        return message

    def forbidden_message(self, message: str) -> str:
        """As it is."""
        return message

    def missing_message(self, resource: str) -> str:
        """As it is."""
        return resource


@dataclass
class Desk:
    """The dashboard of a test and its surroundings."""

    app: Dashboard
    cluster: EmbeddedCluster
    informers: Informers
    objects: Objects
    history: History
    sessions: Sessions
    clock: SteppedClock
    access: Rights
    tools: FixedTools

    def browser(self) -> httpx.AsyncClient:
        """A browser without a session."""
        return httpx.AsyncClient(transport=httpx.ASGITransport(self.app), base_url=BASE)

    async def logged_in(self) -> httpx.AsyncClient:
        """A browser with a session of its own."""
        browser = self.browser()
        answer = await browser.get(f"/dashboard/login?link={self.sessions.make_link()}")
        assert answer.status_code == 200
        return browser

    async def add(self, kind: Kind, obj: Object) -> None:
        """Create an object with its status, and wait until the dashboard sees it."""
        status = obj.pop("status", None)
        made = await self.cluster.create(kind, obj, manager="test")
        if status is not None:
            names = {"name": made["metadata"]["name"], "namespace": made["metadata"]["namespace"]}
            changed = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": names, "status": status}
            await self.cluster.apply(kind, changed, manager="test", subresource="status")
        await self.informers[kind].caught_up()


def csrf_of(page: str) -> str:
    """The hidden field of a page's forms."""
    found = re.search(r'name="csrf" value="([^"]+)"', page)
    assert found is not None
    return found.group(1)


def form_headers(origin: str = BASE) -> dict[str, str]:
    """The headers with which a browser sends a form."""
    return {"Origin": origin, "Sec-Fetch-Site": "same-origin"}


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncIterator[Desk]:
    """A dashboard whose informers run."""
    clock = SteppedClock()
    async with embedded_cluster(tmp_path / "cluster.db") as cluster:
        informers = Informers(cluster)
        history = History(most=8)
        objects = Objects(informers, history, clock)
        sampler = Sampler(objects.pods, _unused_pages, history, clock)
        sessions, access, tools = Sessions(clock), Rights(), FixedTools()
        app = Dashboard(objects, sampler, sessions, access, tools, clock, {"127.0.0.1", "localhost"})
        async with at_work(informers.run()):
            await informers.synced()
            yield Desk(app, cluster, informers, objects, history, sessions, clock, access, tools)


def _unused_pages() -> Pages:
    raise AssertionError("the sampler does not run in these tests")
