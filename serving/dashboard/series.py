"""The columns of a model's charts: all versions on one axis of time. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from serving.dashboard.history import FIELDS, History, SeriesName, Step
from serving.dashboard.views.models import colour_of


def read_series(history: History, namespace: str, name: str, step: Step, now: float) -> dict[str, Any]:
    """Return the columns of the model ("") and of its versions, if it had several, from the rings of `history`."""
    names = ["", *history.versions(namespace, name)]
    return {one: history.read(SeriesName(namespace, name, one), step, now) for one in names}


def series_of(found: Mapping[str, Mapping[str, list[float | None]]], step: Step, now: float) -> dict[str, Any]:
    """Return `{"at": […], "from": …, "until": …, "series": [{"name", "colour", "requests": […], …}]}`.

    `found` has the columns by version. A value is None without a reading.
    """
    at = sorted({moment for columns in found.values() for moment in columns["at"] if moment is not None})
    series = []
    for one, columns in found.items():
        if one and not columns["at"]:
            continue
        places = {moment: index for index, moment in enumerate(columns["at"])}
        values = {
            name: [columns[name][places[moment]] if moment in places else None for moment in at] for name in FIELDS
        }
        series.append({"name": one, "colour": colour_of(one) if one else -1, **values})
    return {"at": at, "from": now - step.seconds * step.places, "until": now, "step": step.seconds, "series": series}
