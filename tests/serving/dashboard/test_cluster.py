"""The dashboard on Kubernetes: the token of a user decides what they see and do."""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Iterator
from typing import Any, ClassVar

import pytest

from clusters.base.errors import Forbidden, KnodelError
from clusters.base.objects import MODEL
from serving.client.errors import ClientError
from serving.dashboard.app import Dashboard
from serving.dashboard.audit import AuditRecords
from serving.dashboard.cluster import ClusterAccess, ClusterTools, cluster_entry
from serving.dashboard.sampler import Sampler
from serving.platform.dashboard_main import OnlyDashboard
from tests.serving.dashboard.conftest import BASE, Desk, form_headers
from tests.serving.dashboard.test_pages import model

USERS = {"ann": None, "ben": {"default"}, "eve": set[str]()}
"""The namespaces in which a user may do everything, by token; None for all."""


class Reviews(http.server.BaseHTTPRequestHandler):
    """As much of an API server as a login needs."""

    seen: ClassVar[list[str]] = []

    def do_POST(self) -> None:
        body: dict[str, Any] = json.loads(self.rfile.read(int(self.headers["content-length"])))
        user = self.headers.get("authorization", "").removeprefix("Bearer ")
        self.seen.append(user)
        if user not in USERS:
            self._answer(401, {"kind": "Status", "status": "Failure", "message": "Unauthorized", "code": 401})
            return
        if self.path.startswith("/apis/authentication.k8s.io/v1/selfsubjectreviews"):
            self._answer(201, {"kind": body["kind"], "status": {"userInfo": {"username": f"{user}@example.com"}}})
            return
        namespace = body["spec"]["resourceAttributes"]["namespace"]
        allowed = USERS[user]
        self._answer(201, {"kind": body["kind"], "status": {"allowed": allowed is None or namespace in allowed}})

    def _answer(self, status: int, value: dict[str, Any]) -> None:
        content = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""


@pytest.fixture
def entry() -> Iterator[dict[str, str]]:
    """The entry of a kubeconfig for an API server that runs."""
    Reviews.seen.clear()
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Reviews)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield {"server": f"http://127.0.0.1:{server.server_address[1]}"}
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
async def cluster_desk(desk: Desk, entry: dict[str, str]) -> Desk:
    """The dashboard as on Kubernetes."""
    access = ClusterAccess("test", entry, desk.sessions, desk.objects)
    tools = ClusterTools(access, desk.objects, AuditRecords())
    sampler = Sampler((), lambda: pytest.fail("not sampled"), desk.history, desk.clock)
    desk.app = Dashboard(desk.objects, sampler, desk.sessions, access, tools, desk.clock, {"127.0.0.1"})
    await desk.add(MODEL, model())
    return desk


async def test_a_token_starts_a_session_with_its_user(cluster_desk: Desk) -> None:
    browser = cluster_desk.browser()
    assert "Bearer" not in (await browser.get("/dashboard/login")).text
    answer = await browser.post("/dashboard/login", data={"token": " ann\n"}, headers=form_headers())
    assert answer.status_code == 200
    text = (await browser.get("/dashboard/")).text
    assert "ann@example.com" in text and "m.default.iris" in text


@pytest.mark.parametrize("token", ["", "mallory", "eve", "ann\r\nX: y"])
async def test_other_tokens_do_not(cluster_desk: Desk, token: str) -> None:
    browser = cluster_desk.browser()
    answer = await browser.post("/dashboard/login", data={"token": token}, headers=form_headers())
    assert answer.status_code == 403
    assert (await browser.get("/dashboard/")).status_code == 401


async def test_a_form_of_another_page_cannot_log_in(cluster_desk: Desk) -> None:
    answer = await cluster_desk.browser().post(
        "/dashboard/login", data={"token": "ann"}, headers={"Origin": "https://evil.example"}
    )
    assert answer.status_code == 403
    assert not Reviews.seen


async def test_a_user_sees_the_namespaces_of_their_rights(cluster_desk: Desk) -> None:
    hidden = model("secret")
    hidden["metadata"]["namespace"] = "other"
    await cluster_desk.add(MODEL, hidden)
    browser = cluster_desk.browser()
    await browser.post("/dashboard/login", data={"token": "ben"}, headers=form_headers())
    text = (await browser.get("/dashboard/")).text
    assert "m.default.iris" in text and "secret" not in text
    assert (await browser.get("/dashboard/models/other/secret")).status_code == 404


async def test_a_proxy_logs_in_with_the_token_that_it_adds(cluster_desk: Desk) -> None:
    browser = cluster_desk.browser()
    browser.headers["Authorization"] = "Bearer ann"
    answer = await browser.get("/dashboard/")
    assert (answer.status_code, answer.headers["location"]) == (303, "/dashboard/login")
    assert (await browser.get("/dashboard/login")).status_code == 200
    assert (await browser.get("/dashboard/")).status_code == 200
    browser.headers["Authorization"] = "Bearer mallory"
    browser.cookies.clear()
    assert (await browser.get("/dashboard/login")).status_code == 403


async def test_the_cookie_of_a_page_behind_tls_is_secure(cluster_desk: Desk) -> None:
    headers = form_headers(BASE.replace("http:", "https:"))
    answer = await cluster_desk.browser().post("/dashboard/login", data={"token": "ann"}, headers=headers)
    assert "Secure" in answer.headers["set-cookie"]


async def test_actions_are_done_with_the_users_token(cluster_desk: Desk) -> None:
    access = ClusterAccess("test", {"server": "http://127.0.0.1:1"}, cluster_desk.sessions, cluster_desk.objects)
    session = cluster_desk.sessions.start("ann", "ann-token")
    assert access.connect(session).credentials() == {"Authorization": "Bearer ann-token"}


async def test_only_who_may_change_a_model_may_try_it(cluster_desk: Desk, entry: dict[str, str]) -> None:
    access = ClusterAccess("test", entry, cluster_desk.sessions, cluster_desk.objects)
    tools = ClusterTools(access, cluster_desk.objects, AuditRecords())
    with pytest.raises(Forbidden, match="may not update models"):
        await tools.predict(cluster_desk.sessions.start("eve", "eve"), "default", "iris", "{}")
    with pytest.raises(ClientError, match="no address"):
        await tools.predict(cluster_desk.sessions.start("ben", "ben"), "default", "iris", "{}")


def test_the_cluster_of_a_pod() -> None:
    name, entry = cluster_entry("", {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "6443"})
    assert (name, entry["server"]) == ("in-cluster", "https://[fd00::1]:6443")
    with pytest.raises(KnodelError, match="runs in no Pod"):
        cluster_entry("", {})


async def test_other_paths_lead_to_the_dashboard_or_nowhere(desk: Desk) -> None:
    import httpx

    browser = httpx.AsyncClient(transport=httpx.ASGITransport(OnlyDashboard(desk.app)), base_url=BASE)
    start = await browser.get("/")
    assert (start.status_code, start.headers["location"]) == (307, "/dashboard/")
    assert (await browser.get("/apis")).status_code == 404
    assert (await browser.get("/dashboard/")).status_code == 401
