"""The dashboard as an ASGI application below /dashboard: pages, their streams, and forms."""

from __future__ import annotations

import json
import logging
from collections import OrderedDict
from collections.abc import AsyncIterator, Collection
from functools import partial
from typing import Any, Final
from urllib.parse import quote

from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from clusters.base.clock import Clock
from clusters.base.errors import Forbidden, Invalid, KnodelError, NotFound
from clusters.base.objects import Object, key_of
from serving.client.errors import exit_code_of
from serving.dashboard.access import Access
from serving.dashboard.actions import ACTIONS, TIMEOUT, Action, replay_command, versions_of
from serving.dashboard.commands import run_operation
from serving.dashboard.entrance import Entrance, LoginNeeded
from serving.dashboard.guard import HEADERS, BadForm
from serving.dashboard.history import COARSE, FINE
from serving.dashboard.live import stream
from serving.dashboard.objects import Objects
from serving.dashboard.pages import EventPage, EventsPage, LivePage, ModelPage, ModelsPage, PoolsPage, Rows, joined
from serving.dashboard.prometheus import Day, PrometheusHistory
from serving.dashboard.render import PREFIX, Renderer, static_file
from serving.dashboard.sampler import Sampler
from serving.dashboard.series import read_series, series_of
from serving.dashboard.sessions import Session, Sessions
from serving.dashboard.tools import Tools

log = logging.getLogger(__name__)

MOST_STREAMS: Final = 32
"""Streams that are open at the same time."""


