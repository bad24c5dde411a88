"""The event webhook beside the control API, at one address: it has its own way to know who sends (eventing)."""

from __future__ import annotations

from starlette.types import ASGIApp, Receive, Scope, Send

EVENTS = "/events"
"""The webhook's path; with `/NAME` or `/NAMESPACE/NAME` behind it for one EventSource."""


class WithWebhook:
    """Requests of `/events` go to the webhook, all others to the API and its guard."""

    def __init__(self, api: ASGIApp, webhook: ASGIApp) -> None:
        self._api = api
        self._webhook = webhook

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        path = scope.get("path", "")
        to_webhook = scope["type"] == "http" and (path == EVENTS or path.startswith(f"{EVENTS}/"))
        await (self._webhook if to_webhook else self._api)(scope, receive, send)
