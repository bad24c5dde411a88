"""The Python package on a cluster: TLS, token and proxy of a kubeconfig, and the ingress of Knodel."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import knodel
from serving.client.inference.ingress import _endpoint
from tests.serving.cli.conftest import Config
from tests.serving.cli.kube import CONTEXT, SERVER_NAME, TOKEN, FakeApi, Pki, Reply, failure
from tests.serving.cli.test_kube_cluster import SERVED, cluster_with
from tests.serving.cli.test_kube_credentials import tunnel

METADATA = {"name": "magika", "inputs": [{"name": "x", "datatype": "BYTES", "shape": [-1]}], "outputs": []}
ANSWER = {"outputs": [{"name": "y", "datatype": "INT64", "shape": [1], "data": [7]}]}


def answer(seen: Any) -> Reply:
    return Reply(200, ANSWER if seen.path.endswith("/infer") else METADATA)


def get(kind: str, **options: Any) -> knodel.Model:
    if kind == "threads":
        with knodel.Client(kube_context=CONTEXT, **options) as client:
            return client.get("magika")

    async def call() -> knodel.Model:
        async with knodel.AsyncClient(kube_context=CONTEXT, **options) as client:
            return await client.get("magika")

    return asyncio.run(call())


@pytest.fixture(params=["threads", "tasks"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_a_model_is_read_with_the_token_over_tls(kind: str, api: FakeApi, config: Config) -> None:
    api.script = cluster_with(status=SERVED)
    model = get(kind)
    assert (model.url, model.traffic["magika-00001"]) == ("http://magika.default.knodel.test", 100)
    assert {seen.headers["Authorization"] for seen in api.seen} == {f"Bearer {TOKEN}"}


def test_operations_share_the_connections_to_the_api_server(api: FakeApi, config: Config) -> None:
    api.script = cluster_with(status=SERVED)
    with knodel.Client(kube_context=CONTEXT) as client:
        assert [client.get("magika").name for _ in range(3)] == ["magika"] * 3
        assert len(client._transport._clients) == 1
    assert _endpoint("h", 443, "https", "m", "-") == _endpoint("h", 443, "https", "m", "-")


def test_the_name_in_the_certificate_is_checked(kind: str, api: FakeApi, config: Config, pki: Pki) -> None:
    api.script = cluster_with(status=SERVED)
    config(**{"tls-server-name": SERVER_NAME})
    assert get(kind).name == "magika"
    config(**{"tls-server-name": "other.test"})
    with pytest.raises(knodel.Unreachable, match=r"is not trusted.*check certificate-authority"):
        get(kind)
    config(**{"certificate-authority": str(pki.stranger)})
    with pytest.raises(knodel.Unreachable, match="is not trusted"):
        get(kind)


def test_a_proxy_of_the_cluster_is_tunnelled_through(kind: str, api: FakeApi, config: Config) -> None:
    api.script = cluster_with(status=SERVED)
    with tunnel(api.port) as (port, heads):
        config(**{"proxy-url": f"http://ann:secret@127.0.0.1:{port}"})
        assert get(kind).name == "magika"
    assert heads[0].startswith(f"CONNECT 127.0.0.1:{api.port} HTTP/1.1".encode())
    assert b"proxy-authorization: basic " in heads[0].lower()
    assert TOKEN.encode() not in heads[0]


def test_errors_carry_the_message_of_the_server(kind: str, api: FakeApi, config: Config) -> None:
    api.script = lambda _: failure(403, "Forbidden", 'User "ann" cannot get models')
    with pytest.raises(knodel.Forbidden, match='User "ann" cannot get models: ask the administrator') as refused:
        get(kind)
    assert refused.value.status == 403
    api.script = lambda _: failure(401, "Unauthorized", "Unauthorized")
    with pytest.raises(knodel.KnodelError, match="they are absent, wrong or expired; log in again"):
        get(kind)


def test_predictions_go_to_the_ingress_with_strings(api: FakeApi, ingress: FakeApi, config: Config) -> None:
    api.script, ingress.script = cluster_with(port=ingress.port, status=SERVED), answer
    with knodel.Client(kube_context=CONTEXT) as client:
        assert client.predict("magika", {"inputs": [{"name": "x", "datatype": "BYTES", "shape": [1], "data": ["a"]}]})[
            "y"
        ] == [7]
        assert client.predict("magika", {"inputs": [{"name": "x", "datatype": "BYTES", "shape": [1], "data": ["b"]}]},
                              tag="blue")["y"] == [7]  # fmt: skip
    assert [seen.headers["Host"] for seen in ingress.seen] == [
        "magika.default.knodel.test", "blue-magika.default.knodel.test",
    ]  # fmt: skip
    assert "Authorization" not in ingress.seen[0].headers


def test_an_unknown_context_is_refused_with_the_known_ones(api: FakeApi, config: Config) -> None:
    with pytest.raises(knodel.Invalid, match=f"has no context 'none': known contexts are {CONTEXT}"):
        knodel.Client(kube_context="none")
