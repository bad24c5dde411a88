"""Every verb through a kubeconfig, against a real control API over TLS; what only Kubernetes has, against a script."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from clusters.clock import SystemClock
from clusters.objects import KINDS, MODEL, NAMESPACE, Object
from serving.api.app import ControlApi
from serving.api.guard import Guard
from serving.api.server import listen, make_server
from serving.api.tls import ensure_certificate
from serving.api.tls import kubeconfig as platform_kubeconfig
from serving.apis.state import KUBECONFIG_FILE
from serving.apis.version import VERSION
from serving.cli.main import VERBS
from tests.serving.cli.conftest import Config, Done, Knodel, NoLogs, Served
from tests.serving.cli.kube import CONTEXT, NOTHING, TOKEN, FakeApi, Pki, Reply, Seen, failure, fake_api
from tests.serving.cli.test_models import STATUS, add_pod, put_in_force

HERE = ("--kube-context", CONTEXT)
ARTIFACT = "https://models.test/magika.onnx"
SETTINGS = "gateway: {{address: 127.0.0.1, port: {port}, domain: knodel.test}}\n"
CONFIG_PATH = "/api/v1/namespaces/knodel-system/configmaps/knodel-config"
MODEL_PATH = "/apis/knodel.dev/v1alpha1/namespaces/default/models/magika"
REQUEST = '{"inputs": []}'


class OverTls(Served):
    """A control API over TLS, and the command on it by the context `knodel` of the kubeconfig in its state folder."""

    async def knodel(self, *arguments: str, stdin: str = "") -> Done:
        """Run one command to its end, beside the API."""
        return await super().knodel(*arguments, "--kube-context", "knodel", stdin=stdin)

    async def deploy(self, name: str, *options: str) -> None:
        """Store a Model."""
        done = await self.knodel("deploy", name, "--uri", ARTIFACT, "--no-wait", *options)
        assert done.code == 0, done.err


@pytest.fixture
async def tls(served: Served, state: Path, knodel: Knodel, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[OverTls]:
    """The control API of `served` over TLS too, with its kubeconfig, as `knodel up` leaves it."""
    authority, certificate, key = ensure_certificate(state / "tls", datetime.now(UTC))
    api = ControlApi(
        served.cluster, kinds=KINDS, writable={MODEL, NAMESPACE}, logs=NoLogs(), clock=SystemClock(), version="0",
        ready=lambda: True,
    )  # fmt: skip
    sock = listen("127.0.0.1", 0, "--control-port")
    url = f"https://127.0.0.1:{sock.getsockname()[1]}"
    (state / KUBECONFIG_FILE).write_text(platform_kubeconfig(url, authority.read_bytes(), TOKEN))
    monkeypatch.setenv("KUBECONFIG", str(state / KUBECONFIG_FILE))
    server = make_server(api.app(Guard(TOKEN, frozenset({"127.0.0.1"}))), (certificate, key))
    serving = asyncio.create_task(server.serve(sockets=[sock]))
    yield OverTls(served.cluster, knodel)
    for one in server.servers:
        one.close()
    serving.cancel()
    await asyncio.gather(serving, return_exceptions=True)


@pytest.fixture
async def magika(tls: OverTls) -> OverTls:
    """A Model with two versions and a replica."""
    await tls.deploy("magika")
    await tls.add_revision("magika", "magika-00001")
    await tls.add_revision("magika", "magika-00002")
    await tls.set_status("magika", STATUS)
    return tls


@pytest.mark.parametrize(
    ("verb", "words"),
    [
        ("list", ["magika", "True", "1/2"]),
        ("list -A", ["NAMESPACE", "default", "magika"]),
        ("get magika", ["FIELD", "1/2", ARTIFACT]),
        ("describe magika", ["Conditions:", "10 %", "blue", "Versions:", "Events:"]),
        ("history magika", ["magika-00001", "serving", "user"]),
        ("explain magika", ["the latest ready version", "1 → 2", "8 requests at once"]),
        ("wait magika", ["model magika is ready at http://magika.default.localhost:8080"]),
        ("namespace team", ["team"]),
    ],
)
async def test_a_model_is_shown_as_on_this_machine(magika: OverTls, verb: str, words: list[str]) -> None:
    done = await magika.knodel(*verb.split())

    assert (done.code, done.err) == (0, "")
    assert all(word in done.out for word in words), done.out


@pytest.mark.parametrize("verb", ["get magika", "describe magika", "history magika", "explain magika", "wait magika"])
async def test_structured_output_is_the_object_itself(magika: OverTls, verb: str) -> None:
    done = await magika.knodel(*verb.split(), "-o", "json")

    assert json.loads(done.out) == await magika.model("magika")


async def test_a_replicas_log_is_printed(magika: OverTls) -> None:
    await add_pod(magika, "magika")

    assert (await magika.knodel("logs", "magika")).out == "first\nsecond \x1b[31mred\n"


async def test_a_deploy_changes_what_is_named_and_a_diff_shows_it_before(magika: OverTls) -> None:
    before = await magika.model("magika")
    document = yaml.safe_dump({**{key: before[key] for key in ("apiVersion", "kind")},
                               "metadata": {"name": "magika"}, "spec": {"minReplicas": 2}})  # fmt: skip

    diff = await magika.knodel("diff", "-f", "-", stdin=document)
    untouched = await magika.model("magika")
    done = await magika.knodel("deploy", "-f", "-", "--no-wait", stdin=document)

    assert (diff.code, done.code) == (1, 0), done.err
    assert "+  minReplicas: 2" in diff.out
    assert untouched == before
    assert (await magika.model("magika"))["spec"] == {"storageUri": ARTIFACT, "minReplicas": 2}


async def test_the_split_is_changed_pinned_and_lifted(magika: OverTls) -> None:
    for arguments, traffic in (
        (("traffic", "magika", "magika-00001=20", "latest=80"), 2),
        (("rollback", "magika", "--to", "magika-00001"), 1),
        (("promote", "magika"), 0),
    ):
        done, _ = await asyncio.gather(magika.knodel(*arguments, "--timeout", "10s"), put_in_force(magika))
        assert done.code == 0, done.err
        assert len((await magika.model("magika"))["spec"].get("traffic", [])) == traffic


async def test_an_unknown_revision_is_refused_as_on_this_machine(magika: OverTls, served: Served) -> None:
    pinned = {"revision": "magika-00009", "percent": 100}
    document = yaml.safe_dump({"apiVersion": MODEL.api_version, "kind": MODEL.kind, "metadata": {"name": "magika"},
                               "spec": {"storageUri": ARTIFACT, "traffic": [pinned]}})  # fmt: skip

    there = await magika.knodel("deploy", "-f", "-", stdin=document)
    here = await served.knodel("deploy", "-f", "-", stdin=document)

    assert (there.code, there.out) == (2, "")
    assert there == here


async def test_a_model_is_deleted(magika: OverTls) -> None:
    done = await magika.knodel("delete", "magika", "--timeout", "10s")

    assert (done.code, done.out) == (0, "model magika deleted\n")


@pytest.mark.parametrize("arguments", [("get", "nobody"), ("delete", "nobody"), ("logs", "magika")])
async def test_what_does_not_exist_is_exit_code_3(magika: OverTls, arguments: tuple[str, ...]) -> None:
    assert (await magika.knodel(*arguments)).code == 3


@pytest.mark.parametrize("arguments", [("config",), ("predict", "magika", "-d", REQUEST), ("render", "-f", "-")])
async def test_without_knodels_settings_their_absence_is_named(magika: OverTls, arguments: tuple[str, ...]) -> None:
    done = await magika.knodel(*arguments, stdin=yaml.safe_dump(await magika.model("magika")))

    assert (done.code, done.out) == (1, "")
    assert "knodel install --kube-context knodel" in done.err


def cluster_with(*, port: int = 9, status: Object | None = None, settings: str | None = None, **paths: Reply) -> Any:
    """A script: a cluster with Knodel's settings and the Model magika; `paths` are answers by the end of a path."""
    text = SETTINGS.format(port=port) if settings is None else settings
    model = {
        "apiVersion": MODEL.api_version,
        "kind": MODEL.kind,
        "metadata": {"name": "magika", "namespace": "default", "uid": "u", "generation": 1, "resourceVersion": "1"},
        "spec": {"storageUri": ARTIFACT},
        "status": status or {},
    }

    def script(seen: Seen) -> Reply:
        for end, reply in paths.items():
            if seen.path.endswith(end):
                return reply
        if seen.path == CONFIG_PATH:
            return Reply(200, {"metadata": {"name": "knodel-config"}, "data": {"config.yaml": text}})
        if seen.path == MODEL_PATH:
            return Reply(200, model)
        return NOTHING

    return script


