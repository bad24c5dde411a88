"""Objects as `meta.k8s.io/v1 Table`, which is what `kubectl get` prints; the same columns serve `knodel list`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime

from autoscaler.warmpool.defaults import AUTO
from clusters.objects import (
    INGRESS,
    MODEL,
    NAMESPACE,
    POD,
    POD_AUTOSCALER,
    REVISION,
    SECRET,
    SERVERLESS_SERVICE,
    WARM_POOL,
    Kind,
    Object,
    condition_of,
    name_of,
    parse_timestamp,
)

Cell = str | int


@dataclass(frozen=True, slots=True)
class Column:
    """One column: its head, and how a cell is read from an object. `wide` ones show with `-o wide` only."""

    name: str
    cell: Callable[[Object], Cell]
    type: str = "string"
    wide: bool = False


def _ready(obj: Object) -> Cell:
    return str((condition_of(obj, "Ready") or {}).get("status", "Unknown"))


def _reason(obj: Object) -> Cell:
    return str((condition_of(obj, "Ready") or {}).get("reason", ""))


def _traffic(obj: Object) -> Cell:
    entries = (obj.get("status") or {}).get("traffic") or ()
    shares = [f"{entry.get('revision', entry.get('revisionName', '?'))}={entry.get('percent', 0)}" for entry in entries]
    return ",".join(shares)


def _replicas(obj: Object) -> Cell:
    replicas = (obj.get("status") or {}).get("replicas") or {}
    return f"{replicas.get('ready', 0)}/{replicas.get('desired', 0)}"


def _status(*path: str) -> Callable[[Object], Cell]:
    def read(obj: Object) -> Cell:
        value = obj.get("status") or {}
        for part in path:
            value = value.get(part, "") if isinstance(value, dict) else ""
        return value if isinstance(value, int) else str(value)

    return read


def _spec(name: str) -> Callable[[Object], Cell]:
    return lambda obj: str((obj.get("spec") or {}).get(name, ""))


def _restarts(obj: Object) -> Cell:
    return sum(int(one.get("restartCount", 0)) for one in (obj.get("status") or {}).get("containerStatuses") or ())


def _pool_note(obj: Object) -> Cell:
    """What keeps the members away, else the last reason, which is what had the last word on their number."""
    status = obj.get("status") or {}
    reasons = status.get("reasons") or ("",)
    return str((status.get("seed") or {}).get("message") or reasons[-1])


READY = Column("Ready", _ready)
REASON = Column("Reason", _reason)

URL = "URL"  # of the column; the command shows an address that resolves on this machine

COLUMNS: dict[Kind, Sequence[Column]] = {
    MODEL: (
        READY,
        REASON,
        Column("Replicas", _replicas),
        Column("Traffic", _traffic),
        Column("Version", _spec("version")),
        Column("Rollout", _status("rollout", "phase")),
        Column(URL, _status("url")),
        Column("Storage", _spec("storageUri"), wide=True),
    ),
    WARM_POOL: (
        Column("Size", lambda obj: str((obj.get("spec") or {}).get("size", AUTO))),
        Column("Wanted", _status("size"), type="integer"),
        Column("Ready", _status("ready"), type="integer"),
        Column("Starting", _status("starting"), type="integer"),
        Column("Claimed", _status("claimed"), type="integer"),
        Column("Note", _pool_note),
    ),
    NAMESPACE: (Column("Status", lambda obj: str((obj.get("status") or {}).get("phase", "Active"))),),
    SECRET: (
        Column("Type", lambda obj: str(obj.get("type") or "Opaque")),
        Column("Data", lambda obj: len({*(obj.get("data") or ()), *(obj.get("stringData") or ())}), type="integer"),
    ),
    POD: (
        READY,
        Column("Status", _status("phase")),
        Column("Restarts", _restarts, type="integer"),
    ),
    REVISION: (
        READY,
        REASON,
        Column("Actual Replicas", _status("actualReplicas"), type="integer"),
        Column("Desired Replicas", _status("desiredReplicas"), type="integer"),
    ),
    POD_AUTOSCALER: (
        Column("DesiredScale", _status("desiredScale"), type="integer"),
        Column("ActualScale", _status("actualScale"), type="integer"),
        READY,
        REASON,
    ),
    SERVERLESS_SERVICE: (Column("Mode", _spec("mode")), READY, REASON),
    INGRESS: (READY, REASON),
}
DEFAULT_COLUMNS = (READY, REASON)


def columns_of(kind: Kind) -> Sequence[Column]:
    """The columns between Name and Age."""
    if kind in COLUMNS:
        return COLUMNS[kind]
    return DEFAULT_COLUMNS if kind.status else ()


def make_table(kind: Kind, items: Sequence[Object], now: datetime, version: str, include: str = "Metadata") -> Object:
    """The Table of `items`; `include` is the query parameter includeObject: None, Metadata or Object."""
    columns = columns_of(kind)
    heads = [Column("Name", name_of), *columns, Column("Age", lambda obj: age_of(obj, now))]
    return {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": {"resourceVersion": version},
        "columnDefinitions": [_definition(head) for head in heads],
        "rows": [{"cells": [head.cell(item) for head in heads], **_row_object(item, include)} for item in items],
    }


def age_of(obj: Object, now: datetime) -> str:
    """How old an object is, as kubectl writes it: `12s`, `5m`, `3h`, `2d`."""
    created = obj["metadata"].get("creationTimestamp")
    if not created:
        return ""
    seconds = max(0, int((now - parse_timestamp(created)).total_seconds()))
    for unit, length in (("d", 86_400), ("h", 3_600), ("m", 60)):
        if seconds >= 2 * length:
            return f"{seconds // length}{unit}"
    return f"{seconds}s"


def _definition(column: Column) -> Object:
    return {
        "name": column.name,
        "type": column.type,
        "format": "name" if column.name == "Name" else "",
        "description": column.name,
        "priority": 1 if column.wide else 0,
    }


def _row_object(item: Object, include: str) -> Object:
    if include == "None":
        return {}
    if include == "Object":
        return {"object": item}
    partial = {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": item["metadata"]}
    return {"object": partial}
