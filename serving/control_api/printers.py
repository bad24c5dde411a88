"""Objects as `meta.k8s.io/v1 Table`, the columns of `kubectl get`, as a Kubernetes API server makes them. Pure.

Sources: kubernetes `pkg/printers/internalversion/printers.go` for core kinds, apimachinery `pkg/util/duration` for
ages, apiextensions-apiserver `tableconvertor.go` and the `additionalPrinterColumns` of the definitions for all others.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from typing import Any, Final

import jsonpath

from clusters.base.objects import (
    CONFIG_MAP,
    CONFIGURATION,
    CORE_SERVICE,
    DEPLOYMENT,
    EVENT,
    INGRESS,
    LEASE,
    NAMESPACE,
    NODE,
    POD,
    POD_AUTOSCALER,
    REPLICA_SET,
    REVISION,
    ROUTE,
    SECRET,
    SERVERLESS_SERVICE,
    SERVICE,
    Kind,
    Object,
    conditions_of,
    is_deleting,
    is_true,
    name_of,
    parse_timestamp,
)
from serving.crds.definition import COLUMNS, column

Cell = str | int | float | bool | None
UNKNOWN: Final = "<unknown>"
NONE: Final = "<none>"


@dataclass(frozen=True, slots=True)
class Column:
    """One column: its name, and how its cell is read from an object at a time. `wide`: shown by `-o wide` only."""

    name: str
    cell: Callable[[Object, datetime], Cell]
    type: str = "string"
    wide: bool = False
    about: str = ""

    def definition(self) -> Object:
        """Return its `TableColumnDefinition`."""
        return {
            "name": self.name,
            "type": self.type,
            "format": "name" if self.name == "Name" else "",
            "description": self.about or self.name,
            "priority": 1 if self.wide else 0,
        }


def make_table(kind: Kind, items: Sequence[Object], now: datetime, version: str, include: str = "Metadata") -> Object:
    """Return the Table of `items`; `include` is the query parameter includeObject: None, Metadata or Object."""
    columns = columns_of(kind)
    return {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": {"resourceVersion": version},
        "columnDefinitions": [one.definition() for one in columns],
        "rows": [{"cells": [one.cell(item, now) for one in columns], **_row_object(item, include)} for item in items],
    }


def columns_of(kind: Kind) -> Sequence[Column]:
    """Return the columns of a kind, `Name` and `Age` included."""
    return _CORE.get(kind) or _defined(kind)


def human_duration(seconds: float) -> str:
    """Return a duration as kubectl shows it: `12s`, `5m30s`, `125m`, `3h15m`, `2d3h`, `400d`."""
    whole = int(seconds)
    if whole < 0:
        return "0s" if whole >= -1 else "<invalid>"
    if whole < 120:
        return f"{whole}s"
    minutes, hours, days = whole // 60, whole // 3600, whole // 86400
    if minutes < 10:
        return _two(minutes, "m", whole % 60, "s")
    if minutes < 180:
        return f"{minutes}m"
    if hours < 8:
        return _two(hours, "h", minutes % 60, "m")
    if hours < 48:
        return f"{hours}h"
    if days < 8:
        return _two(days, "d", hours % 24, "h")
    if days < 730:
        return f"{days}d"
    return _two(days // 365, "y", days % 365, "d") if days < 2920 else f"{days // 365}y"


def _two(large: int, unit: str, small: int, smaller_unit: str) -> str:
    return f"{large}{unit}{small}{smaller_unit}" if small else f"{large}{unit}"


def _since(stamp: object, now: datetime) -> str:
    """Return how long ago a timestamp of an object was."""
    if not isinstance(stamp, str) or not stamp:
        return UNKNOWN
    try:
        at = parse_timestamp(stamp)
    except ValueError:
        return "<invalid>"
    return human_duration((now - (at if at.tzinfo else at.replace(tzinfo=UTC))).total_seconds())


def _at(obj: Object, *path: str) -> Any:
    """Return the value at a path of maps; None when one of them is absent."""
    value: Any = obj
    for part in path:
        value = value.get(part) if isinstance(value, dict) else None
    return value


def _text(*path: str) -> Callable[[Object, datetime], Cell]:
    return lambda obj, _: str(_at(obj, *path) or "")


def _number(*path: str) -> Callable[[Object, datetime], Cell]:
    return lambda obj, _: int(_at(obj, *path) or 0)


def _or_none(*path: str) -> Callable[[Object, datetime], Cell]:
    return lambda obj, _: str(_at(obj, *path) or NONE)


def _statuses(pod: Object) -> list[Object]:
    return list(_at(pod, "status", "containerStatuses") or ())


def _pod_ready(pod: Object, _: datetime) -> Cell:
    ready = sum(bool(one.get("ready")) and "running" in (one.get("state") or {}) for one in _statuses(pod))
    return f"{ready}/{len(_at(pod, 'spec', 'containers') or ())}"


def _node_status(node: Object, _: datetime) -> Cell:
    return "Ready" if is_true(node, "Ready") else "NotReady"


def _pod_status(pod: Object, _: datetime) -> Cell:
    phase = str(_at(pod, "status", "phase") or "")
    if is_deleting(pod) and phase not in ("Failed", "Succeeded"):
        return "Terminating"
    reason, failure, runs = str(_at(pod, "status", "reason") or phase), "", False
    for one in reversed(_statuses(pod)):
        state = one.get("state") or {}
        if waiting := (state.get("waiting") or {}).get("reason"):
            reason = str(waiting)
        elif ended := state.get("terminated"):
            code, signal = ended.get("exitCode", 0), ended.get("signal")
            reason = str(ended.get("reason") or (f"Signal:{signal}" if signal else f"ExitCode:{code}"))
            failure = reason if code else failure
        elif one.get("ready") and "running" in state:
            runs = True
    if reason != "Completed":
        return reason
    is_ready = any(one["type"] == "Ready" and one["status"] == "True" for one in conditions_of(pod))
    return "Running" if runs and is_ready else failure or ("NotReady" if runs else reason)


def _pod_restarts(pod: Object, now: datetime) -> Cell:
    restarts = sum(int(one.get("restartCount") or 0) for one in _statuses(pod))
    ended = [_at(one, "lastState", "terminated", "finishedAt") or "" for one in _statuses(pod)]
    last = max(ended, default="")
    return f"{restarts} ({_since(last, now)} ago)" if restarts and last else str(restarts)


def _readiness_gates(pod: Object, _: datetime) -> Cell:
    gates = _at(pod, "spec", "readinessGates") or ()
    passed = {one["type"] for one in conditions_of(pod) if one["status"] == "True"}
    return f"{sum(one.get('conditionType') in passed for one in gates)}/{len(gates)}" if gates else NONE


def _of_containers(field: str) -> Callable[[Object, datetime], Cell]:
    def read(obj: Object, _: datetime) -> Cell:
        containers = _at(obj, "spec", "template", "spec", "containers") or ()
        return ",".join(str(one.get(field) or "") for one in containers)

    return read


def _label_selector(obj: Object, _: datetime) -> Cell:
    labels = _at(obj, "spec", "selector", "matchLabels") or {}
    return ",".join(f"{name}={labels[name]}" for name in sorted(labels)) or NONE


def _ports(service: Object, _: datetime) -> Cell:
    ports = _at(service, "spec", "ports") or ()
    return ",".join(f"{one.get('port')}/{one.get('protocol') or 'TCP'}" for one in ports) or NONE


def _last_seen(event: Object, now: datetime) -> Cell:
    last = _at(event, "series", "lastObservedTime") or event.get("lastTimestamp")
    return _since(last, now) if last else _first_seen(event, now)


def _first_seen(event: Object, now: datetime) -> Cell:
    return _since(event.get("firstTimestamp") or event.get("eventTime"), now)


def _involved(event: Object, _: datetime) -> Cell:
    about = event.get("involvedObject") or {}
    kind, name = str(about.get("kind") or "").lower(), about.get("name")
    return f"{kind}/{name}" if name else kind


def _event_source(event: Object, _: datetime) -> Cell:
    source = event.get("source") or {}
    component = source.get("component") or event.get("reportingComponent") or ""
    host = source.get("host") or event.get("reportingInstance") or ""
    return f"{component}, {host}" if host else str(component)


def _count(event: Object, _: datetime) -> Cell:
    return int(_at(event, "series", "count") or event.get("count") or 1)


NAME: Final = Column("Name", lambda obj, _: name_of(obj), about="Name of the object, unique within its namespace.")
AGE: Final = Column(
    "Age", lambda obj, now: _since(obj["metadata"].get("creationTimestamp"), now), about="Time since its creation."
)
_TEMPLATE: Final = (
    Column("Containers", _of_containers("name"), wide=True),
    Column("Images", _of_containers("image"), wide=True),
    Column("Selector", _label_selector, wide=True),
)

_CORE: Final[dict[Kind, Sequence[Column]]] = {
    NAMESPACE: (NAME, Column("Status", lambda obj, _: str(_at(obj, "status", "phase") or "Active")), AGE),
    SECRET: (
        NAME,
        Column("Type", lambda obj, _: str(obj.get("type") or "Opaque")),
        Column("Data", lambda obj, _: len({*(obj.get("data") or ()), *(obj.get("stringData") or ())})),
        AGE,
    ),
    CONFIG_MAP: (
        NAME,
        Column("Data", lambda obj, _: len(obj.get("data") or ()) + len(obj.get("binaryData") or ())),
        AGE,
    ),
    NODE: (NAME, Column("Status", _node_status), AGE),
    POD: (
        NAME,
        Column("Ready", _pod_ready),
        Column("Status", _pod_status),
        Column("Restarts", _pod_restarts),
        AGE,
        Column("IP", _or_none("status", "podIP"), wide=True),
        Column("Node", _or_none("spec", "nodeName"), wide=True),
        Column("Nominated Node", _or_none("status", "nominatedNodeName"), wide=True),
        Column("Readiness Gates", _readiness_gates, wide=True),
    ),
    CORE_SERVICE: (
        NAME,
        Column("Type", _text("spec", "type")),
        Column("Cluster-IP", _or_none("spec", "clusterIP")),
        Column("External-IP", _or_none("spec", "externalName")),
        Column("Port(s)", _ports),
        AGE,
    ),
    EVENT: (
        Column("Last Seen", _last_seen),
        Column("Type", _text("type")),
        Column("Reason", _text("reason")),
        Column("Object", _involved),
        Column("Subobject", _text("involvedObject", "fieldPath"), wide=True),
        Column("Source", _event_source, wide=True),
        Column("Message", lambda obj, _: str(obj.get("message") or "").strip()),
        Column("First Seen", _first_seen, wide=True),
        Column("Count", _count, wide=True),
        Column("Name", NAME.cell, wide=True),
    ),
    DEPLOYMENT: (
        NAME,
        Column(
            "Ready",
            lambda obj, _: f"{_at(obj, 'status', 'readyReplicas') or 0}/{_at(obj, 'spec', 'replicas') or 0}",
        ),
        Column("Up-to-date", _number("status", "updatedReplicas")),
        Column("Available", _number("status", "availableReplicas")),
        AGE,
        *_TEMPLATE,
    ),
    REPLICA_SET: (
        NAME,
        Column("Desired", _number("spec", "replicas")),
        Column("Current", _number("status", "replicas")),
        Column("Ready", _number("status", "readyReplicas")),
        AGE,
        *_TEMPLATE,
    ),
    LEASE: (NAME, Column("Holder", _text("spec", "holderIdentity")), AGE),
}

_READY: Final = (
    column("Ready", ".status.conditions[?(@.type=='Ready')].status", "Status of the condition Ready"),
    column("Reason", ".status.conditions[?(@.type=='Ready')].reason", "Reason of the condition Ready"),
)
_URL: Final = column("URL", ".status.url", "Public address")
_LATEST: Final = (
    column("LatestCreated", ".status.latestCreatedRevisionName", "Newest Revision"),
    column("LatestReady", ".status.latestReadyRevisionName", "Newest Revision that became ready"),
)
_LABEL: Final = r".metadata.labels['serving\.knative\.dev/{}']"

_KNATIVE: Final[dict[Kind, Sequence[Object]]] = {
    SERVICE: (_URL, *_LATEST, *_READY),
    CONFIGURATION: (*_LATEST, *_READY),
    REVISION: (
        column("Config Name", _LABEL.format("configuration"), "Its Configuration"),
        column("Generation", _LABEL.format("configurationGeneration"), "Generation of its Configuration"),
        *_READY,
        column("Actual Replicas", ".status.actualReplicas", "Ready replicas", "integer"),
        column("Desired Replicas", ".status.desiredReplicas", "Wanted replicas", "integer"),
    ),
    ROUTE: (_URL, *_READY),
    POD_AUTOSCALER: (
        column("DesiredScale", ".status.desiredScale", "Wanted replicas", "integer"),
        column("ActualScale", ".status.actualScale", "Ready replicas", "integer"),
        *_READY,
    ),
    SERVERLESS_SERVICE: (
        column("Mode", ".spec.mode", "Proxy or Serve"),
        column("Activators", ".spec.numActivators", "Activators in the path", "integer"),
        column("ServiceName", ".status.serviceName", "Public Service"),
        column("PrivateServiceName", ".status.privateServiceName", "Private Service"),
        *_READY,
    ),
    INGRESS: _READY,
}
"""`additionalPrinterColumns` of Knative's own definitions."""


