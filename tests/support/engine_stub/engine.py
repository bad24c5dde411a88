"""The program of the stub, and `load` as an engine has it."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from serving.engines.base.engine import EngineOptions
from serving.engines.upstream.engine import UpstreamEngine
from serving.engines.upstream.program import Command, EngineLoad, Get
from serving.storage.base.artifact import Artifact

MODULE = "tests.support.engine_stub"


class StubProgram:
    """The stub's program; `environ` are variables of its process (`FAIL`: it ends at once with this text)."""

    platform = "stub_text"
    refusals = ("the request is at fault",)
    paths = frozenset({"/v1/chat/completions", "/v1/completions", "/v1/messages", "/v1/messages/count_tokens"})

    def __init__(self, adapters: Sequence[str] = (), restarts: bool = True, **environ: str) -> None:
        self.adapters = tuple(adapters)
        self.restarts = restarts
        self.environ = environ
        self.closed = False

    def command(self, socket: Path, key: str) -> Command:
        """Start the stub."""
        return Command([sys.executable, "-m", MODULE, str(socket)], {"STUB_KEY": key, **self.environ})

    def slots(self, get: Get, wanted: int) -> int:
        """Two requests at once, unless more are wanted."""
        return wanted or 2

    def load(self, get: Get) -> EngineLoad:
        """Read the page `/state`."""
        state = json.loads(get("/state"))
        return EngineLoad(state["running"], state["waiting"], state["share"], state["sleeping"])

    def change_body(self, body: dict[str, Any], adapter: str) -> dict[str, Any] | None:
        """Name the adapter in the body, in place of one that the caller names there."""
        return {**body, "adapter": adapter} if adapter or "adapter" in body else None

    def wake(self, get: Get) -> None:
        """Wake the stub."""
        get("/wake", "POST")

    def close(self) -> None:
        """Record the call."""
        self.closed = True


def load(artifact: Artifact, options: EngineOptions) -> UpstreamEngine:
    """Load the stub; the artifact may name its adapters, one a line."""
    return UpstreamEngine(StubProgram(artifact.read(artifact.names()[0]).decode().split()), options)
