"""Test every verb with a kubeconfig, on a real control API over TLS: the results are those of a local platform."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
import yaml

from clusters.base.clock import SystemClock
from clusters.base.objects import CONFIG_MAP, KINDS, MODEL, NAMESPACE, SECRET, WARM_POOL
from clusters.embedded.store.secrets import values_of
from serving.cli.base.output import without_managed_fields
from serving.cli.main import VERBS
from serving.control_api.app import ControlApi
from serving.control_api.guard import Guard
from serving.control_api.server import listen, make_server
from serving.control_api.tls import ensure_certificate
from serving.control_api.tls import kubeconfig as platform_kubeconfig
from serving.types.settings.state import KUBECONFIG_FILE
from tests.serving.cli.conftest import Done, Knodel, NoLogs, Served
from tests.serving.cli.kube import TOKEN
from tests.serving.cli.test_models import STATUS, add_pod, put_in_force
from tests.serving.cli.test_rollout import becomes, rolling

ARTIFACT = "https://models.test/magika.onnx"
REQUEST = '{"inputs": []}'


class OverTls(Served):
    """A control API over TLS, and the command with the context `knodel` of the kubeconfig in its state folder."""

    async def knodel(self, *arguments: str, stdin: str = "") -> Done:
        """Run one command to its end, while the API runs."""
        return await super().knodel(*arguments, "--kube-context", "knodel", stdin=stdin)

    async def deploy(self, name: str, *options: str) -> None:
        """Deploy a Model."""
        done = await self.knodel("deploy", name, "--uri", ARTIFACT, "--no-wait", *options)
        assert done.code == 0, done.err


@pytest.fixture
async def tls(served: Served, state: Path, knodel: Knodel, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[OverTls]:
    """Serve the control API of `served` also over TLS, with a kubeconfig like that of `knodel up`."""
    authority, certificate, key = ensure_certificate(state / "tls", datetime.now(UTC))
    api = ControlApi(
        served.cluster, kinds=KINDS, writable={MODEL, WARM_POOL, NAMESPACE, SECRET, CONFIG_MAP},
        logs=NoLogs(), clock=SystemClock(),
        version="0", ready=lambda: True,
    )  # fmt: skip
    sock = listen("127.0.0.1", 0, "--control-port")
    url = f"https://127.0.0.1:{sock.getsockname()[1]}"
    (state / KUBECONFIG_FILE).write_text(platform_kubeconfig(url, authority.read_bytes(), TOKEN))
    monkeypatch.setenv("KUBECONFIG", str(state / KUBECONFIG_FILE))
    server = make_server(api.app(Guard(TOKEN, frozenset({"127.0.0.1"}))), (certificate, key))
    serving = asyncio.create_task(server.serve(sock))
    yield OverTls(served.cluster, knodel)
    serving.cancel()
    await asyncio.gather(serving, return_exceptions=True)


@pytest.fixture
async def magika(tls: OverTls) -> OverTls:
    """Deploy a Model with two versions and a replica."""
    await tls.deploy_two_versions("magika", STATUS)
    return tls


@pytest.mark.parametrize(
    ("verb", "words"),
    [
        ("list", ["magika", "True", "1/2"]),
        ("list -A", ["NAMESPACE", "default", "magika"]),
        ("get magika", ["FIELD", "1/2", "https://models.test/magika"]),
        ("describe magika", ["Conditions:", "10 %", "blue", "Versions:", "Events:"]),
        ("history magika", ["magika-00001", "serving", "user"]),
        ("explain magika", ["the latest ready version", "1 → 2", "8 requests at once"]),
        ("wait magika", ["model magika is ready at http://magika.default.localhost:8080"]),
        ("top", ["MODEL", "(POD-HOURS)", "no prices are set"]),
        ("namespace team", ["team"]),
        ("status", ["Cluster:  knodel, Kubernetes v1.", "Models:   1 ready"]),
        ("restart magika", ["model magika has no replicas"]),
    ],
)
async def test_a_model_is_shown_as_on_this_machine(magika: OverTls, verb: str, words: list[str]) -> None:
    done = await magika.knodel(*verb.split())

    assert (done.code, done.err) == (0, "")
    assert all(word in done.out for word in words), done.out


@pytest.mark.parametrize("verb", ["get magika", "describe magika", "history magika", "explain magika", "wait magika"])
async def test_structured_output_is_the_object_itself(magika: OverTls, verb: str) -> None:
    done = await magika.knodel(*verb.split(), "-o", "json")

    assert json.loads(done.out) == without_managed_fields(await magika.model("magika"))


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


async def test_a_rollout_is_paused_resumed_and_aborted(magika: OverTls) -> None:
    for verb, phase in (("pause", "Paused"), ("resume", "Progressing"), ("abort", "RolledBack")):
        await magika.set_status("magika", {**STATUS, "rollout": rolling("Progressing")})
        done, _ = await asyncio.gather(magika.knodel(verb, "magika", "--timeout", "10s"), becomes(magika, phase))
        assert done.code == 0, done.err
        assert f"Rollout: {phase}, magika-00002 after magika-00001" in done.out


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


@pytest.mark.parametrize(
    "arguments", [("config",), ("predict", "magika", "-d", REQUEST), ("chat", "magika", "hi"), ("render", "-f", "-")]
)
async def test_without_knodels_settings_their_absence_is_named(magika: OverTls, arguments: tuple[str, ...]) -> None:
    done = await magika.knodel(*arguments, stdin=yaml.safe_dump(await magika.model("magika")))

    assert (done.code, done.out) == (1, "")
    assert "knodel install --kube-context knodel" in done.err


async def test_doctor_recognises_a_local_platform_behind_a_context(tls: OverTls) -> None:
    done = await tls.knodel("doctor")

    assert done.code == 1
    assert "omit --kube-context to check the platform of this machine" in done.out


async def test_pools_are_made_listed_and_turned_off(tls: OverTls) -> None:
    assert (await tls.knodel("pool", "set", "small", "--size", "2")).code == 0
    assert (await tls.knodel("pool", "off", "small")).code == 0

    listed = await tls.knodel("pool", "list", "-o", "json")

    assert [item["spec"] for item in listed.value()["items"]] == [{"size": 0}]


async def test_code_is_refused_before_anything_is_sent_unless_the_namespace_allows_it(tls: OverTls) -> None:
    code = ("deploy", "lines", "--uri", ARTIFACT, "--format", "python", "--no-wait")
    await tls.knodel("namespace", "default")

    refused = await tls.knodel(*code)
    await tls.knodel("namespace", "default", "--label", "knodel.dev/allow-code=true")
    taken = await tls.knodel(*code)

    assert (refused.code, refused.out) == (2, "")
    assert "spec.modelFormat: python runs code of the artifact" in refused.err
    assert (taken.code, taken.err) == (0, "")


async def test_a_secret_is_made_and_changed(tls: OverTls, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "one")
    assert (await tls.knodel("secret", "hub", "--env", "HF_TOKEN")).code == 0
    monkeypatch.setenv("HF_TOKEN", "two")
    assert (await tls.knodel("secret", "hub", "--env", "HF_TOKEN")).code == 0

    assert values_of(await tls.cluster.get(SECRET, "hub", "default")) == {"HF_TOKEN": b"two"}


def test_every_verb_is_tested_here_or_in_tests_of_its_own() -> None:
    seen = {
        "deploy", "list", "get", "describe", "delete", "history", "logs", "wait", "predict", "chat", "bench", "traffic",
        "promote", "rollback", "pause", "resume", "abort", "explain", "render", "diff", "namespace", "config", "doctor",
        "pool", "secret", "top", "restart", "status", "rollout",
    }  # fmt: skip

    assert set(VERBS) - seen == {
        "up", "down", "dev", "init", "serve", "completion", "install", "uninstall", "env", "events", "gpus", "version",
        "import", "dashboard",
    }  # fmt: skip
