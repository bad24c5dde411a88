"""The application of the management port: statistics, metrics, digest, model repository and health."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from clusters.net.exposition import Families, page_of
from serving.modelserver.base.stats import Stats
from serving.modelserver.endpoints.app import health_routes, json_response, make_app
from serving.modelserver.endpoints.confirmation import Confirmation
from serving.modelserver.endpoints.repository import RepositoryRoutes
from serving.modelserver.execution.lifecycle import ModelLifecycle
from serving.modelserver.openai.engine_page import EngineMetrics


def make_management_app(
    stats: Stats,
    answers: Callable[[], Any],
    metrics: Callable[[], Families],
    lifecycle: ModelLifecycle,
    repository: RepositoryRoutes,
    confirmation: Confirmation | None = None,
) -> ASGIApp:
    """Return the application with statistics, `/metrics`, `/metrics/engine`, `/digest`, the repository and health.

    A server of many models has no `confirmation`, and therefore neither `/digest` nor `/metrics/engine`.
    """

    async def stats_page(_: Request) -> Response:
        return json_response(stats.to_json())

    async def answers_page(_: Request) -> Response:
        return json_response(answers())

    async def metrics_page(request: Request) -> Response:
        text, content_type = page_of(metrics(), request.headers.get("accept", ""))
        return Response(text, headers={"content-type": content_type})

    pages = [Route("/stats", stats_page), Route("/stats/answers", answers_page), Route("/metrics", metrics_page)]
    of_one_model = [] if confirmation is None else [*confirmation.routes(), *EngineMetrics(lifecycle).routes()]
    return make_app([*pages, *of_one_model, *repository.routes(), *health_routes(lifecycle)])
