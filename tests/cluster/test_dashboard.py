"""The dashboard as a Deployment on a real cluster: its views, rights and actions, through the port-forward."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
import uuid
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from functools import partial

import httpx
import pytest

from clusters.base.clock import SystemClock
from clusters.base.objects import DEPLOYMENT, Key, Object, key_of
from clusters.runtime.manager.options import SYSTEM_NAMESPACE
from serving.install.bundle import load_dashboard
from serving.install.installer import remove
from serving.install.kinds import in_order, kind_of
from serving.install.waiting import WaitDeadline, not_available
from tests.cluster.test_command import Shell, document
from tests.serving.dashboard.conftest import csrf_of, form_headers
from tests.support.artifacts import ArtifactServer
from tests.support.kubernetes import KubeTarget, account_token, kubernetes_cluster
from tests.support.ports import free_ports
from tests.support.terminal import KNODEL
from tests.support.tools import tool
from tests.support.wait import eventually

MANAGER = "tests"
WITHIN = 120.0
FINDING = re.compile(r'<span class="state[^>]*>(\w+)</span><div><b>([^<]+)</b>([^<]*)')
ROLLOUT = {"steps": [50, 100], "stepDuration": "1h"}


@pytest.fixture(scope="module")
def address(target: KubeTarget) -> Iterator[str]:
    """The address of the dashboard on this machine. The component is added to the installation, and removed."""
    (port,) = free_ports(1)
    path = f"{tool('kubectl').parent}:{os.environ['PATH']}"
    environment = os.environ | {"KUBECONFIG": str(target.kubeconfig), "PATH": path}
    asked = [*KNODEL, "dashboard", "--kube-context", target.context, "--no-browser", "--port", str(port)]
    command = subprocess.run(asked, env=environment, capture_output=True, text=True, check=True).stdout.splitlines()[0]
    objects = asyncio.run(_install(target))
    try:
        with subprocess.Popen(command.split(), env=environment, stdout=sys.stderr) as forwarding:
            try:
                yield f"http://127.0.0.1:{port}"
            finally:
                forwarding.terminate()
    finally:
        asyncio.run(_remove(target, objects))


async def _install(target: KubeTarget) -> list[Object]:
    """Apply the component with the image of the installed controller, and wait until it is ready."""
    async with kubernetes_cluster(target) as cluster:
        objects = in_order(load_dashboard([await cluster.get(DEPLOYMENT, "knodel-controller", SYSTEM_NAMESPACE)]))
        for obj in objects:
            await cluster.apply(kind_of(obj), obj, manager=MANAGER, force=True)
        deadline = WaitDeadline(SystemClock(), WITHIN, lambda _: None)
        await deadline.until(partial(not_available, cluster, Key(SYSTEM_NAMESPACE, "knodel-dashboard")))
        return objects


async def _remove(target: KubeTarget, objects: Sequence[Object]) -> None:
    async with kubernetes_cluster(target) as cluster:
        for obj in reversed(objects):
            key = key_of(obj)
            await remove(cluster, kind_of(obj), await cluster.get(kind_of(obj), key.name, key.namespace))


@pytest.fixture(scope="module")
def knodel(target: KubeTarget, files: ArtifactServer) -> Iterator[Shell]:
    """The command in a namespace of its own, whose Model `magika` is in a rollout."""
    shell = Shell(target, f"test-{uuid.uuid4().hex[:10]}")
    shell("namespace", shell.namespace)
    for version, name in (("1", "double"), ("2", "triple")):
        made = document(files.uri(name), version=version, minReplicas=1, rollout=ROLLOUT)
        shell("deploy", "-f", "-", "--no-wait", stdin=made)
        shell("wait", "magika", "--timeout", "150s")
    yield shell
    shell("delete", "magika", "--no-wait", code=None)


class Browser:
    """A browser in front of the dashboard."""

    def __init__(self, client: httpx.AsyncClient, address: str) -> None:
        self._client = client
        self._headers = form_headers(address)

    async def page(self, path: str) -> httpx.Response:
        """Open a page."""
        return await self._client.get(f"/dashboard{path}")

    async def log_in(self, token: str) -> int:
        """Send the form of the login; its status."""
        sent = await self._client.post("/dashboard/login", data={"token": token}, headers=self._headers)
        return sent.status_code

    async def send(self, path: str) -> httpx.Response:
        """Send the form of a page, and follow where it leads."""
        form = {"csrf": csrf_of((await self.page("/")).text)}
        answer = await self._client.post(f"/dashboard{path}", data=form, headers=self._headers)
        return answer if answer.status_code != 303 else await self._client.get(answer.headers["location"])


@asynccontextmanager
async def browsing(address: str, token: str = "") -> AsyncIterator[Browser]:
    """A browser, logged in if there is a token, once the port is forwarded."""
    async with httpx.AsyncClient(base_url=address, timeout=WITHIN) as client:
        browser = Browser(client, address)

        async def answers() -> bool:
            try:
                return (await browser.page("/")).status_code == 401
            except httpx.TransportError as error:
                raise AssertionError(str(error)) from error

        await eventually(answers, WITHIN)
        if token:
            assert await browser.log_in(token) == 200
        yield browser


@pytest.fixture(scope="module")
def admin(target: KubeTarget, knodel: Shell) -> Iterator[str]:
    """The token of a user who may do everything everywhere."""
    with account_token(target, knodel.namespace, "admin", "cluster-admin", everywhere=True) as token:
        yield token


@pytest.fixture(scope="module")
def viewer(target: KubeTarget, knodel: Shell) -> Iterator[str]:
    """The token of a user with the ClusterRole `view` in the namespace of the Model."""
    with account_token(target, knodel.namespace, "viewer", "view") as token:
        yield token


@pytest.fixture(scope="module")
def editor(target: KubeTarget, knodel: Shell) -> Iterator[str]:
    """The token of a user with the ClusterRole `edit` in the namespace of the Model."""
    with account_token(target, knodel.namespace, "editor", "edit") as token:
        yield token


async def test_nobody_sees_anything_without_a_token_of_the_cluster(address: str) -> None:
    async with browsing(address) as browser:
        for path in ("/", "/models/default/magika", "/doctor", "/pools", "/live"):
            assert (await browser.page(path)).status_code == 401, path
        assert await browser.log_in("nobody") == 403
        assert (await browser.page("/")).status_code == 401


async def test_every_view_has_an_answer(address: str, knodel: Shell, admin: str) -> None:
    model = f"/models/{knodel.namespace}/magika"
    async with browsing(address, admin) as browser:
        for path, words in {
            "/": f"m.{knodel.namespace}.magika",
            model: "magika-00002",
            f"{model}/logs": "magika-0000",
            f"{model}/try": "Send",
            f"{model}/do/pause": f"knodel pause magika -n {knodel.namespace}",
            "/events": "Events",
            "/audit": "logged in",
        }.items():
            found = await browser.page(path)
            assert found.status_code == 200, (path, found.text)
            assert words in found.text, (path, found.text)
        series = (await browser.page(f"{model}/series?window=day")).json()
        assert series["note"] == "" and series["step"] == 60


async def test_doctor_has_all_rights_that_its_checks_need(address: str, admin: str) -> None:
    async with browsing(address, admin) as browser:
        page = (await browser.send("/doctor")).text
    found = {check: (state, message) for state, check, message in FINDING.findall(page)}
    assert {"API server", "Kubernetes", "Knative Serving", "Model", "Knodel", "settings", "models"} <= found.keys()
    assert not {check: why for check, why in found.items() if why[0] == "Skipped"}
    assert found["Knodel"][0] == "Good" and "knodel-dashboard" in found["Knodel"][1]
    assert found["API server"][0] == found["settings"][0] == "Good"


async def test_the_gpus_are_those_of_the_command(address: str, knodel: Shell, admin: str) -> None:
    shown = json.loads(knodel("gpus", "-A", "-o", "json").out)
    async with browsing(address, admin) as browser:
        page = (await browser.page("/pools")).text
    if not shown["nodes"]:
        assert "No node of the cluster has GPUs." in page
    for node in shown["nodes"]:
        assert f'<th scope="row">{node["name"]}</th>' in page


async def test_a_user_of_one_namespace_sees_no_other(address: str, knodel: Shell, viewer: str) -> None:
    async with browsing(address, viewer) as browser:
        assert f"m.{knodel.namespace}.magika" in (await browser.page("/")).text
        assert (await browser.page("/models/default/magika")).status_code == 404
        assert (await browser.page("/doctor")).status_code == 403
        assert "nodes" in (await browser.page("/pools")).text


async def test_actions_have_the_rights_of_the_user(address: str, knodel: Shell, viewer: str, editor: str) -> None:
    model = f"/models/{knodel.namespace}/magika"
    async with browsing(address, viewer) as browser:
        refused = await browser.send(f"{model}/do/pause")
        assert refused.status_code == 422
        assert "cannot patch resource" in refused.text
        assert "paused" not in knodel.model()["spec"]["rollout"]
    async with browsing(address, editor) as browser:
        done = await browser.send(f"{model}/do/pause")
        assert f"Done: knodel pause magika -n {knodel.namespace}" in done.text
        await eventually(lambda: knodel.model()["status"]["rollout"]["phase"] == "Paused", WITHIN)
        await browser.send(f"{model}/do/promote")
        await eventually(lambda: knodel.model()["status"]["rollout"]["phase"] == "Promoted", WITHIN)
