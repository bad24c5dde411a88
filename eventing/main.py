"""The event webhook as a process: composition root of `python -m eventing.main` on Kubernetes.

Who may send events is an EventSource, and this release has none yet: so nobody may. Every event is answered 401 with
the reason; nothing of its body is read or kept.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from http import HTTPStatus

import uvloop

from clusters.errors import KnodelError
from clusters.manager.http import HttpListener, Request, Response
from clusters.manager.logs import configure_logs
from clusters.manager.options import BadOptions, Options, parse_options
from clusters.manager.process import Listeners

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


async def _until_signal(options: Options, port: int) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    await serve(options, port, stop)


def main(argv: Sequence[str] | None = None, environ: Mapping[str, str] = os.environ) -> int:
    """Run one replica; returns the exit code."""
    try:
        arguments = sys.argv[1:] if argv is None else argv
        options = parse_options("eventing.main", "Take CloudEvents in.", arguments, environ)
        configure_logs(options.log_format, options.log_level)
        uvloop.run(_until_signal(options, _port(environ)))
    except BadOptions as error:
        print(f"error: {error}", file=sys.stderr)  # there are no logs yet
        return 2
    except KnodelError as error:
        log.error("%s", error)
        return 1
    return 0


def _port(environ: Mapping[str, str]) -> int:
    text = environ.get("PORT") or str(PORT)
    if not (text.isascii() and text.isdigit() and int(text) <= 65_535):
        raise BadOptions(f"PORT={text[:80]!r}: a port is a number from 0 (any free one) to 65535")
    return int(text)


if __name__ == "__main__":
    sys.exit(main())
