"""Columns of `knodel list`, `knodel get` and `knodel pool list`, and ages of objects."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime

from autoscaler.warmpool.claims.classes import DEFAULT_FORMAT
from autoscaler.warmpool.spec import AUTO
from clusters.base.objects import MODEL, WARM_POOL, Kind, Object, condition_of, parse_timestamp

Cell = str | int


@dataclass(frozen=True, slots=True)
class ModelColumn:
    """A column: its title and the function that reads its cell from an object. `wide` columns need `-o wide`."""

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


def _version(obj: Object) -> Cell:
    """Return the label of the version with the largest share, as the definition's printer column has it."""
    entries = (obj.get("status") or {}).get("traffic") or ()
    return str(entries[0].get("version", "")) if entries else ""


def _storage(obj: Object) -> Cell:
    """Return where the version that `_version` names has its artifact, by the history; else that of the spec."""
    status = obj.get("status") or {}
    main = next((entry.get("revision") for entry in status.get("traffic") or ()), None)
    records = [one for one in status.get("history") or () if one.get("revision") == main]
    return str((records[-1].get("storageUri") if records else "") or (obj.get("spec") or {}).get("storageUri", ""))


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


def format_of_pool(pool: Object) -> str:
    """Return the format whose engine the members of a WarmPool have loaded."""
    template = (pool.get("spec") or {}).get("template") or {}
    return str(template.get("modelFormat") or DEFAULT_FORMAT)


def _pool_note(obj: Object) -> Cell:
    """Return the reason for an empty pool, else the last reason for its size."""
    status = obj.get("status") or {}
    reasons = status.get("reasons") or ("",)
    return str((status.get("seed") or {}).get("message") or reasons[-1])


READY = ModelColumn("Ready", _ready)
REASON = ModelColumn("Reason", _reason)

URL = "URL"  # of the column; the command shows an address that resolves on this machine

COLUMNS: dict[Kind, Sequence[ModelColumn]] = {
    MODEL: (
        READY,
        REASON,
        ModelColumn("Replicas", _replicas),
        ModelColumn("Traffic", _traffic),
        ModelColumn("Version", _version),
        ModelColumn("Rollout", _status("rollout", "phase")),
        ModelColumn(URL, _status("url")),
        ModelColumn("Storage", _storage, wide=True),
    ),
    WARM_POOL: (
        ModelColumn("Format", format_of_pool),
        ModelColumn("Size", lambda obj: str((obj.get("spec") or {}).get("size", AUTO))),
        ModelColumn("Wanted", _status("size"), type="integer"),
        ModelColumn("Ready", _status("ready"), type="integer"),
        ModelColumn("Starting", _status("starting"), type="integer"),
        ModelColumn("Claimed", _status("claimed"), type="integer"),
        ModelColumn("Note", _pool_note),
    ),
}


def columns_of(kind: Kind) -> Sequence[ModelColumn]:
    """Return the columns between name and age; Model and WarmPool have some."""
    return COLUMNS[kind]


def age_of(obj: Object, now: datetime) -> str:
    """Return the age of an object as kubectl shows it: `12s`, `5m`, `3h`, `2d`."""
    created = obj["metadata"].get("creationTimestamp")
    if not created:
        return ""
    seconds = max(0, int((now - parse_timestamp(created)).total_seconds()))
    for unit, length in (("d", 86_400), ("h", 3_600), ("m", 60)):
        if seconds >= 2 * length:
            return f"{seconds // length}{unit}"
    return f"{seconds}s"
