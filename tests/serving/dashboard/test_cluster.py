"""The dashboard on Kubernetes: the token of a user decides what they see and do."""

from __future__ import annotations

import http.server
import json
import re
import threading
from collections.abc import Iterator
from typing import Any, ClassVar

import httpx
import pytest

from clusters.base.distribution import VERSION
from clusters.base.errors import Forbidden, KnodelError
from clusters.base.objects import MODEL
from serving.client.errors import ClientError
from serving.client.kubeconfig import KubeContext
from serving.dashboard.app import Dashboard
from serving.dashboard.audit import AuditRecords
from serving.dashboard.cluster import ClusterAccess, ClusterTools, own_context
from serving.dashboard.sampler import Sampler
from serving.platform.dashboard_main import HOSTS_VARIABLE, OnlyDashboard
from tests.autoscaler.gpu.objects import node, pod
from tests.serving.dashboard.conftest import BASE, Desk, csrf_of, form_headers
from tests.serving.dashboard.test_pages import model

USERS = {"ann": None, "ben": {"default"}, "eve": set[str](), "dashboard": None}
"""The namespaces in which a user may do everything, by token; None for all."""


DASHBOARD = "dashboard"
"""The token of the dashboard's own service account."""
RUNNING = {
    "spec": {"template": {"spec": {"containers": [{"image": f"knodel.dev/controller:{VERSION}"}]}}},
    "status": {"conditions": [{"type": "Available", "status": "True"}]},
}
SYSTEM = "/apis/apps/v1/namespaces/knodel-system/deployments"
KNATIVE = "/apis/apps/v1/namespaces/knative-serving/deployments"
CONFIG = "/api/v1/namespaces/knodel-system/configmaps/knodel-config"
FLAGS = "/api/v1/namespaces/knative-serving/configmaps"
OBJECTS: dict[str, Any] = {
    "/version": {"major": "1", "minor": "35", "gitVersion": "v1.35.0"},
    "/apis/serving.knative.dev/v1": {"resources": [{"name": "revisions"}]},
    "/apis/knodel.dev/v1alpha1": {"resources": [{"name": "models"}]},
    SYSTEM: [{**RUNNING, "metadata": {"name": "knodel-controller"}}],
    KNATIVE: [
        {**RUNNING, "metadata": {"name": name}} for name in ("controller", "webhook", "activator", "autoscaler")
    ],
    CONFIG: {"metadata": {"name": "knodel-config"}, "data": {"config.yaml": "gateway: {address: 127.0.0.1, port: 9}"}},
    "/apis/knodel.dev/v1alpha1/models": [
        {
            "metadata": {"name": "rose", "namespace": "other"}, "spec": {},
            "status": {"conditions": [{"type": "Ready", "status": "False", "reason": "LoadFailed"}]},
        }
    ],
    "/apis/knodel.dev/v1alpha1/eventsources": [],
    "/api/v1/nodes": [node("a"), node("plain", {})],
    "/api/v1/pods": [
        pod("chat-1", "a", 2, namespace="default", model="chat"),
        {"metadata": {"name": "p", "namespace": "x"},
         "status": {"containerStatuses": [{"image": "i", "state": {"waiting": {"reason": "ErrImagePull"}}}]}},
    ],
}  # fmt: skip
"""What the API server has, by path. The Pod without a Model is none of the dashboard's business."""


ABSENT = "the server could not find the requested resource"


class Reviews(http.server.BaseHTTPRequestHandler):
    """As much of an API server as a login, doctor and the view of the GPUs need."""

    seen: ClassVar[list[str]] = []
    refused: ClassVar[set[tuple[str, str]]] = set()
    """Users and paths that are refused."""

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        user = self.headers.get("authorization", "").removeprefix("Bearer ")
        self.seen.append(f"{user} {path}")
        if (user, path) in self.refused:
            words = f'User "{user}" cannot read {path}'
            self._answer(403, {"kind": "Status", "reason": "Forbidden", "message": words, "code": 403})
        elif (found := OBJECTS.get(path)) is None:
            self._answer(404, {"kind": "Status", "reason": "NotFound", "message": ABSENT, "code": 404})
        else:
            self._answer(200, {"items": found} if isinstance(found, list) else found)

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
    Reviews.refused.clear()
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
    context = KubeContext("test", "default", "", {"token": DASHBOARD}, entry)
    access = ClusterAccess(context, desk.sessions, desk.objects)
    tools = ClusterTools(access, desk.objects, AuditRecords(), desk.clock, context)
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
    context = KubeContext("test", "default", "", {}, {"server": "http://127.0.0.1:1"})
    access = ClusterAccess(context, cluster_desk.sessions, cluster_desk.objects)
    session = cluster_desk.sessions.start("ann", "ann-token")
    assert access.connect(session).credentials() == {"Authorization": "Bearer ann-token"}


