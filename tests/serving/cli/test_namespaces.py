"""Test that only `knodel namespace` creates namespaces: a mistyped one is an error, as in kubectl."""

from __future__ import annotations

from pathlib import Path

import pytest

from clusters.base.clock import SystemClock
from clusters.base.errors import NotFound
from clusters.base.objects import MODEL, NAMESPACE, Object
from clusters.embedded.cluster import EmbeddedCluster
from clusters.embedded.store.store import Store
from tests.serving.cli.conftest import ARTIFACT, Served, check

DEPLOY = ("deploy", "iris", "--uri", ARTIFACT, "--no-wait", "-n", "tema")


@pytest.mark.parametrize(
    "command",
    [
        DEPLOY,
        (*DEPLOY, "--dry-run"),
        ("pool", "set", "fast", "--size", "1", "-n", "tema"),
        ("secret", "s3", "--env", "HOME", "-n", "tema"),
        ("events", "allow", "ci", "--models", "iris", "--storage-prefix", "s3://models/", "-n", "tema"),
    ],
)
async def test_a_mistyped_namespace_is_an_error_and_is_not_created(served: Served, command: tuple[str, ...]) -> None:
    done = await served.knodel(*command)

    check(done, 3, ["namespace tema not found: `knodel namespace tema` creates it"])
    assert "tema" not in [one["metadata"]["name"] for one in (await served.cluster.list(NAMESPACE)).items]


async def test_the_remedy_works(served: Served) -> None:
    assert (await served.knodel("namespace", "tema")).code == 0

    assert (await served.knodel(*DEPLOY)).code == 0


async def test_a_terminating_namespace_accepts_no_new_objects(served: Served) -> None:
    namespace = {"metadata": {"name": "tema", "finalizers": ["example.org/hold"]}}
    await served.cluster.create(NAMESPACE, namespace, manager="test")
    await served.cluster.delete(NAMESPACE, "tema")

    done = await served.knodel(*DEPLOY)

    check(done, 3, ["namespace 'tema' is being deleted: wait until it is deleted\n"])


def model(name: str) -> Object:
    """Return a Model in a namespace that does not exist."""
    metadata = {"name": name, "namespace": "tema"}
    return {"apiVersion": MODEL.api_version, "kind": "Model", "metadata": metadata, "spec": {"storageUri": ARTIFACT}}


async def test_a_cluster_that_creates_no_namespaces_refuses_every_way_to_create(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "cluster.db")
    cluster = EmbeddedCluster(store, clock=SystemClock(), creates_namespaces=False)

    with pytest.raises(NotFound, match="namespaces 'tema' not found"):
        await cluster.create(MODEL, model("a"), manager="test")
    with pytest.raises(NotFound, match="namespaces 'tema' not found"):
        await cluster.apply(MODEL, model("a"), manager="test")
    [answer] = await cluster.create_all(MODEL, [model("a")], manager="test")
    assert isinstance(answer, NotFound)
    await store.close()
