"""The stream of a page: complete at first, then only what has changed."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from serving.dashboard.live import EVERY, SLOWLY, stream
from serving.dashboard.pages import Parts
from tests.support.clock import SteppedClock


class Page:
    """Parts that a test changes."""

    def __init__(self) -> None:
        self.html = {"a": "<p>1</p>", "b": "<p>2</p>"}
        self.order = ["a", "b"]

    def parts(self) -> Parts:
        """The parts."""
        return Parts(dict(self.html), {"box": list(self.order)})


class Reader:
    """Reads a stream while it steps the clock."""

    def __init__(self, page: Page) -> None:
        self.revision = [0, 0]
        self.open = True
        self.clock = SteppedClock()
        self.events = stream(page, lambda: (self.revision[0], self.revision[1]), lambda: self.open, self.clock)

    async def next(self) -> tuple[str, Any]:
        """The next event."""
        waiting = asyncio.ensure_future(anext(self.events))
        while not waiting.done():
            await asyncio.sleep(0)
            if not waiting.done():
                self.clock.step(EVERY)
                await asyncio.sleep(0)
        name, _, data = (await waiting).strip().partition("\n")
        return name, json.loads(data.removeprefix("data: ")) if data else None


async def test_the_first_event_has_all_parts_and_later_ones_the_changes() -> None:
    page = Page()
    reader = Reader(page)
    assert (await reader.next())[0].startswith("retry:")
    name, data = await reader.next()
    assert name == "event: parts"
    assert data == {"html": page.html, "lists": {"box": ["a", "b"]}}
    assert (await reader.next())[0] == "event: tick"
    page.html["b"] = "<p>3</p>"
    reader.revision[0] += 1
    assert await reader.next() == ("event: parts", {"html": {"b": "<p>3</p>"}, "lists": {}})


async def test_new_and_removed_elements_change_the_list() -> None:
    page = Page()
    reader = Reader(page)
    for _ in range(3):
        await reader.next()
    del page.html["a"]
    page.html["c"], page.order = "<p>4</p>", ["c", "b"]
    reader.revision[0] += 1
    assert (await reader.next())[1] == {"html": {"c": "<p>4</p>"}, "lists": {"box": ["c", "b"]}}
    page.html["a"], page.order = "<p>1</p>", ["a", "c", "b"]  # it is back, so it is sent again
    reader.revision[0] += 1
    assert (await reader.next())[1]["html"] == {"a": "<p>1</p>"}


async def test_nothing_is_sent_while_nothing_changes() -> None:
    reader = Reader(Page())
    for _ in range(3):
        await reader.next()
    began = reader.clock.monotonic()
    assert (await reader.next())[0] == ": still here"
    assert reader.clock.monotonic() - began >= SLOWLY - EVERY
    reader.revision[0] += 1  # an object changed that the page does not show
    reader.revision[1] += 1
    assert (await reader.next())[0] == "event: tick"


async def test_the_stream_ends_with_the_session() -> None:
    reader = Reader(Page())
    await reader.next()
    reader.open = False
    name, _ = await reader.next()
    while name != "event: end":
        name, _ = await reader.next()
    try:
        await reader.next()
    except StopAsyncIteration:
        return
    raise AssertionError("the stream went on")
