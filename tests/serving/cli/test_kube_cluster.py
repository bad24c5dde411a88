"""Test the parts of a real cluster: settings in a ConfigMap, ingress, Knative's sidecar, Events; with a script."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest
import yaml

from clusters.base.objects import MODEL, Object
from tests.serving.cli.conftest import Config, Knodel
from tests.serving.cli.kube import (
    CONFIG_PATH,
    CONTEXT,
    NOTHING,
    SETTINGS,
    FakeApi,
    Pki,
    Reply,
    Script,
    Seen,
    failure,
    fake_api,
)

HERE = ("--kube-context", CONTEXT)
ARTIFACT = "https://models.test/magika.onnx"
MODEL_PATH = "/apis/knodel.dev/v1alpha1/namespaces/default/models/magika"
REQUEST = '{"inputs": []}'


def cluster_with(
    *,
    port: int = 9,
    status: Object | None = None,
    settings: str | None = None,
    paths: Mapping[str, Reply] | None = None,
) -> Script:
    """Return a script for a cluster with Knodel's settings and the Model magika; `paths`: responses by path suffix."""
    text = SETTINGS.format(port=port) if settings is None else settings
    model = {
        "apiVersion": MODEL.api_version,
        "kind": MODEL.kind,
        "metadata": {"name": "magika", "namespace": "default", "uid": "u", "generation": 1, "resourceVersion": "1"},
        "spec": {"storageUri": ARTIFACT},
        "status": status or {},
    }

    def script(seen: Seen) -> Reply:
        for end, reply in (paths or {}).items():
            if seen.path.endswith(end):
                return reply
        if seen.path == CONFIG_PATH:
            return Reply(200, {"metadata": {"name": "knodel-config"}, "data": {"config.yaml": text}})
        if seen.path == MODEL_PATH:
            return Reply(200, model)
        return NOTHING

    return script


SERVED: Object = {
    "url": "http://magika.default.knodel.test",
    "traffic": [
        {"revision": "magika-00001", "percent": 100, "url": "http://magika.default.knodel.test"},
        {"revision": "magika-00002", "percent": 0, "tag": "blue", "url": "http://blue-magika.default.knodel.test"},
    ],
}


@pytest.mark.parametrize(
    ("given", "host"),
    [([], "magika.default.knodel.test"), (["--tag", "blue"], "blue-magika.default.knodel.test")],
)
def test_a_prediction_goes_to_the_ingress_of_the_settings_with_the_host_of_the_status(
    knodel: Knodel, api: FakeApi, ingress: FakeApi, config: Config, given: list[str], host: str
) -> None:
    api.script = cluster_with(port=ingress.port, status=SERVED)

    done = knodel("predict", "magika", "-d", REQUEST, *given, *HERE)

    assert (done.code, json.loads(done.out)) == (0, {"outputs": []}), done.err
    assert [(seen.method, seen.path, seen.headers["Host"]) for seen in ingress.seen] == [
        ("POST", "/v2/models/magika/infer", host)
    ]
    assert "Authorization" not in ingress.seen[0].headers


def test_a_chat_goes_to_the_ingress_with_the_host_of_the_status(
    knodel: Knodel, api: FakeApi, ingress: FakeApi, config: Config
) -> None:
    api.script = cluster_with(port=ingress.port, status=SERVED)
    completion = {"choices": [{"message": {"content": "Hello"}, "finish_reason": "stop"}]}
    ingress.script = lambda _: Reply(200, completion)

    done = knodel("chat", "magika", "hi", "--json", "--tag", "blue", *HERE)

    assert (done.code, done.value()) == (0, completion), done.err
    [seen] = ingress.seen
    assert (seen.path, seen.headers["Host"]) == ("/openai/v1/chat/completions", "blue-magika.default.knodel.test")


def test_a_load_goes_to_the_ingress_with_the_host_of_the_status(
    knodel: Knodel, api: FakeApi, ingress: FakeApi, config: Config, tmp_path: Path
) -> None:
    api.script = cluster_with(port=ingress.port, status=SERVED)
    ingress.script = lambda _: Reply(200, {"outputs": []}, headers={"Knodel-Revision": "magika-00001"})
    body = tmp_path / "body.json"
    body.write_text(REQUEST)

    done = knodel("bench", "magika", "--body", str(body), "--duration", "1s", "--tag", "blue", *HERE)

    assert done.code == 0, done.err
    assert done.out.splitlines()[1].split()[:2] == ["magika-00001", "infer"]
    assert {seen.headers["Host"] for seen in ingress.seen} == {"blue-magika.default.knodel.test"}
    assert ingress.seen[-1].path == "/v2/models/magika/infer"
    assert ingress.seen[-1].body == json.loads(REQUEST)


