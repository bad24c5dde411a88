"""The dashboard of one machine: its history from the start, its pages from the first request on."""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Collection
from functools import partial
from pathlib import Path

from starlette.types import ASGIApp, Receive, Scope, Send

from autoscaler.metrics.pod_http import PodHttpClient
from clusters.base.clock import Clock
from clusters.runtime.informer import Informers
from serving.dashboard.audit import AuditRecords
from serving.dashboard.history import History
from serving.dashboard.objects import Objects
from serving.dashboard.sampler import TIMEOUT, Sampler
from serving.dashboard.sessions import Sessions
from serving.types.settings.settings import Settings

LOGIN = "/dashboard/login"
APPLICATION = "serving.dashboard.app"


class MachineDashboard:
    """Create it before the informers run. The application, with its templates, is made at the first request.

    `hosts` are the names of its address.
    """

    def __init__(
        self, state: Path, informers: Informers, clock: Clock, settings: Settings, hosts: Collection[str]
    ) -> None:
        history = History()
        self._objects = Objects(informers, history, clock, lambda: settings.prices)
        self._prometheus_url = settings.dashboard.prometheus_url
        self.sampler = Sampler(self._objects.pods, partial(PodHttpClient, TIMEOUT), history, clock)
        self._records = AuditRecords()
        self._sessions = Sessions(clock)
        self._state = state
        self._clock = clock
        self._hosts = hosts
        self._app: ASGIApp | None = None

    def make_link(self) -> str:
        """Return the path of a new one-time link."""
        return f"{LOGIN}?link={self._sessions.make_link()}"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if self._app is None:
            await asyncio.to_thread(importlib.import_module, APPLICATION)  # the platform goes on meanwhile
        await self._make()(scope, receive, send)

    def _make(self) -> ASGIApp:
        if self._app is None:
            from serving.dashboard.access import LocalAccess
            from serving.dashboard.app import Dashboard
            from serving.dashboard.prometheus import PrometheusHistory
            from serving.dashboard.tools import LocalTools

            access = LocalAccess(self._state)
            tools = LocalTools(self._state, access, self._records, self._clock)
            prometheus = PrometheusHistory(self._prometheus_url, self._clock) if self._prometheus_url else None
            self._app = Dashboard(
                self._objects, self.sampler, self._sessions, access, tools, self._clock, self._hosts, prometheus
            )
        return self._app
