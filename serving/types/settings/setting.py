"""One setting: what a person should know of it, where it lives, and how a value for it is read and checked. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, TypeVar

from clusters.base.durations import parse_duration
from clusters.base.errors import KnodelError

T = TypeVar("T")

VARIABLE_PREFIX = "KNODEL_"
LARGEST_PORT = 65535


class SettingsError(KnodelError):
    """A setting that is unknown, of the wrong type or out of bounds; the message begins with its key."""


@dataclass(frozen=True, slots=True)
class About:
    """What a person should know of a setting, and what it accepts. A `unit` of "s" is written as a duration.

    A text may be empty only where its default is.
    """

    unit: str
    reason: str
    least: float | None = None
    most: float | None = None


def setting(
    default: T,
    unit: str,
    reason: str,
    least: float | None = None,
    most: float | None = None,
) -> T:
    """The declaration of a setting, as a field of its group's dataclass."""
    value: T = field(default=default, metadata={"about": About(unit, reason, least, most)})
    return value


def port_setting(default: int, reason: str) -> int:
    """The declaration of a TCP port."""
    return setting(default, "port", reason, 1, LARGEST_PORT)


@dataclass(frozen=True, slots=True)
class Slot:
    """Where a key's value lives, and how it is read."""

    key: str
    group: str
    name: str
    type: type
    about: About
    default: Any

    @property
    def variable(self) -> str:
        """Its environment variable."""
        return VARIABLE_PREFIX + f"{self.group}_{self.name}".upper()


def from_variable(slot: Slot, text: str) -> Any:
    """A variable's text as the file would have it. Raises SettingsError."""
    if slot.type is int:
        try:
            return int(text)
        except ValueError:
            raise SettingsError(f"{slot.key}: {text[:40]!r} in {slot.variable} is no whole number") from None
    return text


def read_value(slot: Slot, value: Any) -> Any:
    """The checked value; durations become seconds. Raises SettingsError."""
    if slot.about.unit == "s":
        return _within(slot, _seconds(slot, value))
    if slot.type is int:
        if isinstance(value, bool) or not isinstance(value, int):
            raise SettingsError(f"{slot.key}: {value!r} is no whole number ({slot.about.unit})")
        return _within(slot, value)
    if not isinstance(value, str) or (not value.strip() and slot.default):
        raise SettingsError(f"{slot.key}: {value!r} is no text ({slot.about.unit})")
    return value


def _seconds(slot: Slot, value: Any) -> float:
    try:
        if isinstance(value, str):
            return parse_duration(value)
    except ValueError as error:
        raise SettingsError(f"{slot.key}: {value!r} {error}") from error
    raise SettingsError(f"{slot.key}: {value!r} is no duration: write it with a unit, as in 10s")


def _within(slot: Slot, value: float) -> float:
    least, most = slot.about.least, slot.about.most
    if (least is not None and value < least) or (most is not None and value > most):
        raise SettingsError(f"{slot.key}: {value} is out of bounds: {least:g} to {most:g} ({slot.about.unit})")
    return value
