"""Refuse requests that do not come from the model server, in the processes that answer them.

Ray's HAProxy and the HTTP servers of the replicas listen on TCP ports, which other users of the machine can reach. So
each replica checks a key. Ray calls `middlewares` in replicas and proxies (RAY_SERVE_HTTP_PROXY_CALLBACK_IMPORT_PATH).
"""

from __future__ import annotations

import hmac
import os
from typing import Any, Final

VARIABLE: Final = "KNODEL_ENGINE_KEY"
"""Variable with the key, in all processes of Ray."""
STATE_VARIABLE: Final = "KNODEL_STATE_KEY"
"""Variable with the key of the state, in the first process only."""
HEADER: Final = "x-knodel-engine-key"
_NAME: Final = HEADER.encode()
_OPEN: Final = ("/-/healthz", "/-/routes")
"""Paths of Ray Serve itself that HAProxy reads for its own checks."""
_FORBIDDEN: Final = 403
_TEXT: Final = b"this port belongs to a model server of Knodel: send requests to the model server"


def group_key(token: str) -> str:
    """Return the key of requests in a group, all of whose Pods have the token."""
    return hmac.new(token.encode(), b"requests", "sha256").hexdigest()


class RequireKey:
    """An ASGI application that passes requests with the key on, without the key's header."""

    def __init__(self, app: Any, key: str) -> None:
        self._app = app
        self._key = key.encode()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Serve one request."""
        if scope["type"] not in ("http", "websocket") or scope["path"] in _OPEN:
            await self._app(scope, receive, send)
            return
        found = [value for name, value in scope["headers"] if name == _NAME]
        if len(found) == 1 and hmac.compare_digest(found[0], self._key):
            headers = [header for header in scope["headers"] if header[0] != _NAME]
            await self._app({**scope, "headers": headers}, receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
        else:
            length = b"%d" % len(_TEXT)
            headers = [(b"content-type", b"text/plain"), (b"content-length", length)]
            await send({"type": "http.response.start", "status": _FORBIDDEN, "headers": headers})
            await send({"type": "http.response.body", "body": _TEXT})


def middlewares() -> list[Any]:
    """Return the middleware for Ray Serve's HTTP servers."""
    from starlette.middleware import Middleware

    return [Middleware(RequireKey, key=os.environ[VARIABLE])]
