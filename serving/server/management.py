"""The management port: what the platform asks a server, apart from what callers ask the model."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from serving.server.app import health_routes, json_answer, make_app
from serving.server.lifecycle import Lifecycle
from serving.server.repository import Repository
from serving.server.stats import Stats


def make_management_app(stats: Stats, lifecycle: Lifecycle, repository: Repository) -> ASGIApp:
    """`GET /stats`, the load call, and the health paths of the data port."""

    async def page(_: Request) -> Response:
        return json_answer(stats.to_json())

    load = Route("/v2/repository/models/{name}/load", repository.load, methods=["POST"])
    return make_app([Route("/stats", page), load, *health_routes(lifecycle)])
