"""One setting: its documentation and limits, its place, and the check of its value. Pure."""

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
class SettingInfo:
    """The documentation of a setting, and its limits. Settings with the `unit` "s" are written as durations.

    A text may be empty only when its default is empty.
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
    """Declare a setting as a field of its group's dataclass."""
    value: T = field(default=default, metadata={"about": SettingInfo(unit, reason, least, most)})
    return value


def port_setting(default: int, reason: str) -> int:
    """Declare a TCP port."""
    return setting(default, "port", reason, 1, LARGEST_PORT)


@dataclass(frozen=True, slots=True)
class SettingField:
    """The place, type and limits of a setting."""

    key: str
    group: str
    name: str
    type: type
    about: SettingInfo
    default: Any

    @property
    def variable(self) -> str:
        """Return the environment variable of the setting."""
        return VARIABLE_PREFIX + f"{self.group}_{self.name}".upper()


def from_variable(entry: SettingField, text: str) -> Any:
    """Convert the text of a variable to the type that the file has. Raises SettingsError."""
    if entry.type is int:
        try:
            return int(text)
        except ValueError:
            raise SettingsError(f"{entry.key}: {text[:40]!r} in {entry.variable} is not a whole number") from None
    return text


def read_value(entry: SettingField, value: Any) -> Any:
    """Check a value and return it, with durations in seconds. Raises SettingsError."""
    if entry.about.unit == "s":
        return _within(entry, _seconds(entry, value))
    if entry.type is int:
        if isinstance(value, bool) or not isinstance(value, int):
            raise SettingsError(f"{entry.key}: {value!r} is not a whole number ({entry.about.unit})")
        return _within(entry, value)
    if not isinstance(value, str) or (not value.strip() and entry.default):
        raise SettingsError(f"{entry.key}: {value!r} is not a text ({entry.about.unit})")
    return value


def _seconds(entry: SettingField, value: Any) -> float:
    try:
        if isinstance(value, str):
            return parse_duration(value)
    except ValueError as error:
        raise SettingsError(f"{entry.key}: {value!r} {error}") from error
    raise SettingsError(f"{entry.key}: {value!r} is not a duration: write it with a unit, as in 10s")


def _within(entry: SettingField, value: float) -> float:
    least, most = entry.about.least, entry.about.most
    if (least is not None and value < least) or (most is not None and value > most):
        raise SettingsError(f"{entry.key}: {value} is out of bounds: {least:g} to {most:g} ({entry.about.unit})")
    return value
