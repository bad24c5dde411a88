"""Test `doctor`: every problem has a remedy, and the checks change nothing."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import re
import shlex
import socket
import subprocess
from pathlib import Path
from typing import Any

import pytest

from clusters.base.objects import Object
from clusters.embedded.store.lock import FolderLock
from clusters.embedded.store.store import Store
from serving.cli.doctor import findings as doctor
from serving.cli.doctor import models as model_doctor
from serving.cli.doctor.examine import needed_packages
from serving.cli.doctor.findings import INFINITY, Finding, ProbeResponse
from serving.cli.doctor.ports import Listener, is_taken, listeners, listening_inodes
from serving.storage import kept
from serving.storage.sources.local import LocalPath
from serving.types.settings.state import KEPT_FOLDER, Facts
from tests.serving.cli.conftest import Knodel, Served, announce
from tests.serving.cli.test_down import marked

STATE = Path("/state")
HUB = ("hub.test", 443)
FACTS = Facts(7, 1, "0.1.0", "/state", "127.0.0.1:8080", "127.0.0.1:8081", "127.0.0.1:8443", "localhost")
OK = ProbeResponse(200)


def model(name: str, *, ready: str = "True", **spec: str) -> Object:
    """Return a Model with its condition."""
    conditions = [{"type": "Ready", "status": ready, "reason": "LoadFailed"}]
    return {"metadata": {"name": name, "namespace": "default"}, "spec": spec, "status": {"conditions": conditions}}


def homeless(name: str) -> Object:
    """Return a Model that serves, but has a replica without a node."""
    found = model(name)
    said = {"status": "False", "reason": "Unschedulable", "message": f"{name}-00001: no room"}
    found["status"]["conditions"].append({"type": "ReplicasStarted", **said})
    found["status"]["traffic"] = [{"revision": f"{name}-00001", "percent": 100}]
    return found


def halved(name: str) -> Object:
    """Return a Model of two workers of which one is missing."""
    found = model(name)
    said = {"status": "False", "reason": "WorkerLost", "message": "x: 1 of 2 workers are ready"}
    found["status"]["conditions"].append({"type": "WorkersReady", **said})
    return found


def crashing(revision: str, **spec: Any) -> Object:
    """Return a Model whose first version has the traffic, whose third is newest, and of which `revision` crashes."""
    found = homeless("iris")
    found["status"] |= {"latestCreatedRevision": "iris-00003"}
    found["status"]["conditions"][-1] |= {"reason": "CrashLoopBackOff", "message": f"{revision}: exit code 1"}
    found["spec"] = spec
    return found


def test_the_engine_of_onnx_is_needed_unless_there_is_another() -> None:
    assert set(needed_packages({"numpy", "yaml"})) == {"envoy", "onnxruntime"}
    assert set(needed_packages({"numpy", "yaml", "skops"})) == {"envoy"}


@pytest.mark.parametrize(
    ("model", "ok"),
    [
        (crashing("iris-00001"), False),
        (crashing("iris-00002"), True),
        (crashing("iris-00003"), False),
        (crashing("iris-00003", traffic=[{"revision": "iris-00001", "percent": 100}]), True),
    ],
    ids=["in traffic", "superseded", "newest", "pinned away"],
)
def test_only_replicas_of_versions_that_have_or_get_traffic_are_a_problem(model: Object, ok: bool) -> None:
    found = model_doctor.check_replicas([model])

    assert found.ok is ok
    assert "maxReplicas" not in found.remedy
    assert ok or "`knodel logs iris -n default`" in found.remedy


@pytest.mark.parametrize(
    ("finding", "ok", "words"),
    [
        (doctor.check_system("linux", True), True, ""),
        (doctor.check_system("darwin", True), False, "Linux"),
        (doctor.check_system("linux", False), False, "mount"),
        (doctor.check_open_files(1024, 1_048_576), True, ""),
        (doctor.check_open_files(INFINITY, INFINITY), True, "unlimited"),
        (doctor.check_open_files(256, 1_048_576), False, "ulimit -n 1024"),
        (doctor.check_open_files(1024, 1024), False, "limits.conf"),
        (doctor.check_packages({}, {"onnx": True, "sklearn": True}), True, "engines of onnx, sklearn"),
        (
            doctor.check_packages({}, {"onnx": True, "sklearn": False}, "pip install 'knodel[sklearn]'"),
            True,
            "not installed: sklearn: `pip install 'knodel[sklearn]'`",
        ),
        (doctor.check_packages({"onnxruntime": "`pip install 'knodel[onnx]'`"}, {}), False, "knodel[onnx]"),
        (doctor.check_folder(STATE, True, 0o700, True), True, ""),
        (doctor.check_folder(STATE, False, 0, True), True, "knodel up"),
        (doctor.check_folder(STATE, True, 0o755, True), False, "chmod 700 /state"),
        (doctor.check_folder(STATE, True, 0o700, False), False, "not writable"),
        (doctor.check_folder(STATE, False, 0, False), False, "cannot be created"),
        (doctor.check_folder(STATE, True, 0o700, True, full=True), False, "free some space"),
        (doctor.check_secrets({STATE / "token": 0o600}), True, "1 files"),
        (doctor.check_secrets({STATE / "token": 0o644}), False, "chmod 600 /state/token"),
        (doctor.check_store(STATE / "s", "", 3, False), True, "3 objects"),
        (doctor.check_store(STATE / "s", "it is corrupt", 0, False), False, "it is corrupt"),
        (doctor.check_store(STATE / "s", "", 0, True), True, "when the platform started"),
        (doctor.check_platform(STATE, None, None, ""), True, "none runs"),
        (doctor.check_platform(STATE, 7, FACTS, ""), True, "process 7"),
        (doctor.check_platform(STATE, 0, FACTS, ""), True, "process 7"),
        (doctor.check_platform(STATE, None, FACTS, ""), False, "has ended"),
        (doctor.check_platform(STATE, 8, FACTS, ""), False, "has process 7"),
        (doctor.check_platform(STATE, 8, None, ""), False, "is not ready"),
        (doctor.check_platform(STATE, None, None, "no JSON"), False, "no JSON"),
        (doctor.check_leftovers(False, ""), True, ""),
        (doctor.check_leftovers(True, "gateway"), True, "gateway"),
        (doctor.check_leftovers(False, "gateway, 2 pods"), False, "knodel down"),
        (doctor.check_port("gateway", "h:1", "--port", None, frozenset()), True, "free"),
        (doctor.check_port("gateway", "h:1", "--port", [Listener(5, "nginx")], frozenset()), False, "5 (nginx)"),
        (doctor.check_port("gateway", "h:1", "--port", [], frozenset()), False, "--port"),
        (doctor.check_port("gateway", "h:1", "--port", [Listener(5, "envoy")], frozenset({5})), True, "orphaned"),
        (model_doctor.check_models([]), True, "none yet"),
        (model_doctor.check_models([model("iris"), model("new", ready="Unknown")]), True, "2, none failed"),
        (model_doctor.check_models([model("iris", ready="False")]), False, "default/iris (LoadFailed)"),
        (model_doctor.check_models([model(f"m{n}", ready="False") for n in range(9)]), False, "and 4 more"),
        (model_doctor.check_replicas([model("iris")]), True, "all started"),
        (model_doctor.check_workers([model("iris")]), True, "all ready"),
        (model_doctor.check_workers([halved("iris")]), False, "default/iris (x: 1 of 2 workers are ready)"),
        (model_doctor.check_replicas([homeless("iris")]), False, "default/iris (Unschedulable: iris-00001: no room)"),
        (model_doctor.check_engines([model("iris")], ["skops"]), True, "installed"),
        (
            model_doctor.check_engines([model("iris", storageUri="file:///m/iris.skops?a=b")], ["skops"]),
            False,
            "knodel[sklearn]",
        ),
        (
            model_doctor.check_engines([model("iris") | {"status": {"modelFormat": "sklearn"}}], ["skops"]),
            False,
            "knodel[sklearn]",
        ),
        (model_doctor.check_engines([model("iris", modelFormat="sklearn")], ["skops"]), False, "knodel[sklearn]"),
        (model_doctor.check_engines([model("iris", modelFormat="sklearn")], []), True, "installed"),
        (model_doctor.check_engines([model("chat", modelFormat="vllm")], ["vllm"]), False, "install vllm on the"),
        (
            model_doctor.check_engines(
                [model("chat", modelFormat="vllm"), model("iris", modelFormat="sklearn")], ["vllm", "skops"]
            ),
            False,
            "knodel[sklearn]",
        ),
        (model_doctor.check_engines([model("iris", modelFormat="none such")], ["skops"]), True, "installed"),
        (model_doctor.check_stores({}, {}), True, "no URI has a host"),
        (model_doctor.check_stores({HUB: ["default/iris"]}, {}), True, "1 reached"),
        (model_doctor.check_stores({HUB: ["default/iris"]}, {HUB: "refused"}), False, "hub.test:443 (refused; d"),
        (model_doctor.check_sources([]), True, "knodel events allow"),
        (model_doctor.check_sources([model("ci")]), True, "1 EventSources"),
        (model_doctor.check_sources([model("ci", ready="False")]), False, "default/ci"),
        (model_doctor.check_images([]), True, "0 Pods"),
        (doctor.check_settings(""), True, ""),
        (doctor.check_kept(3 << 30, 64 << 30), True, "3.0 GiB of 64 GiB"),
        (doctor.check_kept(62 << 30, 64 << 30), False, "KNODEL_KEPT_LIMIT"),
        (doctor.check_copies(3, 3, 4 << 30, []), True, "read 3 of 3 copies (4.0 GiB), none damaged"),
        (doctor.check_copies(3, 2, 4, []), True, "`knodel doctor --full` reads all"),
        (doctor.check_copies(3, 3, 4, [Path("/s/a b")]), False, "`rm -r '/s/a b'`"),
        (doctor.check_settings("gateway.port: 0 is out of bounds"), False, "gateway.port"),
    ],
)  # fmt: skip
def test_an_observation_becomes_a_finding(finding: Finding, ok: bool, words: str) -> None:
    assert finding.ok is ok
    assert words in f"{finding.message} {finding.remedy}"
    assert ok or finding.remedy


@pytest.mark.parametrize(
    ("replies", "bad"),
    [
        ((OK, ProbeResponse(404), OK), []),
        (
            (ProbeResponse(0, "timed out"), ProbeResponse(404), ProbeResponse(0, "timed out")),
            ["events and probes", "token"],
        ),
        ((ProbeResponse(503), OK, OK), ["events and probes"]),
        ((OK, ProbeResponse(0, "refused"), OK), ["gateway"]),
        ((OK, OK, ProbeResponse(401)), ["token"]),
    ],
)
def test_a_platform_that_does_not_answer_is_found(
    replies: tuple[ProbeResponse, ProbeResponse, ProbeResponse], bad: list[str]
) -> None:
    findings = doctor.check_responses(FACTS, *replies)

    assert [finding.check for finding in findings if not finding.ok] == bad
    assert all(finding.ok or finding.remedy for finding in findings)


def test_the_gateways_status_at_its_root_is_not_shown() -> None:
    findings = {finding.check: finding.message for finding in doctor.check_responses(FACTS, OK, ProbeResponse(404), OK)}

    assert findings["gateway"] == "127.0.0.1:8080 responds"
    assert findings["events and probes"] == "127.0.0.1:8081 responds with 200"


def test_help_and_doctor_name_the_ports_alike(knodel: Knodel) -> None:
    shown = " ".join(knodel("up", "--help").out.split())

    assert "Port N of the gateway [8080]; events and probes get N+1 [8081], the control API for kubectl N+2" in shown
    assert doctor.PORTS == ("gateway", "events and probes", "control API")


def test_a_platform_that_can_write_nothing_is_not_to_be_ended() -> None:
    [control, *others] = doctor.check_responses(FACTS, ProbeResponse(503), ProbeResponse(404), ProbeResponse(200))

    assert "its disk is not writable" in control.remedy
    assert "down" not in control.remedy
    assert all(finding.ok for finding in others)


def problems(done_out: str) -> dict[str, str]:
    """Return check → message for the problems in JSON output."""
    return {one["check"]: one["message"] for one in json.loads(done_out) if not one["ok"]}


@pytest.fixture(autouse=True)
def free_ports(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Set the ports in the settings to free ones."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(3)]
    for name, one in zip(("GATEWAY_PORT", "CONTROL_PORT", "CONTROL_TLS_PORT"), sockets, strict=True):
        monkeypatch.setenv(f"KNODEL_{name}", str(one.getsockname()[1]))
        one.close()


def test_an_engine_without_its_package_is_not_called_installed(knodel: Knodel, monkeypatch: pytest.MonkeyPatch) -> None:
    there = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "skops" else there(name))
    (message,) = [
        one["message"] for one in json.loads(knodel("doctor", "-o", "json").out) if one["check"] == "packages"
    ]
    assert "engines of onnx" in message and "not installed: sklearn" in message
    assert re.search(r"pip install 'knodel\[[a-z,]*sklearn\]'", message)


def test_a_machine_where_nothing_is_wrong_is_exit_code_0(knodel: Knodel, state: Path) -> None:
    done = knodel("doctor")

    assert (done.code, done.err) == (0, "")
    assert "PROBLEM" not in done.out
    assert not state.exists()


def test_a_stale_platform_file_is_found(knodel: Knodel, state: Path) -> None:
    announce(state, "127.0.0.1:9")

    done = knodel("doctor", "-o", "json")

    assert done.code == 1
    assert "has ended" in problems(done.out)["platform"]
    assert (state / "platform.json").exists()


def test_a_platform_that_has_the_folder_but_does_not_answer_is_found(knodel: Knodel, state: Path) -> None:
    announce(state, "127.0.0.1:9")
    with FolderLock(state):
        done = knodel("doctor", "-o", "json")

    assert {"events and probes", "gateway", "token"} <= problems(done.out).keys()


async def test_a_platform_that_answers_is_well(served: Served, state: Path) -> None:
    control = Facts.read(state)
    assert control is not None
    announce(state, control.control, control.control)
    done = await served.knodel("doctor")

    assert done.code == 0, done.out
    assert f"{control.control} responds with 200" in done.out


def test_a_damaged_copy_is_found_and_the_remedy_works_as_typed(knodel: Knodel, state: Path, tmp_path: Path) -> None:
    source, folder = tmp_path / "model.onnx", state / KEPT_FOLDER
    source.write_bytes(b"graph")
    digest = kept.keep(LocalPath(source), "m", "", folder, 1 << 20)
    copy = next((folder / "files").rglob("file"))
    copy.chmod(0o600)
    copy.write_bytes(b"evil!")
    done = knodel("doctor", "-o", "json", "--full")
    found = next(one for one in json.loads(done.out) if one["check"] == "kept copies")

    assert (done.code, found["ok"]) == (1, False)
    assert str(copy.parent) in found["message"]
    subprocess.run(shlex.split(found["remedy"].split("`")[1]), check=True)
    assert "kept copies" not in problems(knodel("doctor", "-o", "json").out)
    kept.keep(LocalPath(source), "m", digest, folder, 1 << 20)
    assert kept.is_intact(folder, LocalPath(source), "m", digest)


@pytest.mark.parametrize(
    ("uri", "place"),
    [
        ("https://models.test/a.onnx", ("models.test", 443)),
        ("http://[::1]:9000/a", ("::1", 9000)),
        ("oci://registry.test:5000/models/a:1", ("registry.test", 5000)),
    ],
)
def test_the_host_of_an_artifact_is_read_from_its_uri(uri: str, place: tuple[str, int]) -> None:
    assert model_doctor.artifact_hosts([model("a", storageUri=uri)]) == {place: ["default/a"]}


@pytest.mark.parametrize("uri", ["file:///a", "s3://bucket/a", "http://h:port/a", "http://[::1/a", "", "hf://org/a"])
def test_a_uri_that_names_no_host_of_its_own_is_left_alone(uri: str) -> None:
    assert model_doctor.artifact_hosts([model("a", storageUri=uri)]) == {}


async def test_what_is_wrong_with_deployed_models_is_found(
    served: Served, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        closed = server.getsockname()[1]
    control = Facts.read(state)
    assert control is not None
    announce(state, control.control, control.control)
    await served.deploy("iris", "--format", "paddle", "--uri", f"http://127.0.0.1:{closed}/iris")
    await served.deploy("odd", "--format", "onnx", "--uri", "https://a..b/m.onnx")
    await served.set_status("iris", {"conditions": [{"type": "Ready", "status": "False", "reason": "LoadFailed"}]})
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "paddle" else find_spec(name))
    done = await served.knodel("doctor", "-o", "json")

    assert done.code == 1
    found = problems(done.out)
    assert list(found) == ["models", "engines", "model stores"]
    assert "default/iris (LoadFailed)" in found["models"]
    assert "paddle (default/iris)" in found["engines"]
    assert f"127.0.0.1:{closed} (Connection refused; default/iris)" in found["model stores"]
    assert "a..b:443 (invalid host name; default/odd)" in found["model stores"]


def test_leftovers_are_found_and_left_alone(knodel: Knodel, state: Path) -> None:
    state.mkdir(mode=0o700)
    with marked(state, "pod"):
        done = knodel("doctor", "-o", "json")
        again = knodel("doctor", "-o", "json")

    assert problems(done.out)["processes"] == "running without a platform: pod"
    assert problems(again.out) == problems(done.out)


def test_a_port_that_is_taken_is_found_with_who_has_it(knodel: Knodel) -> None:
    port = int(os.environ["KNODEL_CONTROL_PORT"])
    with socket.create_server(("127.0.0.1", port)):
        done = knodel("doctor", "-o", "json")

    assert done.code == 1
    assert f"127.0.0.1:{port} is used by process {os.getpid()} (" in problems(done.out)["events and probes port"]


@pytest.mark.parametrize(
    ("content", "words"),
    [(b"my diary, not a database" * 100, "cluster.db"), (b"", "is empty"), (None, "is missing but its log")],
)
def test_a_store_that_cannot_be_used_is_found_and_not_touched(
    knodel: Knodel, state: Path, content: bytes | None, words: str
) -> None:
    state.mkdir(mode=0o700)
    if content is not None:
        (state / "cluster.db").write_bytes(content)
    (state / "cluster.db-wal").write_bytes(b"log")
    for path in state.iterdir():
        path.chmod(0o600)
    before = snapshot(state)

    done = knodel("doctor", "-o", "json")

    assert done.code == 1
    assert words in problems(done.out)["store"]
    assert "/knodel-doctor-" not in done.out
    assert snapshot(state) == before


async def test_a_store_that_a_killed_platform_left_is_read_with_its_log(knodel: Knodel, state: Path) -> None:
    state.mkdir(mode=0o700)
    store = Store.open(state / "cluster.db")
    left = {path.name: path.read_bytes() for path in state.glob("cluster.db*")}
    await store.close()
    for name, content in left.items():
        (state / name).write_bytes(content)
        (state / name).chmod(0o600)
    before = snapshot(state)

    assert knodel("doctor").code == 0
    assert snapshot(state) == before


def test_files_that_others_may_read_are_found(knodel: Knodel, state: Path) -> None:
    announce(state, "127.0.0.1:9")
    state.chmod(0o755)
    (state / "token").chmod(0o644)

    found = problems(knodel("doctor", "-o", "json").out)

    assert "accessible to others (0755)" in found["state folder"]
    assert str(state / "token") in found["secrets"]


def test_a_state_folder_that_is_a_file_is_found(knodel: Knodel, state: Path) -> None:
    state.write_text("")

    assert "state folder" in problems(knodel("doctor", "-o", "json").out)
    assert knodel("down").out.startswith("no platform runs")
    for verb, code in ((("up", "--detach"), 2), (("list",), 1)):  # the first takes the folder as its argument
        done = knodel(*verb)
        assert done.code == code
        assert str(state) in done.err
        assert "unexpected" not in done.err


def test_settings_that_are_refused_are_found(knodel: Knodel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KNODEL_GATEWAY_PROT", "1")

    assert "KNODEL_GATEWAY_PROT" in problems(knodel("doctor", "-o", "json").out)["settings"]


TABLE = """\
  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4711 1 0
   1: 0100007F:1F90 0100007F:C350 01 00000000:00000000 00:00000000 00000000     0        0 4712 1 0
   2: 0100007F:1F91 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4713 1 0
"""


def test_only_sockets_that_listen_on_the_port_are_counted() -> None:
    assert listening_inodes(TABLE, 8080) == ["4711"]
    assert listening_inodes("", 8080) == []


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_who_listens_is_found(host: str) -> None:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.create_server((host, 0), family=family) as server:
        port = server.getsockname()[1]
        assert is_taken(host, port)
        assert [listener.pid for listener in listeners(port)] == [os.getpid()]
    assert not is_taken(host, port)


def snapshot(folder: Path) -> dict[str, tuple[int, int, str]]:
    """Return mode, modification time and hash of every file."""
    return {
        path.name: (path.stat().st_mode, path.stat().st_mtime_ns, hashlib.sha256(path.read_bytes()).hexdigest())
        for path in sorted(folder.iterdir())
    }
