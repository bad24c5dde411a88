"""Summarize the objects of a platform or cluster for `knodel status`. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from clusters.base.objects import Object, condition_of, name_of, namespace_of, parse_timestamp
from serving.cli.texts import last_seen, rollout_summary
from serving.control_api.table import format_of_pool
from serving.reconciler.rollout.state import rollout_of

RECENT: Final = timedelta(hours=1)
"""Age up to which a Warning is shown."""
MOST_WARNINGS: Final = 10
OWN_KINDS: Final = frozenset({"Model", "WarmPool", "EventSource", "ModelEvent"})
"""Kinds whose Warnings are always shown; those of other objects only if they belong to a Model."""


@dataclass(frozen=True, slots=True)
class ModelState:
    """A Model that is not ready: `state` is failed or starting."""

    namespace: str
    name: str
    state: str
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class RecentWarning:
    """A recent Warning Event, with the time of its last occurrence."""

    at: str
    namespace: str
    object: str
    reason: str
    message: str
    times: int


@dataclass(frozen=True, slots=True)
class Summary:
    """The state of all Models, rollouts and warm pools. `ready` counts Models, `idle` those without a replica."""

    ready: int
    idle: int
    waiting: tuple[ModelState, ...]
    rollouts: tuple[Mapping[str, Any], ...]
    pools: tuple[Mapping[str, Any], ...]
    warnings: tuple[RecentWarning, ...]

    @property
    def healthy(self) -> bool:
        """Whether no Model has failed; a Model that starts has not."""
        return all(one.state != "failed" for one in self.waiting)


def summarize(models: Sequence[Object], pools: Sequence[Object], events: Iterable[Object], now: datetime) -> Summary:
    """Return the summary of these objects at `now`. `events` are Events of any objects and types."""
    conditions = [(one, condition_of(one, "Ready") or {}) for one in models]
    ready = [one for one, condition in conditions if condition.get("status") == "True"]
    waiting = [
        ModelState(
            namespace_of(one),
            name_of(one),
            "failed" if condition.get("status") == "False" else "starting",
            str(condition.get("reason") or ""),
            str(condition.get("message") or ("" if condition else "no status yet")),
        )
        for one, condition in conditions
        if condition.get("status") != "True"
    ]
    return Summary(
        ready=len(ready),
        idle=sum(1 for one in ready if not ((one.get("status") or {}).get("replicas") or {}).get("ready")),
        waiting=tuple(sorted(waiting, key=lambda one: (one.state, one.namespace, one.name))),
        rollouts=tuple(
            {
                "namespace": namespace_of(one),
                "model": name_of(one),
                "candidate": state.candidate,
                "phase": state.phase,
                "percent": state.percent,
                "summary": rollout_summary(one).removeprefix("rollout "),
            }
            for one in models
            if (state := rollout_of(one)) is not None and state.runs
        ),
        pools=tuple(_pool(one) for one in pools),
        warnings=_warnings(models, events, now),
    )


def _pool(pool: Object) -> Mapping[str, Any]:
    status = pool.get("status") or {}
    counts = {name: int(status.get(name) or 0) for name in ("size", "ready", "claimed")}
    return {"namespace": namespace_of(pool), "name": name_of(pool), "format": format_of_pool(pool), **counts}


def _warnings(models: Sequence[Object], events: Iterable[Object], now: datetime) -> tuple[RecentWarning, ...]:
    """Return the recent Warnings about Models, their parts, and other objects of Knodel, newest first."""
    prefixes = {(namespace_of(one), name_of(one)) for one in models}
    found = []
    for event in events:
        about, at = event.get("involvedObject") or {}, last_seen(event)
        name, namespace = str(about.get("name", "")), str(about.get("namespace") or namespace_of(event))
        is_ours = about.get("kind") in OWN_KINDS or any(
            namespace == space and name.startswith(f"{model}-") for space, model in prefixes
        )
        if event.get("type") != "Warning" or not is_ours or not at or now - parse_timestamp(at) > RECENT:
            continue
        times = int(event.get("count") or 1)
        what = f"{about.get('kind', '')} {name}".strip()
        found.append(
            RecentWarning(at, namespace, what, str(event.get("reason", "")), str(event.get("message", "")), times)
        )
    return tuple(sorted(found, key=lambda one: parse_timestamp(one.at), reverse=True)[:MOST_WARNINGS])