def test_a_model_with_a_tls_address_is_called_over_tls(knodel: Knodel, api: FakeApi, pki: Pki, config: Config) -> None:
    status = {"url": "https://magika.default.knodel.test"}
    with fake_api(lambda _: NOTHING, pki) as secure:
        api.script = cluster_with(port=secure.port, status=status)
        done = knodel("predict", "magika", "-d", REQUEST, *HERE)

    assert done.code == 1
    assert "is not trusted" in done.err  # nobody has told this machine of its authority


@pytest.mark.parametrize(
    ("status", "given", "code", "words"),
    [
        (SERVED, ["--tag", "green"], 3, "no version with the tag green: its tags are blue"),
        ({"url": "http://magika.default.svc.cluster.local"}, [], 1, "only from inside the cluster"),
        ({}, [], 1, "has no address: not ready yet"),
        (
            {"conditions": [{"type": "Ready", "status": "False", "reason": "RevisionFailed", "message": "no file"}]},
            [],
            1,
            "RevisionFailed: no file",
        ),
    ],
)
def test_a_model_that_cannot_be_called_is_an_error_with_the_reason(
    knodel: Knodel, api: FakeApi, config: Config, status: Object, given: list[str], code: int, words: str
) -> None:
    api.script = cluster_with(status=status)

    done = knodel("predict", "magika", "-d", REQUEST, *given, *HERE)

    assert (done.code, done.out) == (code, "")
    assert words in done.err


def test_who_may_not_read_the_settings_asks_the_host_of_the_model_itself(
    knodel: Knodel, api: FakeApi, ingress: FakeApi, config: Config
) -> None:
    refusal = failure(403, "Forbidden", 'User "ann" cannot get configmaps')
    status = {"url": f"http://localhost:{ingress.port}"}
    api.script = cluster_with(status=status, paths={"knodel-config": refusal})

    done = knodel("predict", "magika", "-d", REQUEST, *HERE)

    assert (done.code, json.loads(done.out)) == (0, {"outputs": []}), done.err

    api.script = cluster_with(status={"url": "http://localhost:9"}, paths={"knodel-config": refusal})
    done = knodel("predict", "magika", "-d", REQUEST, *HERE)

    assert done.code == 1
    assert "the ingress at localhost:9 does not respond" in done.err
    assert "Role knodel-config-reader in namespace knodel-system" in done.err


def test_timing_claims_nothing_that_knatives_activator_does_not_say(
    knodel: Knodel, api: FakeApi, ingress: FakeApi, config: Config
) -> None:
    api.script = cluster_with(port=ingress.port, status=SERVED)

    done = knodel("predict", "magika", "-d", REQUEST, "--timing", *HERE)

    assert done.err == "revision ?; no Server-Timing\n"


def test_an_ingress_that_is_gone_is_one_line(knodel: Knodel, api: FakeApi, config: Config) -> None:
    api.script = cluster_with(status=SERVED)

    done = knodel("predict", "magika", "-d", REQUEST, *HERE)

    assert done.code == 1
    assert "the ingress at 127.0.0.1:9 does not respond" in done.err
    assert len(done.err.splitlines()) == 1


def test_the_settings_of_the_cluster_are_printed_and_rendered_by(
    knodel: Knodel, api: FakeApi, config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    image = "dev.local/knodel-server:0.1.0"
    api.script = cluster_with(settings=f"server: {{image: {image}}}\n")
    monkeypatch.setenv("KNODEL_SERVER_IMAGE", "not-this-one")
    document = yaml.safe_dump({"apiVersion": MODEL.api_version, "kind": MODEL.kind, "metadata": {"name": "magika"},
                               "spec": {"storageUri": ARTIFACT}})  # fmt: skip

    assert knodel("config", *HERE).value()["server"]["image"] == image
    rendered = knodel("render", "-f", "-", *HERE, stdin=document).value()
    container = rendered["items"][0]["spec"]["template"]["spec"]["containers"][0]
    assert container["image"] == image


@pytest.mark.parametrize("verb", [["config"], ["doctor"], ["render", "-f", "-"]])
def test_a_settings_file_and_a_cluster_are_not_both_meant(
    knodel: Knodel, config: Config, tmp_path: Path, verb: list[str]
) -> None:
    (tmp_path / "settings.yaml").write_text("gateway: {port: 1}\n")

    done = knodel(*verb, "--config", str(tmp_path / "settings.yaml"), *HERE)

    assert done.code == 2
    assert "knodel-config" in done.err


@pytest.mark.parametrize(("settings", "words"), [("gateway: {port: x}", "gateway.port"), ("[", "ConfigMap")])
def test_settings_that_are_not_understood_are_named(
    knodel: Knodel, api: FakeApi, config: Config, settings: str, words: str
) -> None:
    api.script = cluster_with(settings=settings)

    done = knodel("config", *HERE)

    assert done.code == 1
    assert "knodel-config" in done.err
    assert words in done.err


def test_settings_that_the_caller_may_not_read_are_named(knodel: Knodel, api: FakeApi, config: Config) -> None:
    api.script = cluster_with(paths={"knodel-config": failure(403, "Forbidden", 'User "ann" cannot get configmaps')})

    done = knodel("config", *HERE)

    assert done.code == 1
    assert 'User "ann" cannot get configmaps' in done.err


def pod(name: str, *, state: Object, restarts: int = 0, phase: str = "Running") -> Object:
    """Return a Pod of a Revision, with Knative's sidecar beside the model server."""
    statuses = [
        {"name": "queue-proxy", "state": {"running": {}}},
        {"name": "server", "restartCount": restarts, "state": state},
    ]
    return {
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"containers": [{"name": "queue-proxy"}, {"name": "server"}]},
        "status": {"phase": phase, "containerStatuses": statuses},
    }


