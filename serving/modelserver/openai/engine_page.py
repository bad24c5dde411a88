"""Pass on the metrics page of an engine in a process of its own: `/metrics/engine` of the management port."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from clusters.net.exposition import CONTENT_TYPE
from serving.engines.base.errors import EngineError
from serving.modelserver.base.errors import NotReady, ResourceNotFound
from serving.modelserver.execution.lifecycle import ModelLifecycle
from serving.modelserver.openai.upstreams import upstream_of

if TYPE_CHECKING:
    from serving.engines.upstream.remote import RemoteEngine

TIMEOUT: Final = 8.0  # s for the page; Prometheus waits for 10 s
_PAGE: Final = "/metrics"
_NONE: Final = "the engine of this model has no metrics page of its own: /metrics has those of the server"


class EngineMetrics:
    """The page of the loaded model's engine. Requests at the same time share one reading."""

    def __init__(self, lifecycle: ModelLifecycle) -> None:
        self._lifecycle = lifecycle
        self._reading: asyncio.Task[bytes | EngineError] | None = None

    def routes(self) -> list[Route]:
        """Return the routes for the management port."""
        return [Route("/metrics/engine", self._get)]

    async def _get(self, _: Request) -> Response:
        """Answer with the page. Raises ResourceNotFound, NotReady."""
        engine = upstream_of(self._lifecycle.model().engine)
        if engine is None:
            raise ResourceNotFound(_NONE)
        from serving.engines.upstream.client import NoSuchPage  # the module is imported with such an engine

        if self._reading is None or self._reading.done():
            self._reading = asyncio.create_task(asyncio.to_thread(_read, engine))
        await asyncio.wait([self._reading], timeout=TIMEOUT)
        if not self._reading.done():
            raise NotReady(f"the engine sent no complete metrics page within {TIMEOUT:g} s")
        page = self._reading.result()
        if isinstance(page, NoSuchPage):
            raise ResourceNotFound(_NONE) from page
        if isinstance(page, EngineError):
            raise NotReady(f"the metrics of the engine cannot be read: {page}") from page
        return Response(page, headers={"content-type": CONTENT_TYPE})


def _read(engine: RemoteEngine) -> bytes | EngineError:
    """Return the page, or the error: requests that wait for it may have gone. Blocks."""
    try:
        return engine.page(_PAGE)
    except EngineError as error:
        return error