@pytest.fixture
def ingress() -> Iterator[FakeApi]:
    """An ingress that answers every host."""
    with fake_api(lambda _: Reply(200, {"outputs": []}), None) as running:
        yield running


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


def test_a_model_with_a_tls_address_is_asked_over_tls(knodel: Knodel, api: FakeApi, pki: Pki, config: Config) -> None:
    status = {"url": "https://magika.default.knodel.test"}
    with fake_api(lambda _: NOTHING, pki) as secure:
        api.script = cluster_with(port=secure.port, status=status)
        done = knodel("predict", "magika", "-d", REQUEST, *HERE)

    assert done.code == 1
    assert "is not trusted" in done.err  # nobody has told this machine of its authority


@pytest.mark.parametrize(
    ("status", "given", "code", "words"),
    [
        (SERVED, ["--tag", "green"], 3, "no version with the tag green; tags: blue"),
        ({"url": "http://magika.default.svc.cluster.local"}, [], 1, "from inside the cluster alone"),
        ({}, [], 1, "has no address: not ready yet"),
        (
            {
                "conditions": [
                    {"type": "Ready", "status": "False", "reason": "RevisionFailed", "message": "no such file"}
                ]
            },
            [],
            1,
            "RevisionFailed: no such file",
        ),
    ],
)
def test_a_model_that_cannot_be_asked_says_why(
    knodel: Knodel, api: FakeApi, config: Config, status: Object, given: list[str], code: int, words: str
) -> None:
    api.script = cluster_with(status=status)

    done = knodel("predict", "magika", "-d", REQUEST, *given, *HERE)

    assert (done.code, done.out) == (code, "")
    assert words in done.err


