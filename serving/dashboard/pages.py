"""Live pages: each consists of parts, and a stream sends the parts that have changed."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, Protocol

from markupsafe import Markup

from autoscaler.warmpool.claims.classes import DEFAULT_FORMAT
from autoscaler.warmpool.claims.marks import LABEL_POOL
from clusters.base.objects import LABEL_REVISION, Object, condition_of, labels_of, name_of, namespace_of, version_of
from serving.client.models.explaining import traffic_rule, unused_pools
from serving.client.models.rollout_view import comparisons, view_of
from serving.client.replicas import status_of as container_status
from serving.control_api.table import format_of_pool
from serving.dashboard.actions import applicable, replay_command
from serving.dashboard.history import FIELDS, FINE, SeriesName
from serving.dashboard.objects import Objects
from serving.dashboard.render import Renderer
from serving.dashboard.sessions import Session
from serving.dashboard.views import events as event_views
from serving.dashboard.views.decisions import decision_lines
from serving.dashboard.views.drawing import bounds_rows, start_rows, step_bars
from serving.dashboard.views.models import ModelLine, State, colour_of, line_of, status_of
from serving.reconciler.rollout.state import rollout_of
from serving.types.model import history_of

MOST_ROWS: Final = 4096
"""Rows of models whose HTML is kept."""
ORDER: Final[tuple[State, ...]] = ("failed", "starting", "deleting", "ready", "idle")
FIGURES: Final = 15
"""Rows of the table that has the numbers of the charts."""


class Row(NamedTuple):
    """The row of a model: the values from which it was made, the state, and the HTML."""

    values: tuple[Any, ...]
    state: State
    html: str


Rows = OrderedDict[tuple[str, str], Row]
"""The rows of models by namespace and name."""


@dataclass(frozen=True, slots=True)
class Parts:
    """The HTML of a page by the id of its element, and the order of elements in lists (container → ids)."""

    html: Mapping[str, str]
    lists: Mapping[str, Sequence[str]] = field(default_factory=dict)


class LivePage(Protocol):
    """A page with parts."""

    def parts(self) -> Parts:
        """Return the present parts."""
        ...


class ModelsPage:
    """All models that a session sees. Rows are shared by all viewers, and made again when their values change."""

    def __init__(self, objects: Objects, render: Renderer, session: Session, rows: Rows, query: str = "") -> None:
        self._rows = rows
        self._objects = objects
        self._render = render
        self._session = session
        self._query = query.strip().lower()
        self._unit = objects.unit

    def parts(self) -> Parts:
        """Return a summary, and a row for each model."""
        html: dict[str, str] = {}
        counts = dict.fromkeys(ORDER, 0)
        for model in self._objects.models():
            namespace, name = namespace_of(model), name_of(model)
            if self._session.sees(namespace) and self._query in f"{namespace}/{name}".lower():
                row = self._row(model)
                counts[row.state] += 1
                html[f"m.{namespace}.{name}"] = row.html
        summary = self._render("parts/summary.html", counts=counts, total=sum(counts.values()), query=self._query)
        return Parts({"summary": summary, **html}, {"models": list(html)})

    def _row(self, model: Object) -> Row:
        """Return the row of a Model, which is made anew if the Model, its traffic or its cost has changed."""
        key = (namespace_of(model), name_of(model))
        reading, cost = self._objects.traffic(*key), self._objects.spent_today(*key)
        values = (version_of(model), reading, None if cost is None else round(cost, 2))
        known = self._rows.get(key)
        if known is not None and known.values == values:
            return known
        state = rollout_of(model)
        rollout = view_of(model, self._objects.now()) if state is not None and state.runs else None
        line = line_of(model, reading, cost, rollout)
        made = Row(values, line.state, self._render("parts/row.html", line=line, unit=self._unit))
        self._rows[key] = made
        if len(self._rows) > MOST_ROWS:
            self._rows.popitem(last=False)
        return made


class ModelPage:
    """One model."""

    def __init__(self, objects: Objects, render: Renderer, namespace: str, name: str) -> None:
        self._objects = objects
        self._render = render
        self._namespace = namespace
        self._name = name

    def parts(self) -> Parts:
        """Return the parts; only a note once the Model is gone."""
        model = self._objects.model(self._namespace, self._name)
        if model is None:
            return Parts({"head": self._render("parts/gone.html", name=self._name)})
        values = self._values(model)
        names = ("head", "traffic", "rollout", "versions", "replicas", "starts", "decisions", "trace", "figures")
        return Parts({name: self._render(f"parts/{name}.html", **values) for name in names})

    def _values(self, model: Object) -> dict[str, Any]:
        objects, namespace, name = self._objects, self._namespace, self._name
        now, status = objects.now(), status_of(model)
        rollout = view_of(model, now)
        cost = objects.spent_today(namespace, name)
        line = line_of(model, objects.traffic(namespace, name), cost, rollout)
        numbers = rollout.state.judgement.verdict.numbers if rollout and rollout.state.judgement else {}
        return {
            "line": line,
            "model": model,
            "status": status,
            "unit": objects.unit,
            "rule": traffic_rule(model) if line.shares else "",
            "readings": {one.revision: self._traffic_of(one.revision, line) for one in line.shares},
            "actions": applicable(model),
            "rollout": rollout,
            "steps": step_bars(rollout, now) if rollout else [],
            "bounds": bounds_rows(numbers),
            "comparisons": comparisons(rollout) if rollout else [],
            "history": list(reversed(history_of(model))),
            "conditions": [one for one in status.get("conditions") or () if one.get("status") != "True"],
            "pods": [_pod(pod) for pod in objects.pods_of(namespace, name)],
            "pool_notes": unused_pools(model, [one for one in objects.pools() if namespace_of(one) == namespace]),
            "starts": start_rows(status.get("starts") or ()),
            "decisions": decision_lines(status.get("decisions") or (), objects.autoscalers_of(namespace, name)),
            "trace": event_views.last_trace(model, objects.events_of(namespace, name)),
            "figures": self._figures(),
            "colour_of": colour_of,
        }

    def _traffic_of(self, revision: str, line: ModelLine) -> Any:
        """Return the reading of a version. With one version, it has that of the model."""
        found = self._objects.traffic(self._namespace, self._name, revision)
        alone = len([one for one in line.shares if one.percent]) <= 1
        return found or (line.reading if alone and any(one.revision == revision for one in line.shares) else None)

    def _figures(self) -> list[dict[str, float | None]]:
        """Return the last readings, newest first."""
        until = self._objects.now().timestamp()
        columns = self._objects.history.read(SeriesName(self._namespace, self._name), FINE, until)
        count = len(columns["at"])
        return [
            {one: columns[one][index] for one in ("at", *FIELDS)}
            for index in range(count - 1, max(-1, count - 1 - FIGURES), -1)
        ]


class PoolsPage:
    """The warm pools."""

    def __init__(self, objects: Objects, render: Renderer, session: Session) -> None:
        self._objects = objects
        self._render = render
        self._session = session

    def parts(self) -> Parts:
        """Return the table of pools."""
        pools = [_pool(one) for one in self._objects.pools() if self._session.sees(namespace_of(one))]
        return Parts({"pools": self._render("parts/pools.html", pools=pools)})


class EventsPage:
    """The events, newest first, of one phase if it is given."""

    def __init__(self, objects: Objects, render: Renderer, session: Session, phase: str = "") -> None:
        self._objects = objects
        self._render = render
        self._session = session
        self._phase = phase

    def parts(self) -> Parts:
        """Return the table of events, and the number of dead letters."""
        seen = [one for one in self._objects.events() if self._session.sees(namespace_of(one))]
        lines = event_views.event_lines(seen, self._phase)
        failed = sum(1 for one in seen if event_views.event_line(one).phase == event_views.FAILED)
        sources = [one for one in self._objects.sources() if self._session.sees(namespace_of(one))]
        shown = self._render(
            "parts/events.html", lines=lines, failed=failed, total=len(seen), phase=self._phase, most=event_views.MOST
        )
        return Parts({"events": shown, "sources": self._render("parts/sources.html", sources=sources, word=ready_word)})


class EventPage:
    """One event with all that it caused."""

    def __init__(self, objects: Objects, render: Renderer, namespace: str, name: str) -> None:
        self._objects = objects
        self._render = render
        self._key = (namespace, name)

    def parts(self) -> Parts:
        """Return the event and its trace; a note once it is gone."""
        event = self._objects.event(*self._key)
        if event is None:
            return Parts({"event": self._render("parts/gone.html", name=self._key[1])})
        line = event_views.event_line(event)
        namespace, _, name = line.model.partition("/")
        model = self._objects.model(namespace, name) if name else None
        trace = event_views.trace(event, model, self._objects.events())
        spec = {key: value for key, value in (event.get("spec") or {}).items() if key != "data"}
        values = {"line": line, "trace": trace, "spec": spec, "command": replay_command(event),
                  "data": (event.get("spec") or {}).get("data")}  # fmt: skip
        return Parts({"event": self._render("parts/event.html", **values)})


def ready_word(obj: Object) -> str:
    """Return the state of an object's condition Ready in a word."""
    ready = condition_of(obj, "Ready") or {}
    return {"True": "Ready", "False": "Failed"}.get(str(ready.get("status")), "Starting")


