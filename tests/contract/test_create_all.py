"""Contract: many creations in one call."""

from __future__ import annotations

import asyncio

from clusters.base.api import Cluster
from clusters.base.errors import AlreadyExists, Invalid
from clusters.base.objects import name_of
from tests.contract.widgets import WIDGET, fields_of, widget


async def test_each_object_is_stored_as_by_create_and_answered_in_its_place(cluster: Cluster, namespace: str) -> None:
    wanted = [widget(namespace, f"w{number}", spec={"n": number}, labels={"a": "b"}) for number in range(5)]
    made = await cluster.create_all(WIDGET, wanted, manager="tests")
    alone = await cluster.create(WIDGET, widget(namespace, "alone", spec={"n": 1}, labels={"a": "b"}), manager="tests")
    for number, obj in enumerate(made):
        assert isinstance(obj, dict)
        assert await cluster.get(WIDGET, f"w{number}", namespace) == obj
        assert obj["spec"] == {"n": number}
        assert obj["metadata"].keys() == alone["metadata"].keys()
        assert fields_of(obj, "tests") == fields_of(alone, "tests")


async def test_what_is_refused_keeps_nothing_else_out(cluster: Cluster, namespace: str) -> None:
    await cluster.create(WIDGET, widget(namespace, "taken"), manager="tests")
    nameless = widget(namespace)
    del nameless["metadata"]["name"]
    wanted = [
        widget(namespace, "a"),
        widget(namespace, "taken"),
        widget(namespace, "No"),
        nameless,
        widget(namespace, "b"),
    ]
    first, taken, bad, without, last = await cluster.create_all(WIDGET, wanted, manager="tests")
    assert isinstance(first, dict) and isinstance(last, dict)
    assert isinstance(taken, AlreadyExists)
    assert isinstance(bad, Invalid) and [cause.path for cause in bad.causes] == ["metadata.name"]
    assert isinstance(without, Invalid)
    assert {name_of(obj) for obj in (await cluster.list(WIDGET, namespace)).items} == {"a", "b", "taken"}


async def test_of_two_with_one_name_one_is_stored(cluster: Cluster, namespace: str) -> None:
    wanted = [widget(namespace, "same", spec={"n": number}) for number in range(2)]
    answers = await asyncio.gather(*(cluster.create_all(WIDGET, wanted, manager="tests") for _ in range(3)))
    flat = [answer for each in answers for answer in each]
    assert sum(isinstance(answer, dict) for answer in flat) == 1
    assert sum(isinstance(answer, AlreadyExists) for answer in flat) == 5


async def test_none_at_all_is_no_error(cluster: Cluster, namespace: str) -> None:
    assert list(await cluster.create_all(WIDGET, [], manager="tests")) == []