def test_an_ingress_that_is_gone_is_one_line(knodel: Knodel, api: FakeApi, config: Config) -> None:
    api.script = cluster_with(status=SERVED)

    done = knodel("predict", "magika", "-d", REQUEST, *HERE)

    assert done.code == 1
    assert "the ingress at 127.0.0.1:9 does not answer" in done.err
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
    api.script = cluster_with(**{"knodel-config": failure(403, "Forbidden", 'User "ann" cannot get configmaps')})

    done = knodel("config", *HERE)

    assert done.code == 1
    assert 'User "ann" cannot get configmaps' in done.err


def pod(name: str, *, state: Object, restarts: int = 0, phase: str = "Running") -> Object:
    """A Pod of a Revision, with Knative's proxy beside the model."""
    statuses = [
        {"name": "queue-proxy", "state": {"running": {}}},
        {"name": "server", "restartCount": restarts, "state": state},
    ]
    return {
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"containers": [{"name": "queue-proxy"}, {"name": "server"}]},
        "status": {"phase": phase, "containerStatuses": statuses},
    }


RUNNING: Object = {"running": {}}
PULLING: Object = {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}
CRASHED: Object = {"waiting": {"reason": "CrashLoopBackOff"}}


def test_the_log_is_of_the_models_container_and_of_the_run_before_when_asked(
    knodel: Knodel, api: FakeApi, config: Config
) -> None:
    pods = Reply(200, {"items": [pod("a", state=CRASHED, restarts=3)]})
    api.script = cluster_with(**{"/pods": pods, "/log": Reply(200, text="line\n")})

    assert knodel("logs", "magika", *HERE).out == "line\n"
    assert knodel("logs", "magika", "--previous", "--tail", "5", *HERE).out == "line\n"

    queries = [seen.query for seen in api.seen if seen.path.endswith("/log")]
    assert queries == [{"container": "server"}, {"container": "server", "previous": "true", "tailLines": "5"}]


@pytest.mark.parametrize("follow", [[], ["-f"]])
def test_a_replica_that_has_not_started_is_told_beside_the_logs_of_the_others(
    knodel: Knodel, api: FakeApi, config: Config, follow: list[str]
) -> None:
    items = [pod("a", state=RUNNING), pod("b", state=PULLING, phase="Pending"), pod("c", state=RUNNING)]
    api.script = cluster_with(**{"/pods": Reply(200, {"items": items}), "/log": Reply(200, text="line\n")})

    done = knodel("logs", "magika", *follow, *HERE)

    assert done.code == 0
    assert sorted(done.out.splitlines()) == ["[a] line", "[c] line"]
    assert done.err == "replica b has not started: ImagePullBackOff: no such image\n"