class Dashboard:
    """The application. `hosts` are the names of its address, `access` checks users and gives their rights.

    `prometheus` has the last day, which is otherwise in the ring of `objects.history`.
    """

    def __init__(
        self, objects: Objects, sampler: Sampler, sessions: Sessions, access: Access, tools: Tools, clock: Clock,
        hosts: Collection[str], prometheus: PrometheusHistory | None = None,
    ) -> None:  # fmt: skip
        self._objects = objects
        self._sampler = sampler
        self._sessions = sessions
        self._access = access
        self._tools = tools
        self._clock = clock
        self._prometheus = prometheus
        self._streams = 0
        self._rows: Rows = OrderedDict()
        self._render = Renderer()
        self._entrance = Entrance(sessions, access, hosts, clock, self._render)
        self._app = self._routes()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, with the headers of `guard`."""
        if scope["type"] == "http":
            await self._app(scope, receive, _with_headers(send))

    def _routes(self) -> ASGIApp:
        model, event = "/models/{namespace}/{name}", "/events/{namespace}/{name}"
        get = [
            ("/", self._models), ("/live", self._live_models),
            (model, self._model), (f"{model}/live", self._live_model), (f"{model}/series", self._series),
            (f"{model}/logs", self._logs), (f"{model}/try", self._try), (f"{model}/do/{{action}}", self._confirm),
            ("/pools", self._pools), ("/pools/live", self._live_pools),
            ("/events", self._events), ("/events/live", self._live_events),
            (event, self._event), (f"{event}/live", self._live_event),
            ("/doctor", self._doctor), ("/audit", self._audit),
        ]  # fmt: skip
        post = [
            ("/logout", self._entrance.log_out), (f"{model}/do/{{action}}", self._act),
            (f"{model}/try", self._send_try), (f"{event}/replay", self._replay), ("/doctor", self._examine),
        ]  # fmt: skip
        routes = [
            Route(PREFIX, _to_start),
            Route(f"{PREFIX}/login", self._entrance.log_in, methods=["GET", "POST"]),
            Route(f"{PREFIX}/static/{{name}}", _static),
            *(Route(PREFIX + path, self._entrance.page(endpoint), methods=["GET"]) for path, endpoint in get),
            *(Route(PREFIX + path, self._entrance.form(endpoint), methods=["POST"]) for path, endpoint in post),
        ]
        handlers: dict[Any, Any] = {
            LoginNeeded: self._entrance.ask_for_login, KnodelError: self._failed, 404: self._failed, 405: self._failed,
            ClientDisconnect: _left, Exception: self._failed,
        }  # fmt: skip
        return Starlette(routes=routes, exception_handlers=handlers)

    # Pages

    def _show(self, template: str, session: Session, *, here: str, code: int = 200, **values: Any) -> Response:
        notices, session.notices = session.notices, []
        html = self._render(template, session=session, here=here, notices=notices, access=self._access, **values)
        return HTMLResponse(html, code, {"Cache-Control": "no-store"})

    def _visible(self, request: Request, session: Session, what: str) -> tuple[str, str]:
        """Return the namespace and name in the path. Raises NotFound for a namespace that the user may not see."""
        namespace, name = request.path_params["namespace"], request.path_params["name"]
        if not session.sees(namespace):
            raise NotFound(f"{what} {namespace}/{name} not found")
        return namespace, name

    def _model_of(self, request: Request, session: Session) -> Object:
        namespace, name = self._visible(request, session, "model")
        model = self._objects.model(namespace, name)
        if model is None:
            raise NotFound(f"model {name} not found in namespace {namespace}: it may have been deleted")
        return model

    async def _models(self, request: Request, session: Session) -> Response:
        query = request.query_params.get("q", "")[:100]
        parts = ModelsPage(self._objects, self._render, session, self._rows, query).parts()
        return self._show(
            "models.html", session, here="models", parts=parts, rows=joined(parts, "models"), query=query,
            unit=self._objects.unit,
            live=f"{PREFIX}/live?q={quote(query)}",
        )  # fmt: skip

    async def _model(self, request: Request, session: Session) -> Response:
        namespace, name = key_of(self._model_of(request, session))
        parts = ModelPage(self._objects, self._render, namespace, name).parts()
        return self._show(
            "model.html", session, here="models", parts=parts.html, namespace=namespace, name=name,
            live=f"{PREFIX}/models/{namespace}/{name}/live",
            window="day" if request.query_params.get("window") == "day" else "",
        )  # fmt: skip

    async def _series(self, request: Request, session: Session) -> Response:
        """Return the columns of the charts. `note` is the reason if Prometheus has none."""
        namespace, name = key_of(self._model_of(request, session))
        step = COARSE if request.query_params.get("window") == "day" else FINE
        now = self._objects.now().timestamp()
        day = await self._prometheus.day(namespace, name) if self._prometheus and step is COARSE else Day({})
        found = day.columns or read_series(self._objects.history, namespace, name, step, now)
        series = {**series_of(found, step, now), "note": day.fault}
        return Response(json.dumps(series), media_type="application/json", headers={"Cache-Control": "no-store"})

    async def _pools(self, _request: Request, session: Session) -> Response:
        parts = PoolsPage(self._objects, self._render, session).parts()
        gpus = await self._tools.gpus(session)
        return self._show("pools.html", session, here="pools", parts=parts.html, gpus=gpus, live=f"{PREFIX}/pools/live")

    async def _events(self, request: Request, session: Session) -> Response:
        phase = request.query_params.get("phase", "")[:20]
        parts = EventsPage(self._objects, self._render, session, phase).parts()
        live = f"{PREFIX}/events/live?phase={quote(phase)}"
        return self._show("events.html", session, here="events", parts=parts.html, phase=phase, live=live)

    async def _event(self, request: Request, session: Session) -> Response:
        event = self._event_of(request, session)
        namespace, name = key_of(event)
        parts = EventPage(self._objects, self._render, namespace, name).parts()
        return self._show(
            "event.html", session, here="events", parts=parts.html, command=replay_command(event),
            action=f"{PREFIX}/events/{namespace}/{name}/replay", live=f"{PREFIX}/events/{namespace}/{name}/live",
        )  # fmt: skip

    def _event_of(self, request: Request, session: Session) -> Object:
        namespace, name = self._visible(request, session, "event")
        event = self._objects.event(namespace, name)
        if event is None:
            raise NotFound(f"event {name} not found in namespace {namespace}: events expire")
        return event

    async def _logs(self, request: Request, session: Session) -> Response:
        namespace, name = key_of(self._model_of(request, session))
        lines, note = await self._tools.logs(session, namespace, name)
        return self._show("logs.html", session, here="models", namespace=namespace, name=name, lines=lines, note=note)

    async def _doctor(self, _request: Request, session: Session) -> Response:
        return self._show("doctor.html", session, here="doctor", found=self._tools.findings_for(session))

    async def _examine(self, _request: Request, session: Session, _form: dict[str, str]) -> Response:
        await self._tools.examine(session)
        return RedirectResponse(f"{PREFIX}/doctor", 303)

    async def _audit(self, _request: Request, session: Session) -> Response:
        return self._show("audit.html", session, here="audit", records=self._tools.audit())

    # Actions

    def _action_of(self, request: Request, session: Session) -> tuple[Action, Object]:
        action = ACTIONS.get(request.path_params["action"])
        if action is None:
            raise NotFound(f"the dashboard has no action {request.path_params['action'][:40]!r}")
        return action, self._model_of(request, session)

    async def _confirm(self, request: Request, session: Session) -> Response:
        """Show what an action does, with its command. The action traffic is first asked for its split."""
        action, model = self._action_of(request, session)
        given = {name: value for name, value in request.query_params.items() if len(value) < 300}
        return self._confirmation(action, model, session, given, "")

    def _confirmation(
        self, action: Action, model: Object, session: Session, form: dict[str, str], error: str
    ) -> Response:
        asks = action.name == "traffic" and not form
        command = ""
        if not asks and not error:
            try:
                command = action.command(model, form)
            except KnodelError as failed:
                error, asks = str(failed), action.name == "traffic"
        return self._show(
            "confirm.html", session, here="models", code=422 if error else 200, action=action, model=model, form=form,
            asks=asks, command=command, error=error, versions=versions_of(model), applies=action.applies(model),
        )  # fmt: skip

    async def _act(self, request: Request, session: Session, form: dict[str, str]) -> Response:
        action, model = self._action_of(request, session)
        namespace, name = key_of(model)
        try:
            command = action.command(model, form)
            await self._run(session, lambda api: action.run(api, name, namespace, form), command)
        except KnodelError as error:
            return self._confirmation(action, model, session, form, str(error))
        session.notices.append(f"Done: {command}")
        return RedirectResponse(f"{PREFIX}/models/{namespace}/{name}", 303)

    async def _replay(self, request: Request, session: Session, _form: dict[str, str]) -> Response:
        from serving.client.models.model_events import replay

        event = self._event_of(request, session)
        namespace, name = key_of(event)
        command = replay_command(event)
        await self._run(session, lambda api: replay(api, event), command)
        session.notices.append(f"Done: {command}")
        return RedirectResponse(f"{PREFIX}/events/{namespace}/{name}", 303)

    async def _run(self, session: Session, operation: Any, command: str) -> None:
        """Run an operation with the rights of the session. Raises its errors."""
        try:
            await run_operation(partial(self._access.connect, session), operation, TIMEOUT)
        except KnodelError as error:
            log.warning("dashboard: %s: `%s` failed: %s", session.user, command, error)
            raise
        log.info("dashboard: %s: `%s`", session.user, command)

    async def _try(self, request: Request, session: Session) -> Response:
        namespace, name = key_of(self._model_of(request, session))
        example, error = "", ""
        if request.query_params.get("example"):
            try:
                example = await self._tools.example(session, namespace, name)
            except KnodelError as failed:
                error = str(failed)
        return self._show(
            "try.html", session, here="models", namespace=namespace, name=name, body=example, error=error, result=None
        )

    async def _send_try(self, request: Request, session: Session, form: dict[str, str]) -> Response:
        namespace, name = key_of(self._model_of(request, session))
        body, result, error = form.get("body", ""), None, ""
        try:
            result = await self._tools.predict(session, namespace, name, body)
        except KnodelError as failed:
            error = str(failed)
        return self._show(
            "try.html", session, here="models", namespace=namespace, name=name, body=body, error=error, result=result
        )

    # Streams

    async def _live_models(self, request: Request, session: Session) -> Response:
        query = request.query_params.get("q", "")[:100]
        return self._stream(ModelsPage(self._objects, self._render, session, self._rows, query), session)

    async def _live_model(self, request: Request, session: Session) -> Response:
        namespace, name = self._visible(request, session, "model")
        return self._stream(ModelPage(self._objects, self._render, namespace, name), session)

    async def _live_pools(self, _request: Request, session: Session) -> Response:
        return self._stream(PoolsPage(self._objects, self._render, session), session)

    async def _live_events(self, request: Request, session: Session) -> Response:
        phase = request.query_params.get("phase", "")[:20]
        return self._stream(EventsPage(self._objects, self._render, session, phase), session)

    async def _live_event(self, request: Request, session: Session) -> Response:
        namespace, name = self._visible(request, session, "event")
        return self._stream(EventPage(self._objects, self._render, namespace, name), session)

    def _stream(self, page: LivePage, session: Session) -> Response:
        if self._streams >= MOST_STREAMS:
            return Response("too many open pages: close one", 503, {"Retry-After": "10"})

        async def events() -> AsyncIterator[str]:
            self._streams += 1
            try:
                with self._sampler.viewing():
                    async for event in stream(page, self._revision, lambda: self._is_open(session), self._clock):
                        yield event
            finally:
                self._streams -= 1

        return StreamingResponse(events(), headers={"Cache-Control": "no-store"}, media_type="text/event-stream")

    def _revision(self) -> tuple[int, int]:
        return self._objects.changes, self._sampler.count

    def _is_open(self, session: Session) -> bool:
        return self._sessions.find(session.id) is session

    # Errors

    async def _failed(self, request: Request, error: Exception) -> Response:
        code, message = _explained(error)
        if code == 500:
            log.error("%s %s failed", request.method, request.url.path, exc_info=error)
        session = self._entrance.session_of(request)
        html = self._render("error.html", code=code, message=message, session=session, here="", notices=[],
                            access=self._access)  # fmt: skip
        return HTMLResponse(html, code, {"Cache-Control": "no-store"})


def _explained(error: Exception) -> tuple[int, str]:
    """Return the status code and message of an error, without details of an internal one."""
    if isinstance(error, Forbidden):
        return 403, str(error)
    if isinstance(error, NotFound):
        return 404, str(error)
    if isinstance(error, KnodelError):
        return (422 if isinstance(error, BadForm | Invalid) or exit_code_of(error) == 2 else 502), str(error)
    code = getattr(error, "status_code", 500)
    return code, {404: "There is no such page.", 405: "This address does not take such a request."}.get(
        code, "An internal error: the log of the platform has the details."
    )


async def _to_start(_request: Request) -> Response:
    return RedirectResponse(f"{PREFIX}/", 308)


async def _left(_request: Request, _error: Exception) -> Response:
    return Response(status_code=400)


async def _static(request: Request) -> Response:
    content, media_type, digest = static_file(request.path_params["name"])
    kept = request.query_params.get("v") == digest
    cache = "public, max-age=31536000, immutable" if kept else "no-cache"
    return Response(content, media_type=media_type, headers={"Cache-Control": cache, "ETag": f'"{digest}"'})


def _with_headers(send: Send) -> Send:
    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            own = [(name.encode(), value.encode()) for name, value in HEADERS.items()]
            message = {**message, "headers": [*message.get("headers", ()), *own]}
        await send(message)

    return sending
