"""The use of a revision's GPUs as an annotation of its PodAutoscaler: the means of the last readings. Pure.

    {"at":"2026-01-01T14:00:00Z","gpu":0.43,"memory":0.61,"kvCache":0.2}

No decision is made from them. They are written together with the account, about once a minute.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from autoscaler.metrics.signals import Signals
from clusters.base.objects import Object, annotations_of, parse_timestamp, timestamp

if TYPE_CHECKING:  # its module needs a compiled package, which the command on other machines lacks
    from autoscaler.metrics.stat import Sample

SIGNALS_ANNOTATION: Final = "autoscaling.knodel.dev/signals"
VALID_FOR: Final = timedelta(minutes=5)
"""Older values are not those of the present replicas."""


def mean_signals(samples: Iterable[Sample]) -> Signals | None:
    """Return the mean of each signal over the replicas that report it; None if none reports any."""
    found = [one.signals for one in samples if one.signals is not None]
    return mean_of(found)


def mean_of(found: Iterable[Signals]) -> Signals | None:
    """Return the mean of each signal; None without any."""
    columns = [[value for value in column if value is not None] for column in zip(*found, strict=True)]
    means = [sum(values) / len(values) if values else None for values in columns]
    return Signals(*means) if any(mean is not None for mean in means) else None


def to_annotation(signals: Signals, at: datetime) -> str:
    """Return the value of the annotation."""
    known = {name: round(value, 3) for name, value in signals.to_json().items() if value is not None}
    return json.dumps({"at": timestamp(at), **known}, separators=(",", ":"))


def read_signals(obj: Object, now: datetime) -> Signals | None:
    """Return the signals on a PodAutoscaler; None without valid and recent ones."""
    try:
        document: Mapping[str, Any] = json.loads(annotations_of(obj).get(SIGNALS_ANNOTATION, "{}"))
        at = parse_timestamp(str(document["at"]))
        values = [document.get(name) for name in Signals().to_json()]
        numbers = [None if value is None else min(1.0, max(0.0, float(value))) for value in values]
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None
    return Signals(*numbers) if at is not None and now - at <= VALID_FOR else None
