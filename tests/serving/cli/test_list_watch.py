"""Test `--watch` of the verbs that list objects: rows that follow the objects, on terminals and elsewhere."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any, TypeVar

import pytest

from clusters.base.objects import MODEL, WARM_POOL, Object
from tests.serving.cli.conftest import Served
from tests.support.terminal import running

T = TypeVar("T")
READY = {"conditions": [{"type": "Ready", "status": "True"}], "replicas": {"desired": 1, "ready": 1}}


def pool(name: str) -> Object:
    return {"metadata": {"name": name, "namespace": "default"}, "spec": {"size": 1, "template": {}}}


async def away(function: Callable[..., T], *arguments: Any) -> T:
    """Call a function that blocks, while the API runs."""
    return await asyncio.to_thread(function, *arguments)


async def test_a_pipe_gets_a_row_for_each_changed_row(served: Served) -> None:
    await served.deploy("iris")
    with running("list", "--watch", tty=False) as command:
        await away(command.until, "iris")
        await served.set_status("iris", READY)
        await away(command.until, "True")
        await served.set_status("iris", {**READY, "modelFormat": "onnx"})  # in no column of the table
        await served.deploy("magika")
        await away(command.until, "magika")
        await served.cluster.delete(MODEL, "iris", "default")
        await away(command.until, "Deleted")
        shown = await away(command.interrupt)

    head, *rows = [line.split() for line in shown.lines if line]
    assert head[:3] == ["NAME", "READY", "REASON"]
    assert [row[:3] for row in rows] == [
        ["iris", "Unknown", "0/0"], ["iris", "True", "1/1"], ["magika", "Unknown", "0/0"], ["iris", "Deleted", "1/1"],
    ]  # fmt: skip
    assert shown.code == 130
    assert "Traceback" not in shown.raw


async def test_a_terminal_gets_its_table_redrawn_in_place(served: Served) -> None:
    await served.deploy("iris")
    with running("list", "-w", tty=True) as command:
        await away(command.until, "iris")
        await served.set_status("iris", READY)
        await away(command.until, "True")
        await served.cluster.delete(MODEL, "iris", "default")
        await away(command.until, "URL")  # a table without rows has all heads
        shown = await away(command.interrupt)

    first, *_, last = shown.frames
    assert [line.split()[0] for line in first] == ["NAME", "iris"]
    assert any("True" in line for frame in shown.frames for line in frame)
    assert [line.split()[0] for line in last if line] == ["NAME"]
    assert shown.code == 130


async def test_json_is_a_line_for_each_changed_object(served: Served) -> None:
    await served.deploy("iris")
    with running("list", "-w", "-o", "json", tty=False) as command:
        await away(command.until, '"iris"')
        await served.set_status("iris", READY)
        await away(command.until, '"status": "True"')
        await served.cluster.delete(MODEL, "iris", "default")
        await away(command.until, "deletionTimestamp")
        shown = await away(command.interrupt)

    first, *_, last = [json.loads(line) for line in shown.lines if line]
    assert (first["kind"], first["metadata"]["name"]) == ("Model", "iris")
    assert "managedFields" not in first["metadata"]
    assert last["metadata"]["deletionTimestamp"]


async def test_a_table_higher_than_the_terminal_is_cut_at_its_end(served: Served) -> None:
    for number in range(12):
        await served.deploy(f"iris-{number}")
    with running("list", "-w", tty=True, rows=8) as command:
        await away(command.until, "more lines")
        shown = await away(command.interrupt)

    lines = [line for line in shown.frames[0] if line]
    assert len(lines) < 8
    assert lines[-1] == "(7 more lines)"


@pytest.mark.parametrize("verb", [("pool", "list"), ("events", "list"), ("events", "sources")], ids=" ".join)
async def test_other_lists_can_be_watched_too(served: Served, verb: tuple[str, ...]) -> None:
    with running(*verb, "--watch", tty=False) as command:
        await away(command.until, "AGE")
        if verb == ("pool", "list"):
            await served.cluster.create(WARM_POOL, pool("small"), manager="test")
            await away(command.until, "small")
        shown = await away(command.interrupt)

    assert shown.code == 130
