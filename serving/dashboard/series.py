"""The columns of a model's charts: all versions on one axis of time. Pure."""

from __future__ import annotations

from typing import Any

from serving.dashboard.history import COARSE, FIELDS, FINE, History, SeriesName
from serving.dashboard.views.models import colour_of


def series_of(history: History, namespace: str, name: str, day: bool, now: float) -> dict[str, Any]:
    """Return `{"at": […], "from": …, "until": …, "series": [{"name", "colour", "requests": […], …}]}`.

    The first series is the model, the others are its versions, if it had several. A value is None without a reading.
    """
    step = COARSE if day else FINE
    names = ["", *history.versions(namespace, name)]
    found = {one: history.read(SeriesName(namespace, name, one), step, now) for one in names}
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