def test_a_replica_that_no_node_takes_says_why_it_has_no_log(knodel: Knodel, api: FakeApi, config: Config) -> None:
    unscheduled = pod("a", state={}, phase="Pending")
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1 nodes"}
    unscheduled["status"] = {"phase": "Pending", "conditions": [condition]}
    api.script = cluster_with(**{"/pods": Reply(200, {"items": [unscheduled]})})

    done = knodel("logs", "magika", *HERE)

    assert (done.code, done.out) == (1, "")
    assert "replica a has not started: Unschedulable: 0/1 nodes" in done.err


def test_events_are_asked_for_by_the_object_that_they_are_about(knodel: Knodel, api: FakeApi, config: Config) -> None:
    event = {
        "metadata": {"name": "e", "creationTimestamp": "2026-01-01T00:00:00Z"},
        "lastTimestamp": None,
        "eventTime": "2026-01-01T00:00:00.000000Z",
        "type": "Normal",
        "reason": "Promoted",
        "message": "all traffic",
    }
    api.script = cluster_with(**{"/events": Reply(200, {"items": [event]})})

    done = knodel("describe", "magika", *HERE)

    assert (done.code, done.err) == (0, "")
    assert "Promoted" in done.out
    assert [seen.query for seen in api.seen if seen.path.endswith("/events")] == [
        {"fieldSelector": "involvedObject.uid=u"}
    ]


def deployment(name: str, *, available: bool = True, image: str = f"knodel.dev/controller:{VERSION}") -> Object:
    """A Deployment with its condition."""
    condition = {"type": "Available", "status": str(available), "message": "no Pod is ready"}
    return {
        "metadata": {"name": name},
        "spec": {"template": {"spec": {"containers": [{"image": image}]}}},
        "status": {"conditions": [condition]},
    }