GONE = failure(404, "NotFound", 'models "magika" not found')
RUNNING: Object = {"running": {}}
PULLING: Object = {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}
CRASHED: Object = {"waiting": {"reason": "CrashLoopBackOff"}}


def test_previous_prints_the_log_of_the_container_before_its_restart(
    knodel: Knodel, api: FakeApi, config: Config
) -> None:
    pods = Reply(200, {"items": [pod("a", state=CRASHED, restarts=3)]})
    api.script = cluster_with(paths={"/pods": pods, "/log": Reply(200, text="line\n")})

    assert knodel("logs", "magika", *HERE).out == "line\n"
    assert knodel("logs", "magika", "--previous", "--tail", "5", *HERE).out == "line\n"

    queries = [seen.query for seen in api.seen if seen.path.endswith("/log")]
    assert queries == [{"container": "server"}, {"container": "server", "previous": "true", "tailLines": "5"}]


@pytest.mark.parametrize("follow", [[], ["-f"]])
def test_a_replica_that_has_not_started_is_reported_beside_other_logs(
    knodel: Knodel, api: FakeApi, config: Config, follow: list[str]
) -> None:
    items = [pod("a", state=RUNNING), pod("b", state=PULLING, phase="Pending"), pod("c", state=RUNNING)]
    present = cluster_with(paths={"/pods": Reply(200, {"items": items}), "/log": Reply(200, text="line\n")})
    asked = {"logs": 0}

    def script(seen: Seen) -> Reply:
        """The Model exists until both logs were read."""
        asked["logs"] += seen.path.endswith("/log")
        if follow and asked["logs"] >= 2 and not seen.path.endswith("/log"):
            return Reply(200, {"items": []}) if seen.path.endswith("/pods") else GONE
        return present(seen)

    api.script = script

    done = knodel("logs", "magika", *follow, *HERE)

    assert done.code == 0
    assert sorted(done.out.splitlines()) == ["[a] line", "[c] line"]
    assert done.err == "replica b has not started: ImagePullBackOff: no such image\n"


def test_a_replica_without_a_node_has_the_reason_instead_of_a_log(knodel: Knodel, api: FakeApi, config: Config) -> None:
    unscheduled = pod("a", state={}, phase="Pending")
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1 nodes"}
    unscheduled["status"] = {"phase": "Pending", "conditions": [condition]}
    api.script = cluster_with(paths={"/pods": Reply(200, {"items": [unscheduled]})})

    done = knodel("logs", "magika", *HERE)

    assert (done.code, done.out) == (1, "")
    assert "replica a has not started: Unschedulable: 0/1 nodes" in done.err


