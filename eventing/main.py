"""The event webhook as a process: composition root of `python -m eventing.main` on Kubernetes.

Who may send events is an EventSource, and this release has none yet: so nobody may. Every event is answered 401 with
the reason; nothing of its body is read or kept.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections.abc import Mapping, Sequence
from http import HTTPStatus

from clusters.manager.http import HttpListener, Request, Response
from clusters.manager.options import BadOptions, Options
from clusters.manager.process import Listeners, run_process

log = logging.getLogger(__name__)

EVENTS = "/events"
PORT = 8080
"""Of the webhook; variable PORT."""
NO_SOURCE = (
    "401: no EventSource lets this sender in: this release knows no EventSource yet; "
    "deploy with `knodel deploy` or `kubectl apply` instead\n"
)


def answer(request: Request) -> Response:
    """What any sender is told (CloudEvents HTTP webhook §2.2: POST delivers)."""
    if request.path != EVENTS and not request.path.startswith(f"{EVENTS}/"):
        return Response(HTTPStatus.NOT_FOUND, f"404: {EVENTS} is here\n")
    if request.method != "POST":
        headers = {"Allow": "POST"}
        return Response(HTTPStatus.METHOD_NOT_ALLOWED, f"405: POST events to {EVENTS}\n", headers=headers)
    return Response(HTTPStatus.UNAUTHORIZED, NO_SOURCE, headers={"WWW-Authenticate": "Bearer"})


async def serve(options: Options, port: int, stop: asyncio.Event) -> None:
    """Answer until `stop`. Raises KnodelError."""
    webhook = HttpListener(options.host, port, answer)
    async with Listeners(options, lambda: True, tuple):
        bound = await webhook.start()
        log.info("webhook at %s:%d%s", options.host, bound, EVENTS)
        try:
            await stop.wait()
        finally:
            await webhook.close()


def main(argv: Sequence[str] | None = None, environ: Mapping[str, str] = os.environ) -> int:
    """Run one replica; returns the exit code."""

    async def run(options: Options, stop: asyncio.Event) -> None:
        await serve(options, _port(environ), stop)

    return run_process("eventing.main", "Take CloudEvents in.", run, argv, environ)


def _port(environ: Mapping[str, str]) -> int:
    text = environ.get("PORT") or str(PORT)
    if not (text.isascii() and text.isdigit() and int(text) <= 65_535):
        raise BadOptions(f"PORT={text[:80]!r}: a port is a number from 0 (any free one) to 65535")
    return int(text)


if __name__ == "__main__":
    sys.exit(main())