def _pod(pod: Object) -> dict[str, Any]:
    status, container = pod.get("status") or {}, container_status(pod)
    labels = labels_of(pod)
    waiting = (container.get("state") or {}).get("waiting") or {}
    deleting = bool(pod["metadata"].get("deletionTimestamp"))
    state = "Ready" if container.get("ready") else str(waiting.get("reason") or status.get("phase") or "Pending")
    return {
        "name": name_of(pod),
        "revision": labels.get(LABEL_REVISION, ""),
        "state": "Terminating" if deleting else state,
        "message": str(waiting.get("message") or ""),
        "restarts": int(container.get("restartCount") or 0),
        "node": str((pod.get("spec") or {}).get("nodeName") or ""),
        "created": str(pod["metadata"].get("creationTimestamp") or ""),
        "pool": labels.get(LABEL_POOL, ""),
    }


def _pool(pool: Object) -> dict[str, Any]:
    status, spec = status_of(pool), pool.get("spec") or {}
    counts = {name: int(status.get(name) or 0) for name in ("size", "ready", "starting", "claimed")}
    reasons = [str(one) for one in status.get("reasons") or ()]
    return {
        "namespace": namespace_of(pool),
        "name": name_of(pool),
        "format": format_of_pool(pool) or DEFAULT_FORMAT,
        "wanted": str(spec.get("size", "auto")),
        "message": str((status.get("seed") or {}).get("message") or (reasons[-1] if reasons else "")),
        **counts,
    }


def joined(parts: Parts, container: str) -> Markup:
    """Return the HTML of all elements of a list."""
    return Markup("\n").join(Markup(parts.html[one]) for one in parts.lists[container])  # noqa: S704  # nosec B704 - from templates
