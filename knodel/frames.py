"""Data frames as inputs of a model. Pure; pandas and other libraries with its methods."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def is_frame(value: object) -> bool:
    """Return whether the value is a data frame."""
    return hasattr(value, "columns") and hasattr(value, "to_numpy")


def wrong_names(given: Sequence[str], wanted: Sequence[str]) -> str:
    """Return which names are missing and which are unknown, "" if they are the wanted ones in any order.

    Example:
        >>> wrong_names(["Age", "city"], ["age", "city"])
        "'age' is missing, 'Age' is unknown"
    """
    wrong = [f"{name!r} is missing" for name in wanted if name not in given]
    return ", ".join(wrong + [f"{name!r} is unknown" for name in given if name not in wanted])


def in_order(frame: Any, columns: Sequence[str]) -> Any:
    """Return the frame with the columns of the model's training data, in their order.

    The frame is returned unchanged if these are not known, or if it only numbers its columns. Raises ValueError with
    the wrong names. LightGBM replaces spaces in names, so `total spend` is the column `total_spend`.
    """
    labels = list(frame.columns)
    names = [str(label) for label in labels]
    if not columns or names == [str(index) for index in range(len(names))]:
        return frame
    places = {}
    for index, name in enumerate(names):
        plain = name.replace(" ", "_")
        places[name if name in columns or plain in names else plain] = index
    if wrong := wrong_names(list(places), columns):
        raise ValueError(f"{wrong}: the columns of the model are {', '.join(columns)}")
    return frame[[labels[places[name]] for name in columns]]