class Lab:
    """A cluster as `doctor` looks at it; its parts can be broken."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.denied: tuple[str, str] = ("", "")
        self.groups = {"serving.knative.dev/v1": ["revisions"], "knodel.dev/v1alpha1": ["models"]}
        self.deployments: dict[str, list[Object] | Reply] = {
            "knative-serving": [deployment(name) for name in ("controller", "webhook", "activator", "autoscaler")],
            "knodel-system": [deployment("knodel-controller"), deployment("knodel-autoscaler")],
        }
        self.features: dict[str, str] = {"tag-header-based-routing": "enabled"}
        self.minor = "35"

    def __call__(self, seen: Seen) -> Reply:
        words = seen.path.strip("/").split("/")
        if seen.path == "/version":
            return Reply(200, {"major": "1", "minor": self.minor, "gitVersion": f"v1.{self.minor}.0"})
        if words[-1] == "selfsubjectaccessreviews":
            asked = seen.body["spec"]["resourceAttributes"]
            return Reply(201, {"status": {"allowed": (asked["verb"], asked["resource"]) != self.denied}})
        if words[-1] == "deployments":
            found = self.deployments[words[4]]
            return found if isinstance(found, Reply) else Reply(200, {"items": found})
        if words[-1].startswith("config-"):
            return Reply(200, {"metadata": {"name": words[-1]}, "data": self.features})
        if seen.path == CONFIG_PATH:
            data = {"config.yaml": SETTINGS.format(port=self.port)}
            return Reply(200, {"metadata": {"name": "knodel-config"}, "data": data})
        known = self.groups.get("/".join(words[1:]))
        if known is None:
            return Reply(404, text="404 page not found\n")
        return Reply(200, {"resources": [{"name": name} for name in known]})


@pytest.fixture
def lab(api: FakeApi, ingress: FakeApi, config: Config) -> Lab:
    """A cluster on which all is well."""
    made = Lab(ingress.port)
    api.script = made
    return made


def problems(done: Done) -> dict[str, Object]:
    """Check → finding, of those that are not ok."""
    return {finding["check"]: finding for finding in json.loads(done.out) if not finding["ok"]}


def test_a_cluster_on_which_all_is_well_has_no_problem(knodel: Knodel, lab: Lab, api: FakeApi) -> None:
    done = knodel("doctor", "-o", "json", *HERE)

    assert (done.code, problems(done)) == (0, {})
    assert {seen.method for seen in api.seen} == {"GET", "POST"}
    assert all(seen.path.endswith("selfsubjectaccessreviews") for seen in api.seen if seen.method == "POST")
    assert "Kubernetes" in knodel("doctor", *HERE).out


@pytest.mark.parametrize(
    ("breaking", "check", "words"),
    [
        (lambda lab: setattr(lab, "minor", "30+"), "Kubernetes", "upgrade"),
        (lambda lab: setattr(lab, "denied", ("patch", "models")), "rights", "patch models.knodel.dev (deploy, traffic"),
        (lambda lab: setattr(lab, "denied", ("get", "pods")), "rights", "get pods/log (logs)"),
        (lambda lab: lab.groups.pop("serving.knative.dev/v1"), "Knative Serving", "install Knative Serving"),
        (lambda lab: lab.groups.pop("knodel.dev/v1alpha1"), "Model", "knodel install --kube-context lab"),
        (lambda lab: lab.deployments["knative-serving"].pop(), "Knative's Deployments", "no Deployment autoscaler"),
        (
            lambda lab: lab.deployments.update({"knodel-system": [deployment("knodel-controller", available=False)]}),
            "Knodel",
            "knodel-controller (no Pod is ready)",
        ),
        (lambda lab: lab.deployments.update({"knodel-system": []}), "Knodel", "knodel install"),
        (
            lambda lab: lab.deployments.update({"knodel-system": [deployment("knodel-controller", image="x/y:9.9")]}),
            "version",
            "the cluster runs 9.9",
        ),
        (lambda lab: lab.features.clear(), "Knative's tag-header-based-routing", "ConfigMap config-features"),
        (
            lambda lab: lab.features.update({"kubernetes.podspec-volumes-emptydir": "disabled"}),
            "Knative's kubernetes.podspec-volumes-emptydir",
            "scratch",
        ),
        (lambda lab: setattr(lab, "port", 9), "ingress", "gateway.address"),
        (lambda lab: setattr(lab, "port", 0), "settings", "correct it"),
    ],
)
def test_what_is_wrong_with_a_cluster_has_its_remedy(
    knodel: Knodel, lab: Lab, breaking: Any, check: str, words: str
) -> None:
    breaking(lab)

    done = knodel("doctor", "-o", "json", *HERE)

    found = problems(done)
    assert (done.code, list(found)) == (1, [check])
    assert found[check]["remedy"]
    assert words in f"{found[check]['message']} {found[check]['remedy']}"


def test_what_the_caller_may_not_see_is_no_problem_and_is_said(knodel: Knodel, lab: Lab) -> None:
    refusal = failure(403, "Forbidden", 'User "ann" cannot list deployments')
    lab.deployments = {"knative-serving": refusal, "knodel-system": refusal}

    done = knodel("doctor", "-o", "json", *HERE)

    assert problems(done) == {}
    assert done.out.count('not seen: User \\"ann\\" cannot list deployments') == 2


@pytest.mark.parametrize("reply", [failure(401, "Unauthorized", "Unauthorized"), Reply(502, text="<html>")])
def test_an_api_server_that_does_not_answer_well_is_the_only_finding(
    knodel: Knodel, api: FakeApi, config: Config, reply: Reply
) -> None:
    api.script = lambda _: reply

    done = knodel("doctor", "-o", "json", *HERE)

    assert done.code == 1
    assert list(problems(done)) == ["API server"]
    assert problems(done)["API server"]["remedy"]


def test_a_certificate_that_is_not_trusted_is_a_finding(knodel: Knodel, pki: Pki, config: Config) -> None:
    config(**{"certificate-authority": str(pki.stranger)})

    done = knodel("doctor", "-o", "json", *HERE)

    assert "certificate-authority" in problems(done)["API server"]["remedy"]


def test_every_verb_of_the_cluster_is_seen_here_or_has_tests_of_its_own() -> None:
    seen = {
        "deploy", "list", "get", "describe", "delete", "history", "logs", "wait", "predict", "traffic", "promote",
        "rollback", "explain", "render", "diff", "namespace", "config", "doctor",
    }  # fmt: skip

    assert set(VERBS) - seen == {"up", "down", "serve", "completion"} | ({"install", "uninstall"} & set(VERBS))
