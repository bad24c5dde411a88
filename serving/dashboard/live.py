"""The stream of a page: server-sent events with the parts that have changed since the last one.

An event `parts` has `{"html": {id: HTML}, "lists": {container: [ids]}}`; a list is sent when its order has changed. An
event `tick` announces new readings: charts then fetch theirs.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from typing import Final

from clusters.base.clock import Clock
from serving.dashboard.pages import LivePage, Parts

EVERY: Final = 1.0
"""Seconds between two looks for changes."""
SLOWLY: Final = 20.0
"""Seconds without an event after which a comment is sent, so that a lost connection is noticed."""


async def stream(
    page: LivePage, revision: Callable[[], tuple[int, int]], is_open: Callable[[], bool], clock: Clock
) -> AsyncIterator[str]:
    """Yield server-sent events while `is_open`. `revision` returns (changes of objects, samples): what pages depend on.

    The first event is complete, because the page may be older than the stream.
    """
    sent: dict[str, int] = {}
    order: dict[str, list[str]] = {}
    seen: tuple[int, int] | None = None
    quiet = clock.monotonic()
    yield "retry: 2000\n\n"
    while is_open():
        now = revision()
        if now != seen:
            sampled = seen is None or now[1] != seen[1]
            seen = now
            if changed := _changed(page.parts(), sent, order):
                yield f"event: parts\ndata: {changed}\n\n"
                quiet = clock.monotonic()
            if sampled:
                yield "event: tick\ndata: {}\n\n"
                quiet = clock.monotonic()
        elif clock.monotonic() - quiet >= SLOWLY:
            yield ": still here\n\n"
            quiet = clock.monotonic()
        await clock.sleep(EVERY)
    yield "event: end\ndata: {}\n\n"


def _changed(parts: Parts, sent: dict[str, int], order: dict[str, list[str]]) -> str:
    """Return the changed parts as JSON, and note them in `sent` and `order`; empty if nothing has changed."""
    html = {}
    for name, text in parts.html.items():
        digest = hash(text)
        if sent.get(name) != digest:
            sent[name] = digest
            html[name] = text
    lists = {}
    for container, ids in parts.lists.items():
        if order.get(container) != list(ids):
            order[container] = list(ids)
            lists[container] = list(ids)
    for gone in sent.keys() - parts.html.keys():
        del sent[gone]
    return json.dumps({"html": html, "lists": lists}) if html or lists else ""