async def test_only_who_may_change_a_model_may_try_it(cluster_desk: Desk, entry: dict[str, str]) -> None:
    context = KubeContext("test", "default", "", {}, entry)
    access = ClusterAccess(context, cluster_desk.sessions, cluster_desk.objects)
    tools = ClusterTools(access, cluster_desk.objects, AuditRecords(), cluster_desk.clock, context)
    with pytest.raises(Forbidden, match="may not update models"):
        await tools.predict(cluster_desk.sessions.start("eve", "eve"), "default", "iris", "{}")
    with pytest.raises(ClientError, match="no address"):
        await tools.predict(cluster_desk.sessions.start("ben", "ben"), "default", "iris", "{}")


async def logged_in(desk: Desk, token: str) -> httpx.AsyncClient:
    browser = desk.browser()
    assert (await browser.post("/dashboard/login", data={"token": token}, headers=form_headers())).status_code == 200
    return browser


async def examined(browser: httpx.AsyncClient) -> httpx.Response:
    """The page of doctor after its checks have run."""
    csrf = csrf_of((await browser.get("/dashboard/")).text)
    answer = await browser.post("/dashboard/doctor", data={"csrf": csrf}, headers=form_headers())
    return await browser.get("/dashboard/doctor") if answer.status_code == 303 else answer


async def test_doctor_runs_with_the_rights_of_the_dashboard(
    cluster_desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(HOSTS_VARIABLE, "models.lan")  # as in the Deployment
    browser = await logged_in(cluster_desk, "ann")
    assert 'id="examine">Run the checks' in (await browser.get("/dashboard/doctor")).text
    Reviews.refused |= {(DASHBOARD, f"{FLAGS}/config-features"), (DASHBOARD, SYSTEM)}
    text = (await examined(browser)).text
    assert not [line for line in Reviews.seen if line.startswith("ann /")]
    pairs = re.findall(r'<span class="state[^>]*>(\w+)</span><div><b>([^<]+)</b>', text)
    found = {check: state for state, check in pairs}
    assert found["Kubernetes"] == found["Knative&#39;s Deployments"] == found["settings"] == found["images"] == "Good"
    assert found["Knodel"] == "Skipped" and f"cannot read {SYSTEM}" in text
    assert found["models"] == "Problem" and "other/rose (LoadFailed)" in text
    assert not {"rights", "ingress"} & found.keys()
    assert re.search(r"\d+ of \d+ checks are good, \d+ skipped", text)


async def test_doctor_is_for_users_who_see_all_namespaces(cluster_desk: Desk) -> None:
    await examined(await logged_in(cluster_desk, "ann"))
    browser = await logged_in(cluster_desk, "ben")
    Reviews.seen.clear()
    for answer in (await browser.get("/dashboard/doctor"), await examined(browser)):
        assert answer.status_code == 403
        assert "rose" not in answer.text and "knodel doctor --kube-context NAME -n default" in answer.text
    assert not Reviews.seen


async def test_the_gpus_are_read_with_the_rights_of_the_user(cluster_desk: Desk) -> None:
    browser = await logged_in(cluster_desk, "ann")
    text = (await browser.get("/dashboard/pools")).text
    assert '<tr><th scope="row">a</th><td>nvidia.com/gpu</td>' in text and "Model default/chat 2" in text
    lists = [line for line in Reviews.seen if line.endswith("/nodes")]
    assert lists == ["ann /api/v1/nodes"]
    await browser.get("/dashboard/pools")
    assert [line for line in Reviews.seen if line.endswith("/nodes")] == lists  # as read before
    Reviews.refused.add(("ben", "/api/v1/nodes"))
    text = (await (await logged_in(cluster_desk, "ben")).get("/dashboard/pools")).text
    assert "cannot read /api/v1/nodes" in text and "default/chat" not in text


def test_the_cluster_of_a_pod() -> None:
    found = own_context("", {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "6443"})
    assert (found.name, found.cluster["server"]) == ("in-cluster", "https://[fd00::1]:6443")
    with pytest.raises(KnodelError, match="runs in no Pod"):
        own_context("", {})


async def test_other_paths_lead_to_the_dashboard_or_nowhere(desk: Desk) -> None:
    browser = httpx.AsyncClient(transport=httpx.ASGITransport(OnlyDashboard(desk.app)), base_url=BASE)
    start = await browser.get("/")
    assert (start.status_code, start.headers["location"]) == (307, "/dashboard/")
    assert (await browser.get("/apis")).status_code == 404
    assert (await browser.get("/dashboard/")).status_code == 401