OOM: Object = {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}
NO_FILE: Object = {"terminated": {"exitCode": 1, "reason": "Error", "message": "the server answered 404\n"}}
CREATING: Object = {"waiting": {"reason": "ContainerCreating"}}
NO_NODE: Object = {"conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]}


@pytest.mark.parametrize(
    ("state", "last", "said"),
    [
        (OOM, {}, ["replica a ended with exit code 137 (OOMKilled)"]),
        (CRASHED, NO_FILE, ["replica a ended with exit code 1: the server answered 404"]),
        (PULLING, {}, ["replica a has not started: ImagePullBackOff: no such image"]),
        (CREATING, {}, []),
        (RUNNING, {}, []),
    ],
)
def test_a_wait_that_ends_in_time_and_an_explanation_say_what_the_replicas_died_of(
    knodel: Knodel, api: FakeApi, config: Config, state: Object, last: Object, said: list[str]
) -> None:
    made = pod("a", state=state)
    made["status"]["containerStatuses"][1]["lastState"] = last
    condition = {"type": "Ready", "status": "Unknown", "reason": "Deploying", "message": "magika-00001"}
    status = {"observedGeneration": 1, "conditions": [condition]}
    api.script = cluster_with(status=status, paths={"/pods": Reply(200, {"items": [made]})})

    waited = knodel("wait", "magika", "--timeout", "0s", *HERE)
    explained = knodel("explain", "magika", *HERE)

    words = "; ".join(["Deploying: magika-00001", *said])
    assert (waited.code, waited.err) == (4, f"knodel: model magika was not ready within 0 s: {words}\n")
    assert [line.strip() for line in explained.out.splitlines() if "replica " in line][1:] == said
    assert "Traffic: none" in explained.out


@pytest.mark.fault("A11")
def test_explain_prints_why_another_replica_does_not_start(knodel: Knodel, api: FakeApi, config: Config) -> None:
    homeless = pod("b", state={}, phase="Pending")
    homeless["status"] = NO_NODE
    items = {"items": [pod("a", state=RUNNING), homeless, pod("evicted", state=OOM, phase="Failed")]}
    status = {"observedGeneration": 1, "conditions": [{"type": "Ready", "status": "True"}]}
    api.script = cluster_with(status=status, paths={"/pods": Reply(200, items)})

    done = knodel("explain", "magika", *HERE)

    assert "  replica b has no node: Unschedulable" in done.out.splitlines()
    assert "replica a" not in done.out
    assert "evicted" not in done.out


def test_replicas_that_may_not_be_seen_hide_nothing_else(knodel: Knodel, api: FakeApi, config: Config) -> None:
    refusal = failure(403, "Forbidden", 'User "ann" cannot list pods')
    api.script = cluster_with(paths={"/pods": refusal})

    done = knodel("wait", "magika", "--timeout", "0s", *HERE)

    assert done.err == "knodel: model magika was not ready within 0 s: waiting for its first status\n"


def test_a_replica_without_a_node_and_the_newest_come_first(knodel: Knodel, api: FakeApi, config: Config) -> None:
    old, new = pod("old", state=OOM), pod("new", state={})
    old["metadata"]["creationTimestamp"], new["metadata"]["creationTimestamp"] = "2026-01-01", "2026-01-02"
    new["status"] = NO_NODE
    api.script = cluster_with(paths={"/pods": Reply(200, {"items": [old, new]})})

    done = knodel("wait", "magika", "--timeout", "0s", *HERE)

    assert "first status; replica new has no node: Unschedulable; replica old ended with exit code 137" in done.err


@pytest.mark.bad_input("command-options")
@pytest.mark.parametrize("name", ["magika/status", "a/../b", "..", "a%2fstatus"])
@pytest.mark.parametrize("verb", ["get", "delete", "explain"])
def test_a_name_never_becomes_the_path_of_something_else(
    knodel: Knodel, api: FakeApi, config: Config, verb: str, name: str
) -> None:
    done = knodel(verb, name, *HERE)

    assert (done.code, api.seen) == (3, []), done.err
    assert "a name cannot contain / or %" in done.err


@pytest.mark.bad_input("object-references")
def test_a_file_of_another_namespace_than_the_one_named_is_refused(
    knodel: Knodel, api: FakeApi, config: Config, tmp_path: Path
) -> None:
    file = tmp_path / "model.yaml"
    file.write_text(f"{{apiVersion: {MODEL.api_version}, kind: Model, metadata: {{name: m, namespace: a}}}}")

    done = knodel("deploy", "-f", str(file), "-n", "b", *HERE)

    assert (done.code, api.seen) == (2, [])
    assert "has model m in namespace a, not b" in done.err


def test_events_are_selected_by_the_uid_of_their_object(knodel: Knodel, api: FakeApi, config: Config) -> None:
    event = {
        "metadata": {"name": "e", "creationTimestamp": "2026-01-01T00:00:00Z"},
        "lastTimestamp": None,
        "eventTime": "2026-01-01T00:00:00.000000Z",
        "type": "Normal",
        "reason": "Promoted",
        "message": "all traffic",
    }
    api.script = cluster_with(paths={"/events": Reply(200, {"items": [event]})})

    done = knodel("describe", "magika", *HERE)

    assert (done.code, done.err) == (0, "")
    assert "Promoted" in done.out
    assert [seen.query for seen in api.seen if seen.path.endswith("/events")] == [
        {"fieldSelector": "involvedObject.uid=u"}
    ]
