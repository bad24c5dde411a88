"""Links, sessions, and what every request must satisfy."""

from __future__ import annotations

import pytest

from serving.dashboard.sessions import LINK_SECONDS, MOST_LINKS, MOST_SESSIONS, SESSION_SECONDS, Sessions
from tests.serving.dashboard.conftest import Desk, csrf_of, form_headers
from tests.support.clock import SteppedClock

LOGIN = "/dashboard/login"


def test_a_link_works_once() -> None:
    sessions = Sessions(SteppedClock())
    link = sessions.make_link()
    assert sessions.use_link(link, "me") is not None
    assert sessions.use_link(link, "me") is None


def test_a_link_expires() -> None:
    clock = SteppedClock()
    sessions = Sessions(clock)
    link = sessions.make_link()
    clock.step(LINK_SECONDS)
    assert sessions.use_link(link, "me") is None


def test_links_and_sessions_are_bounded_and_the_oldest_ends() -> None:
    sessions = Sessions(SteppedClock())
    links = [sessions.make_link() for _ in range(MOST_LINKS + 1)]
    assert sessions.use_link(links[0], "me") is None
    assert sessions.use_link(links[1], "me") is not None
    made = [sessions.start("me") for _ in range(MOST_SESSIONS + 1)]
    assert sessions.find(made[0].id) is None
    assert sessions.find(made[-1].id) is made[-1]


def test_a_session_expires_and_can_end() -> None:
    clock = SteppedClock()
    sessions = Sessions(clock)
    one, other = sessions.start("me"), sessions.start("me")
    sessions.end(one)
    assert sessions.find(one.id) is None
    clock.step(SESSION_SECONDS - 1)
    assert sessions.find(other.id) is other
    clock.step(1)
    assert sessions.find(other.id) is None


async def test_without_a_session_pages_streams_and_forms_are_refused(desk: Desk) -> None:
    browser = desk.browser()
    for path in ("/", "/live", "/models/default/iris", "/models/default/iris/series", "/events", "/audit", "/doctor"):
        answer = await browser.get(f"/dashboard{path}")
        assert answer.status_code == 401, path
        assert "knodel dashboard" in answer.text
    answer = await browser.post("/dashboard/doctor", data={"csrf": ""}, headers=form_headers())
    assert answer.status_code == 401


async def test_the_cookie_is_out_of_reach_of_scripts_and_other_sites(desk: Desk) -> None:
    answer = await desk.browser().get(f"{LOGIN}?link={desk.sessions.make_link()}")
    cookie = answer.headers["set-cookie"]
    assert cookie.startswith("knodel-dashboard-8081=")
    for part in ("HttpOnly", "SameSite=strict", "Path=/dashboard", "Max-Age="):
        assert part in cookie


async def test_a_used_link_is_explained(desk: Desk) -> None:
    link = f"{LOGIN}?link={desk.sessions.make_link()}"
    await desk.browser().get(link)
    answer = await desk.browser().get(link)
    assert answer.status_code == 401
    assert "used already" in answer.text
    assert "set-cookie" not in answer.headers


async def test_every_response_has_the_policy_against_foreign_code(desk: Desk) -> None:
    browser = await desk.logged_in()
    for path in ("/", "/static/dashboard.js", "/nothing", "/login"):
        answer = await browser.get(f"/dashboard{path}")
        policy = answer.headers["content-security-policy"]
        assert "script-src 'self'" in policy
        assert "unsafe" not in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert "frame-ancestors 'none'" in policy


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example:8081", "", "[::2]"])
async def test_another_host_is_refused(desk: Desk, host: str) -> None:
    browser = await desk.logged_in()
    answer = await browser.get("/dashboard/", headers={"Host": host})
    assert answer.status_code == 403


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Origin": "null"},
        {"Origin": "http://evil.example"},
        {"Origin": "http://127.0.0.1:9999"},
        {"Origin": "http://127.0.0.1:8081", "Sec-Fetch-Site": "cross-site"},
    ],
)
async def test_a_form_of_another_origin_is_refused(desk: Desk, headers: dict[str, str]) -> None:
    browser = await desk.logged_in()
    csrf = csrf_of((await browser.get("/dashboard/")).text)
    answer = await browser.post("/dashboard/doctor", data={"csrf": csrf}, headers=headers)
    assert answer.status_code == 403
    assert desk.tools.findings is None


async def test_a_form_needs_the_field_of_its_own_session(desk: Desk) -> None:
    one, other = await desk.logged_in(), await desk.logged_in()
    foreign = csrf_of((await other.get("/dashboard/")).text)
    for data in ({}, {"csrf": "x"}, {"csrf": foreign}):
        answer = await one.post("/dashboard/doctor", data={"a": "b", **data}, headers=form_headers())
        assert answer.status_code == 403
    assert desk.tools.findings is None
    own = csrf_of((await one.get("/dashboard/")).text)
    answer = await one.post("/dashboard/doctor", data={"csrf": own}, headers=form_headers())
    assert answer.status_code == 303
    assert desk.tools.findings is not None


async def test_the_logout_of_one_session_leaves_the_other(desk: Desk) -> None:
    one, other = await desk.logged_in(), await desk.logged_in()
    csrf = csrf_of((await one.get("/dashboard/")).text)
    kept = dict(one.cookies)
    await one.post("/dashboard/logout", data={"csrf": csrf}, headers=form_headers())
    thief = desk.browser()
    thief.cookies.update(kept)
    assert (await thief.get("/dashboard/")).status_code == 401
    assert (await other.get("/dashboard/")).status_code == 200


async def test_another_user_of_the_machine_is_refused_even_with_the_cookie(desk: Desk) -> None:
    browser = await desk.logged_in()
    desk.access.foreign = True
    assert (await browser.get("/dashboard/")).status_code == 403
    assert (await desk.browser().get(f"{LOGIN}?link={desk.sessions.make_link()}")).status_code == 403


async def test_bodies_that_are_no_small_form_are_refused(desk: Desk) -> None:
    browser = await desk.logged_in()
    csrf = csrf_of((await browser.get("/dashboard/")).text)
    json = await browser.post("/dashboard/doctor", json={"csrf": csrf}, headers=form_headers())
    twice = await browser.post(
        "/dashboard/doctor", content=f"csrf={csrf}&csrf={csrf}",
        headers={**form_headers(), "Content-Type": "application/x-www-form-urlencoded"},
    )  # fmt: skip
    large = await browser.post("/dashboard/doctor", data={"csrf": csrf, "x": "y" * (1 << 20)}, headers=form_headers())
    assert [one.status_code for one in (json, twice, large)] == [422, 422, 422]
    assert desk.tools.findings is None


@pytest.mark.parametrize("name", ["..%2Fapp.py", "%2e%2e/app.py", "dashboard.css/../../app.py", "uPlot.LICENSE", "x"])
async def test_only_bundled_files_are_static(desk: Desk, name: str) -> None:
    assert (await desk.browser().get(f"/dashboard/static/{name}")).status_code in (401, 404)
