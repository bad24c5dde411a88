"""Serve the event webhook and the control API at one address. The webhook authenticates senders itself."""

from __future__ import annotations

from starlette.types import ASGIApp, Receive, Scope, Send

EVENTS = "/events"
"""Path of the webhook. `/NAME` or `/NAMESPACE/NAME` may follow, to select an EventSource."""


class WithWebhook:
    """Route requests of `/events` to the webhook and all others to the API with its guard."""

    def __init__(self, api: ASGIApp, webhook: ASGIApp) -> None:
        self._api = api
        self._webhook = webhook

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        path = scope.get("path", "")
        to_webhook = scope["type"] == "http" and (path == EVENTS or path.startswith(f"{EVENTS}/"))
        await (self._webhook if to_webhook else self._api)(scope, receive, send)
