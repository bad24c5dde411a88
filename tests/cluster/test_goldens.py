"""Doors: what we render, real Knative takes; what the stand-in refuses or takes, real Knative refuses or takes.

Strict field validation throughout. What is good is stored by a dry run only, in which Knative also lets Kubernetes try
its Pod; what is bad is really created, for a dry run would refuse more than the door does.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest

from clusters.base.api import Cluster
from clusters.base.errors import Forbidden, Invalid
from clusters.base.objects import CONFIG_MAP, CONFIGURATION, ROUTE, SERVICE, Kind, Object
from serving.types.loader import load_objects
from tests.golden.bad_objects import BAD
from tests.golden.good_objects import GOOD, STRICTER, Stricter
from tests.golden.objects import Example

MANAGER = "tests"
RENDERED = sorted((Path(__file__).parents[1] / "golden" / "render").glob("*.yaml"))
SERVICE_ACCOUNT = Kind("", "v1", "ServiceAccount", "serviceaccounts", status=False)
KINDS = {kind.kind: kind for kind in (CONFIG_MAP, SERVICE, CONFIGURATION, ROUTE)}


async def create(cluster: Cluster, kind: Kind, obj: Object, namespace: str, *, dry_run: bool = True) -> Object:
    """What the cluster stores, or would."""
    placed = {**obj, "metadata": {**obj["metadata"], "namespace": namespace}}
    return await cluster.create(kind, placed, manager=MANAGER, dry_run=dry_run)


async def make_accounts(cluster: Cluster, objects: Sequence[Object], namespace: str) -> None:
    """The ServiceAccounts that the objects' Pods name: Kubernetes refuses a Pod without."""
    pods = [obj["spec"]["template"]["spec"] for obj in objects if "template" in obj.get("spec", {})]
    for name in {pod["serviceAccountName"] for pod in pods if "serviceAccountName" in pod}:
        await create(cluster, SERVICE_ACCOUNT, {"metadata": {"name": name}}, namespace, dry_run=False)


@pytest.mark.parametrize("file", RENDERED, ids=lambda file: file.stem)
async def test_what_render_prints_is_taken(cluster: Cluster, namespace: str, file: Path) -> None:
    objects = load_objects(file.read_text(), str(file))
    await make_accounts(cluster, objects, namespace)
    for obj in objects:
        await create(cluster, KINDS[obj["kind"]], obj, namespace)


async def refusals(cluster: Cluster, namespace: str, examples: Iterable[Example], *, dry_run: bool) -> dict[str, str]:
    """Example → why it is refused, of those that are."""
    refused: dict[str, str] = {}
    for example in examples:
        try:
            await create(cluster, example.kind, example.object, namespace, dry_run=dry_run)
        except (Invalid, Forbidden) as error:
            refused[example.name] = str(error)
    return refused


async def test_what_the_stand_in_refuses_knative_refuses(cluster: Cluster, namespace: str) -> None:
    refused = await refusals(cluster, namespace, BAD, dry_run=False)
    assert [example.name for example in BAD if example.name not in refused] == []


async def test_what_the_stand_in_takes_knative_takes(cluster: Cluster, namespace: str) -> None:
    assert await refusals(cluster, namespace, GOOD, dry_run=True) == {}


@pytest.mark.parametrize("stricter", STRICTER, ids=str)
async def test_where_the_stand_in_is_stricter_knative_is_not(
    cluster: Cluster, namespace: str, stricter: Stricter
) -> None:
    assert await refusals(cluster, namespace, [stricter.example], dry_run=False) == {}
