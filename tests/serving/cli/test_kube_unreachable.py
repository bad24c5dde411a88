"""Test an API server that is absent, slow or restarting: one line, in time; waiting commands tolerate a restart."""

from __future__ import annotations

import time

import pytest

from clusters.base.objects import MODEL, Object
from serving.client.client import Client
from serving.client.errors import ClientError
from serving.client.kubeconfig import KubeContext
from tests.serving.cli.conftest import Config, Knodel, check
from tests.serving.cli.kube import CONTEXT, FakeApi, Reply, Seen
from tests.serving.cli.test_broken_platform import BROKEN, PATIENCE, SLOW, Talk, listener

HERE = ("--kube-context", CONTEXT)

MAGIKA: Object = {
    "apiVersion": "knodel.dev/v1alpha1",
    "kind": "Model",
    "metadata": {"name": "magika", "namespace": "default", "resourceVersion": "1", "generation": 1},
    "spec": {"storageUri": "https://models.test/magika"},
}


@pytest.mark.fault("C2")
def test_a_server_that_is_gone_is_one_line(knodel: Knodel, config: Config) -> None:
    config(server="https://127.0.0.1:9")

    check(
        knodel("list", *HERE), 1, ["the API server of context lab at 127.0.0.1:9", "knodel doctor --kube-context lab"]
    )


def test_an_unknown_host_is_one_line(knodel: Knodel, config: Config) -> None:
    config(server="https://no-such-host.invalid")

    check(knodel("list", *HERE), 1, ["no-such-host.invalid:443 does not respond"])


@pytest.mark.parametrize("talk", BROKEN.values(), ids=BROKEN.keys())
@pytest.mark.fault("C2")
def test_a_port_with_something_else_is_one_line(knodel: Knodel, config: Config, talk: Talk) -> None:
    with listener(talk) as (_, port):
        config(server=f"https://127.0.0.1:{port}")
        over_tls = knodel("list", *HERE)
        config(server=f"http://127.0.0.1:{port}")
        plain = knodel("list", *HERE)

    for done in (over_tls, plain):
        assert done.code in (1, 2)
        assert len(done.err.splitlines()) == 1
        assert "unexpected" not in done.err


@pytest.mark.parametrize("scheme", ["http", "https"])
@pytest.mark.parametrize("talk", SLOW.values(), ids=SLOW.keys())
@pytest.mark.fault("C2")
def test_a_slow_server_is_given_up_in_time(config: Config, talk: Talk, scheme: str) -> None:
    with listener(talk) as (_, port):
        config(server=f"{scheme}://127.0.0.1:{port}")
        client, began = Client(KubeContext.find(CONTEXT).connect(), PATIENCE), time.monotonic()
        with pytest.raises(ClientError, match="does not respond"):
            client.list(MODEL, "default")

    assert time.monotonic() - began < PATIENCE * 5


def test_a_server_that_restarts_while_a_model_is_waited_for_is_endured(
    knodel: Knodel, api: FakeApi, config: Config
) -> None:
    ready = {**MAGIKA, "status": {"observedGeneration": 1, "conditions": [{"type": "Ready", "status": "True"}]}}
    answers = iter([Reply(200, MAGIKA), None, None, Reply(200, ready)])

    def script(_: Seen) -> Reply:
        reply = next(answers)
        if reply is None:
            raise ConnectionResetError
        return reply

    api.script = script

    done = knodel("wait", "magika", "--timeout", "20s", *HERE)

    assert (done.code, done.err) == (0, "")


def test_a_server_that_never_answered_is_not_waited_for(knodel: Knodel, config: Config) -> None:
    config(server="https://127.0.0.1:9")

    began = time.monotonic()

    assert knodel("wait", "magika", "--timeout", "20s", *HERE).code == 1
    assert time.monotonic() - began < 10
