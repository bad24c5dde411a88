"""Tells of changed loads: at once that a queue began, above all before a revision at zero; all else gathered."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from clusters.base.objects import Key
from clusters.embedded.activator.wire import Load, Loads

GATHER = 0.05  # s; at most 20 reports a second however many requests pass, and none while nothing changes

IDLE = Load()


class LoadReport:
    """Collects changes of load; `observe` says where to look loads up."""

    def __init__(self) -> None:
        self._told: dict[Key, Load] = {}
        self._changed: set[Key] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._listeners: list[Callable[[Loads], None]] = []
        self._load: Callable[[Key], Load] = lambda _: IDLE
        self._has_endpoints: Callable[[Key], bool] = lambda _: True

    def observe(self, load: Callable[[Key], Load], has_endpoints: Callable[[Key], bool]) -> None:
        """Where to look a revision's state up."""
        self._load = load
        self._has_endpoints = has_endpoints

    def subscribe(self, listener: Callable[[Loads], None]) -> None:
        """Call `listener` with the loads that changed."""
        self._listeners.append(listener)

    def changed(self, key: Key) -> None:
        """The load of `key` is another one."""
        load = self._load(key)
        begins = load.queued > 0 and self._told.get(key, IDLE).queued == 0
        if begins and (self._timer is None or not self._has_endpoints(key)):
            self._tell({key: load})
        self._changed.add(key)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(GATHER, self._flush)

    def _flush(self) -> None:
        self._timer = None
        loads = {key: self._load(key) for key in self._changed}
        self._changed.clear()
        fresh = {key: load for key, load in loads.items() if load != self._told.get(key, IDLE)}
        if fresh:
            self._tell(fresh)

    def _tell(self, loads: Loads) -> None:
        for key, load in loads.items():
            if load == IDLE:
                self._told.pop(key, None)
            else:
                self._told[key] = load
        for listener in self._listeners:
            listener(loads)
