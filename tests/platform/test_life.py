"""Test starts and stops of the platform, crashes of the control plane, and refused starts."""

from __future__ import annotations

import contextlib
import json
import re
import socket
import subprocess
import threading
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from clusters.base.objects import (
    CONFIGURATION,
    DEPLOYMENT,
    POD_AUTOSCALER,
    REPLICA_SET,
    REVISION,
    ROUTE,
    SERVERLESS_SERVICE,
    SERVICE,
)
from loadtests.bench.processes import processes_of
from serving.client.client import Client
from serving.client.state import LocalPlatform
from tests.platform.machine import Machine, machine
from tests.scenarios.world import infer_body
from tests.support.ports import neighbouring_ports, suggested_ports

CRASHES = 5


class Prober:
    """A thread that sends requests to one model in a closed loop until it is stopped."""

    def __init__(self, port: int, name: str) -> None:
        self.failures: list[str] = []
        self.answered = 0
        self._url = f"http://127.0.0.1:{port}/v2/models/{name}/infer"
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop, and wait for the last response."""
        self._stop.set()
        self._thread.join(30)

    def _run(self) -> None:
        while not self._stop.wait(0.005):
            request = urllib.request.Request(
                self._url, json.dumps(infer_body(1)).encode(), {"Content-Type": "application/json"}
            )
            try:
                with urllib.request.urlopen(request, timeout=30) as answer:
                    answer.read()
                self.answered += 1
            except OSError as error:
                self.failures.append(repr(error))


@pytest.mark.timeout(300)
@pytest.mark.fault("I11")
def test_crashes_during_changes_fail_no_request_and_duplicate_no_object(tmp_path: Path) -> None:
    with machine(tmp_path) as here:
        here.up()
        here.run("deploy", "steady", "--uri", here.artifact("double"), "--min", "1")
        here.run("deploy", "moving", "--uri", here.artifact("double"), "--min", "1")
        prober = Prober(here.port, "steady")
        for number in range(CRASHES):
            artifact = here.artifact(("triple", "double")[number % 2])
            change = here.start("deploy", "moving", "--uri", artifact, "--canary", "50", "--version", str(number))
            # The moments differ from round to round, from before the first write to after the last one.
            with contextlib.suppress(subprocess.TimeoutExpired):
                change.wait(0.12 + 0.08 * number)
            here.kill()
            change.kill()  # it would look for its platform for 5 s
            change.wait()
            here.up()
        here.run("wait", "moving")
        here.run("promote", "moving")
        prober.stop()

        assert prober.failures == []
        assert prober.answered > 100
        assert here.ask("steady") == 2.0
        check_no_duplicates(here)
        here.run("down")
        assert here.processes() == []


def check_no_duplicates(here: Machine) -> None:
    """Check that each Model has one Service, Configuration and Route, and each Revision one child of each kind."""
    client = Client(LocalPlatform.find(here.state))
    names = {"steady", "moving"}
    for kind in (SERVICE, CONFIGURATION, ROUTE):
        assert {item["metadata"]["name"] for item in client.list(kind, "default")["items"]} == names
    revisions = {item["metadata"]["name"] for item in client.list(REVISION, "default")["items"]}
    for kind in (POD_AUTOSCALER, SERVERLESS_SERVICE):
        assert {item["metadata"]["name"] for item in client.list(kind, "default")["items"]} == revisions
    deployments = [item["metadata"]["name"] for item in client.list(DEPLOYMENT, "default")["items"]]
    assert sorted(deployments) == sorted(f"{name}-deployment" for name in revisions)
    assert len(client.list(REPLICA_SET, "default")["items"]) == len(deployments)


def test_models_come_back_after_down_and_up(tmp_path: Path) -> None:
    with machine(tmp_path) as here:
        here.up()
        here.run("deploy", "back", "--uri", here.artifact("triple"), "--min", "1")
        uid = here.model("back")["metadata"]["uid"]
        code = ("--uri", here.artifact("code"), "--format", "python", "--no-wait")
        here.run("deploy", "code", *code)  # the user's own machine, until they say otherwise
        here.run("namespace", "default", "--label", "knodel.dev/allow-code-")
        here.run("down")
        assert here.processes() == []
        assert "no platform runs" in here.run("list", code=1)

        here.up()
        here.run("wait", "back")

        assert here.ask("back", 2.0) == 6.0
        assert here.model("back")["metadata"]["uid"] == uid
        assert "does not allow" in here.run("deploy", "more", *code, code=2)


@pytest.mark.fault("I11")
def test_down_after_a_crash_leaves_nothing(tmp_path: Path) -> None:
    with machine(tmp_path) as here:
        here.up()
        here.run("deploy", "left", "--uri", here.artifact("double"), "--min", "1")
        here.kill()

        here.run("down")

        assert here.processes() == []
        here.up()
        here.run("wait", "left")  # an end that nobody watched is no failure of the version
        here.run("down")
        with socket.create_server(("127.0.0.1", here.port)):
            pass


def test_a_platform_runs_with_paths_longer_than_the_address_of_a_socket(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / ("deep" * 38)
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    with machine(folder) as here:
        here.up()
        here.run("deploy", "far", "--uri", here.artifact("double"))  # to zero, so that the activator has to know of it

        assert here.ask("far", 2.0) == 4.0
        assert "PROBLEM" not in here.run("doctor")


def test_a_copy_of_a_state_folder_leaves_the_original_alone(tmp_path: Path) -> None:
    copies = tmp_path / "copies"
    copies.mkdir()
    with machine(tmp_path) as here, machine(copies) as copy:
        here.up()
        here.run("deploy", "one", "--uri", here.artifact("double"), "--min", "1")
        subprocess.run(["cp", "-a", here.state, copy.state], check=True)
        before = sorted(processes_of(here.state))

        copy.up()
        copy.run("wait", "one")
        assert (here.ask("one"), copy.ask("one")) == (2.0, 2.0)
        copy.run("down")

        assert sorted(processes_of(here.state)) == before
        assert here.ask("one") == 2.0
        assert copy.processes() == []


def test_each_start_creates_a_new_token_that_plain_http_rejects(tmp_path: Path) -> None:
    with machine(tmp_path) as here:
        here.up()
        first = (here.state / "token").read_text()
        assert status_with_token(here) == 403
        here.kill()
        (here.state / "token").write_text("\n")  # as a full disk or an editor leaves it
        here.up()

        second = (here.state / "token").read_text()
        assert len(second) > 40 and second != first
        assert second.strip() in (here.state / "kubeconfig").read_text()
        here.run("list")


def status_with_token(here: Machine) -> int:
    """Return the status of a request over plain HTTP with the token."""
    headers = {"Authorization": f"Bearer {(here.state / 'token').read_text().strip()}"}
    request = urllib.request.Request(f"http://127.0.0.1:{here.control}/apis", headers=headers)
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(request, timeout=30)
    with refused.value as answer:
        return answer.code


@pytest.mark.fault("I10")
def test_up_on_a_folder_with_a_platform_changes_nothing_and_reports_it(tmp_path: Path) -> None:
    with machine(tmp_path) as here:
        first = here.up()
        facts = here.facts()

        assert here.up() == first
        assert json.loads(here.run("up", "--detach", "-o", "json")) == facts
        (tmp_path / "link").symlink_to(here.state)
        assert here.run("up", "--state", str(tmp_path / "link")) == first
        refused = here.run("up", "--detach", "--port", "1", code=2)
        assert f"runs already, at 127.0.0.1:{here.port}" in refused and "`knodel down`" in refused
        assert here.facts() == facts


def test_concurrent_starts_all_find_the_running_platform(tmp_path: Path) -> None:
    with machine(tmp_path) as here:
        ports = ("--port", str(here.port), "--control-port", str(here.control))
        with ThreadPoolExecutor(3) as threads:
            ends = list(threads.map(lambda _: here.complete("up", "--detach", *ports), range(3)))

        assert [end.returncode for end in ends] == [0, 0, 0], [end.stderr for end in ends]
        assert len({end.stdout for end in ends}) == 1
        assert sum("is already running" in end.stderr for end in ends) == 2


@pytest.mark.parametrize("offset", [0, 1, 2], ids=["gateway", "control", "control TLS"])
@pytest.mark.fault("I10")
def test_the_error_of_a_taken_port_contains_a_command_with_free_ports(tmp_path: Path, offset: int) -> None:
    ports = neighbouring_ports(3)
    taken = ports[offset]
    with suggested_ports(), machine(tmp_path) as here, socket.create_server(("127.0.0.1", taken)):
        del here.environment["KNODEL_CONTROL_TLS_PORT"]
        refused = here.run("up", "--detach", "--port", str(ports[0]), code=1)

        assert f"127.0.0.1:{taken} (Address already in use)" in refused
        assert len(refused.splitlines()) == 1
        assert here.processes() == []
        (command,) = re.findall("`knodel (up [^`]*)`", refused)
        here.run(*command.split())
        here.run("list")


@pytest.mark.fault("I10")
def test_a_foreign_store_is_rejected_and_not_changed(tmp_path: Path) -> None:
    with machine(tmp_path) as here:
        here.state.mkdir()
        store = here.state / "cluster.db"
        store.write_bytes(b"my diary, not a database" * 100)

        refused = here.up(code=1)

        assert "cluster.db" in refused
        assert store.read_bytes().startswith(b"my diary")
