"""The stub as an engine that is put to sleep when it is idle."""

from __future__ import annotations

from serving.engines.base.engine import EngineOptions
from serving.engines.upstream.engine import UpstreamEngine
from serving.engines.upstream.program import Get
from serving.storage.base.artifact import Artifact
from tests.support.engine_stub.engine import StubProgram


class RestingStub(StubProgram):
    """A program that sleeps whenever it is looked at and has no request."""

    rest_after = 0.001

    def rest(self, get: Get) -> None:
        """Put the stub to sleep."""
        get("/sleep", "POST")


def load(artifact: Artifact, options: EngineOptions) -> UpstreamEngine:
    """Load the stub."""
    return UpstreamEngine(RestingStub(), options)
