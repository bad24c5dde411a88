"""The router as an ASGI application.

    POST /openai/v1/…               the Model of the body's `model`, in the namespace default
    GET  /openai/v1/models[/NAME]   the language models
    /namespaces/NAMESPACE/openai/v1/…   the same for another namespace

A caller that disconnects cancels its request at the model at once. Errors have OpenAI's form.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections import Counter
from collections.abc import Iterable
from typing import Any, Final

from starlette.types import Receive, Scope, Send

from clusters.base.objects import Key
from clusters.net.exposition import Family, one
from clusters.net.language_models import ModelNotSelected, entries, model_list, not_found, parse_name, select
from clusters.net.server.connection import INTERNAL_ERROR, HttpConnection
from clusters.net.server.protocol import connection_of
from eventing.limits import ByteBudget
from serving.router.errors import BrokenOff, CallerLeft, RouterError
from serving.router.exchange import Exchange
from serving.router.models import KnownModels
from serving.router.upstream import ForwardedRequest, Upstream, end_to_end, pieces_of

log = logging.getLogger(__name__)

DEFAULT_NAMESPACE: Final = "default"
BODIES: Final = 192 * 1024 * 1024
"""Bytes of the bodies of all requests that were not sent to a model yet."""
LEFT: Final = "left"
"""Value of the label `status` for callers that disconnected before the response."""
_PATH: Final = re.compile(r"(?:/namespaces/([a-z0-9-]{1,63}))?(/openai/v1(?:/.*)?)")
_MODELS: Final = "/openai/v1/models"


class RouterApp:
    """The router. `bodies` bounds the bytes of bodies that are held."""

    def __init__(self, models: KnownModels, upstream: Upstream, bodies: int = BODIES) -> None:
        self._models = models
        self._upstream = upstream
        self._budget = ByteBudget(bodies)
        self._responses: Counter[str] = Counter()
        self._in_progress = 0

    def families(self) -> Iterable[Family]:
        """Return the router's Prometheus metrics."""
        samples = tuple(({"status": status}, float(count)) for status, count in sorted(self._responses.items()))
        yield Family("knodel_router_requests_total", "counter", "Requests to the router, by status.", samples)
        yield one("knodel_router_requests_in_progress", "gauge", "Requests in progress.", float(self._in_progress))
        yield one("knodel_router_body_bytes", "gauge", "Bytes of request bodies held.", float(self._budget.used))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            return
        connection = connection_of(scope, HttpConnection)
        exchange = Exchange(scope, receive, send, self._budget)
        answering = asyncio.ensure_future(self._answer(exchange, connection))
        connection.on_disconnect(answering.cancel)
        self._in_progress += 1
        try:
            await asyncio.wait((answering,))
        finally:
            connection.on_disconnect(None)
            answering.cancel()
            exchange.release()
            self._in_progress -= 1
            self._responses[LEFT if exchange.status is None else str(exchange.status)] += 1

    async def _answer(self, exchange: Exchange, connection: HttpConnection) -> None:
        try:
            await self._respond(exchange)
        except CallerLeft:
            return
        except (RouterError, ModelNotSelected) as error:
            await exchange.refuse(error)
        except BrokenOff as error:
            log.warning("%s", error)
            connection.reset()  # so that the caller cannot mistake a part of a response for all of it
        except Exception:
            log.exception("internal error")
            if exchange.status is not None:
                connection.reset()
            else:
                await exchange.refuse(RouterError(500, INTERNAL_ERROR))

    async def _respond(self, exchange: Exchange) -> None:
        raw = exchange.scope["raw_path"].decode("latin-1")
        found = _PATH.fullmatch(raw)
        if found is None:
            raise RouterError(404, "the paths are /openai/v1/… and /namespaces/NAMESPACE/openai/v1/…")
        namespace, path = found[1] or DEFAULT_NAMESPACE, found[2]
        if path == _MODELS or path.startswith(f"{_MODELS}/"):
            await self._list(exchange, namespace, path.removeprefix(_MODELS).removeprefix("/"))
        elif exchange.scope["method"] != "POST":
            raise RouterError(405, "send a body with the member `model` by POST")
        else:
            await self._forward(exchange, namespace, path)

    async def _list(self, exchange: Exchange, namespace: str, name: str) -> None:
        if exchange.scope["method"] != "GET":
            raise RouterError(405, "this address is read-only: use GET")
        answer: Any = model_list(self._models.listed(namespace))
        if name:
            listed = entries(self._models.get(namespace, parse_name(name).name))
            answer = next((entry for entry in listed if entry["id"] == name), None)
            if answer is None:
                raise not_found(name)
        await exchange.answer(200, answer)

    async def _forward(self, exchange: Exchange, namespace: str, path: str) -> None:
        body = await exchange.body()
        name = self._models.get(namespace, select(body).name).name
        query = exchange.scope["query_string"].decode("latin-1")
        request = ForwardedRequest(
            model=Key(namespace, name),
            target=f"{path}?{query}" if query else path,
            headers=exchange.scope["headers"],
            body=body,
            timeout=self._models.timeout(namespace, name),
            sent=exchange.release,
        )
        async with self._upstream.send(request) as response:
            length = [
                (b"content-length", value) for key, value in response.raw_headers if key.lower() == b"content-length"
            ]
            await exchange.start(response.status, [*end_to_end(response.raw_headers), *length])
            async for piece in pieces_of(response):
                await exchange.write(piece)
        await exchange.write(b"", more=False)
