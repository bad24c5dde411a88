"""Calls against an API server that is down, slow, sends invalid responses, or rejects the credentials."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from clusters.base.errors import Forbidden, Unavailable
from clusters.base.objects import name_of
from clusters.kubernetes import KubernetesCluster
from tests.clusters.kubernetes.api_server import (
    NAMESPACE,
    FakeApiServer,
    Step,
    answer,
    hang,
    refuse,
    reset,
    stream,
)  # fmt: skip
from tests.clusters.kubernetes.calls import CALLS, sort_of
from tests.clusters.kubernetes.conftest import QUICK, Connected
from tests.contract.widgets import WIDGET

IMPATIENT = replace(QUICK, request=0.5)

UNAVAILABLE: dict[str, Step] = {
    "503": refuse(503, "ServiceUnavailable", "the server is currently unable to handle the request"),
    "502 by a proxy": answer(502, b"<html>\n<h1>Bad Gateway</h1>\n</html>"),
    "504": refuse(504, "Timeout", "request did not complete within the allotted timeout"),
    "500 by etcd": refuse(500, "", "etcdserver: request timed out"),
    "a dead webhook": refuse(500, "InternalError", 'failed calling webhook "x": connection refused'),
    "no answer": hang,
    "a reset": reset,
    "half an answer": stream(b'{"metadata":', then="cut"),
    "half an answer and silence": stream(b'{"metadata":', then="hang"),
    "garbage": answer(200, b"<html>welcome to the hotel</html>"),
    "no HTTP": None,  # type: ignore[dict-item]
}


async def no_http(_: object, writer: asyncio.StreamWriter) -> None:
    """Bytes of another protocol."""
    writer.write(b"\x15\x03\x01\x00\x02\x02\x16\r\n\r\n")
    writer.close()


UNAVAILABLE["no HTTP"] = no_http


@pytest.mark.parametrize("trouble", UNAVAILABLE)
@pytest.mark.parametrize("call", ["get", "list", "apply", "delete"])
async def test_a_server_that_is_down_is_unavailable(
    server: FakeApiServer, connected: Connected, call: str, trouble: str
) -> None:
    cluster = await connected(timeouts=IMPATIENT)
    server.always[sort_of(call)] = UNAVAILABLE[trouble]
    with pytest.raises(Unavailable) as told:
        await CALLS[call](cluster)
    assert WIDGET.resource in str(told.value) and "\n" not in str(told.value)
    del server.always[sort_of(call)]
    server.put("w")
    await CALLS[call](cluster)


async def test_a_server_that_is_not_there_is_unavailable_at_once(cluster: KubernetesCluster, kubeconfig: Path) -> None:
    path = kubeconfig.with_name("nowhere")
    path.write_text(kubeconfig.read_text().replace("127.0.0.1:", "127.0.0.1:1"))
    path.write_text(
        kubeconfig.read_text().split("server:")[0] + "server: http://127.0.0.1:1\n  name: c\n" + _tail(path)
    )
    async with KubernetesCluster.connect("fake", path) as nowhere:
        with pytest.raises(Unavailable, match=r"http://127\.0\.0\.1:1 cannot be reached"):
            await nowhere.get(WIDGET, "w", NAMESPACE)


def _tail(path: Path) -> str:
    return "contexts:" + path.read_text().split("contexts:")[1]


async def test_a_refused_token_is_read_again_once(
    server: FakeApiServer, cluster: KubernetesCluster, kubeconfig: Path
) -> None:
    server.put("w")
    kubeconfig.with_name("token").write_text("second\n")
    server.script("other", refuse(401, "Unauthorized"))
    assert name_of(await cluster.get(WIDGET, "w", NAMESPACE)) == "w"
    assert [asked.headers["authorization"] for asked in server.asked] == ["Bearer first", "Bearer second"]


async def test_a_watch_too_reads_a_refused_token_again(
    server: FakeApiServer, cluster: KubernetesCluster, kubeconfig: Path
) -> None:
    server.put("w")
    kubeconfig.with_name("token").write_text("second\n")
    server.script("watch", refuse(401, "Unauthorized"))
    assert (await anext(cluster.watch(WIDGET, "100"))).type == "ADDED"


async def test_credentials_that_stay_refused_are_said_to_be_and_not_asked_again_and_again(
    server: FakeApiServer, cluster: KubernetesCluster
) -> None:
    server.always["other"] = refuse(401, "Unauthorized", "Unauthorized")
    for _ in range(3):
        with pytest.raises(Forbidden, match="log in again"):
            await cluster.get(WIDGET, "w", NAMESPACE)
    assert len(server.asked) == 4


async def test_a_token_that_cannot_be_read_again_is_a_trouble_that_may_pass(
    server: FakeApiServer, cluster: KubernetesCluster, kubeconfig: Path
) -> None:
    kubeconfig.with_name("token").unlink()
    server.script("other", refuse(401, "Unauthorized"))
    with pytest.raises(Unavailable, match="kubeconfig"):
        await cluster.get(WIDGET, "w", NAMESPACE)
