"""The entrance of the dashboard: checks of requests, login, logout, and the session of each request."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Collection

from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from clusters.base.clock import Clock
from clusters.base.errors import Forbidden, KnodelError
from serving.control_api.guard import refuse_repeated
from serving.dashboard.access import Access
from serving.dashboard.guard import MOST_BODY, BadForm, check_host, check_origin, read_form
from serving.dashboard.render import PREFIX, Renderer
from serving.dashboard.sessions import Session, Sessions

log = logging.getLogger(__name__)

Page = Callable[[Request, Session], Awaitable[Response]]
Form = Callable[[Request, Session, dict[str, str]], Awaitable[Response]]


class LoginNeeded(KnodelError):
    """A request without a valid session."""


class Entrance:
    """Sessions of users. `hosts` are the names of the dashboard's address, `access` checks users."""

    def __init__(
        self, sessions: Sessions, access: Access, hosts: Collection[str], clock: Clock, render: Renderer
    ) -> None:
        self._sessions = sessions
        self._access = access
        self._hosts = hosts
        self._clock = clock
        self._render = render

    def _checked(self, request: Request) -> Session:
        """Return the session of a request. Raises Forbidden, LoginNeeded."""
        self._check(request)
        session = self.session_of(request)
        if session is None:
            raise LoginNeeded("log in first")
        return session

    def session_of(self, request: Request) -> Session | None:
        """Return the session that the cookie of a request names, None if there is none."""
        return self._sessions.find(request.cookies.get(self._cookie(request), ""))

    def _check(self, request: Request) -> None:
        refusal = refuse_repeated((name, value) for name, value in request.headers.items())
        if refusal is not None:
            raise BadForm(refusal.message)
        check_host(request.headers, self._hosts)
        self._access.check_peer(request.scope)

    def _cookie(self, request: Request) -> str:
        """Return the name of the cookie. It has the port, because browsers share cookies between ports."""
        return f"knodel-dashboard-{request.url.port or 80}"

    def page(self, endpoint: Page) -> Callable[[Request], Awaitable[Response]]:
        """Return the endpoint of a page, for requests with a session."""

        async def answer(request: Request) -> Response:
            return await endpoint(request, self._checked(request))

        return answer

    def form(self, endpoint: Form) -> Callable[[Request], Awaitable[Response]]:
        """Return the endpoint of a form, for requests with a session that are sent by one of its pages."""

        async def answer(request: Request) -> Response:
            session = self._checked(request)
            check_origin(request.headers)
            form = read_form(request.headers.get("content-type", ""), await _body(request))
            if not session.allows(form.pop("csrf", "")):
                raise Forbidden("the form is not of this session: reload the page and send it again")
            return await endpoint(request, session, form)

        return answer

    async def log_in(self, request: Request) -> Response:
        """Start a session by a one-time link, by a token in a form, or by that which a proxy adds."""
        self._check(request)
        is_secure = request.url.scheme == "https"
        bearer = request.headers.get("authorization", "") if self._access.takes_token else ""
        if request.method == "GET" and bearer.lower().startswith("bearer "):  # of an authenticating proxy
            session = await self._access.log_in(bearer[7:])
        elif request.method == "POST":
            check_origin(request.headers)
            is_secure = is_secure or request.headers["origin"].startswith("https:")
            form = read_form(request.headers.get("content-type", ""), await _body(request))
            session = await self._access.log_in(form.get("token", ""))
        else:
            link = request.query_params.get("link", "")
            found = self._sessions.use_link(link, self._access.user) if link else None
            if found is None:
                why = "This link was used already, or is older than a minute." if link else ""
                return HTMLResponse(self._login_page(why), 401 if link else 200)
            session = found
        # The cookie is not sent along a redirection that another page or program began, so the page goes on by itself.
        response = HTMLResponse(self._render("welcome.html"))
        seconds = int(session.expires - self._clock.monotonic())
        response.set_cookie(
            self._cookie(request), session.id, max_age=seconds, path=PREFIX, httponly=True, samesite="strict",
            secure=is_secure,
        )  # fmt: skip
        log.info("dashboard: %s logged in", session.user)
        return response

    async def log_out(self, request: Request, session: Session, _form: dict[str, str]) -> Response:
        """End the session."""
        self._sessions.end(session)
        response = RedirectResponse(f"{PREFIX}/login", 303)
        response.delete_cookie(self._cookie(request), path=PREFIX, httponly=True, samesite="strict")
        return response

    async def ask_for_login(self, request: Request, _error: Exception) -> Response:
        """Answer a request without a session."""
        if self._access.takes_token and request.method == "GET" and "authorization" in request.headers:
            return RedirectResponse(f"{PREFIX}/login", 303)
        return HTMLResponse(self._login_page(""), 401, {"Cache-Control": "no-store"})

    def _login_page(self, why: str) -> str:
        return self._render("login.html", why=why, access=self._access, session=None, here="", notices=[])


async def _body(request: Request) -> bytes:
    """Return the body of a request. Raises BadForm for one of more than MOST_BODY bytes."""
    parts, size = [], 0
    async for part in request.stream():
        size += len(part)
        if size > MOST_BODY:
            raise BadForm(f"the form has more than {MOST_BODY >> 20} MiB: send a smaller request")
        parts.append(part)
    return b"".join(parts)