@cache
def _defined(kind: Kind) -> Sequence[Column]:
    """Return the columns of a kind that a CustomResourceDefinition adds."""
    columns = COLUMNS.get(kind) or _KNATIVE.get(kind)
    return (NAME, *map(_from_definition, columns)) if columns else (NAME, AGE)


def _from_definition(shown: Object) -> Column:
    """Return a column as a definition describes it; its path is JSONPath as Kubernetes writes it."""
    path = jsonpath.compile("$" + shown["jsonPath"].replace("\\.", "."))
    read = _CONVERTERS[shown["type"]]

    def cell(obj: Object, now: datetime) -> Cell:
        found = path.findall(obj)
        return read(found[0], now) if found and found[0] is not None else None

    # kubectl shows what Kubernetes calls a date as the age that the server computes
    kind = "string" if shown["type"] == "date" else shown["type"]
    return Column(shown["name"], cell, kind, shown.get("priority", 0) > 0, shown["description"])


def _as_text(value: Any, _: datetime) -> Cell:
    return value if isinstance(value, str) else json.dumps(value, separators=(",", ":"))


def _as_integer(value: Any, _: datetime) -> Cell:
    return int(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


_CONVERTERS: Final[dict[str, Callable[[Any, datetime], Cell]]] = {
    "string": _as_text,
    "integer": _as_integer,
    "date": lambda value, now: _since(value, now),
}


def _row_object(item: Object, include: str) -> Object:
    if include == "None":
        return {}
    if include == "Object":
        return {"object": item}
    partial = {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": item["metadata"]}
    return {"object": partial}
