"""Named runtimes of a platform: images that serve certain models instead of the default image. Pure.

    runtimes:
      tensorflow: {image: registry.example.org/knodel-server:1.0-tensorflow}

A Model uses the runtime of `spec.runtime.name`, or else the one with the name of its `modelFormat`, or else
`server.image`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from serving.types.faults import label_fault
from serving.types.settings.setting import SettingsError

GROUP: Final = "runtimes"
"""The section of the settings."""
_IMAGE: Final = "image"


@dataclass(frozen=True, slots=True)
class Runtime:
    """An image with Knodel's model server, built for certain formats."""

    name: str
    image: str


def read_runtimes(given: Mapping[str, Any]) -> tuple[Runtime, ...]:
    """Read the section. Return the runtimes in the order of their names. Raises SettingsError."""
    return tuple(_runtime(name, value) for name, value in sorted(given.items()))


def runtimes_to_dict(runtimes: tuple[Runtime, ...]) -> dict[str, Any]:
    """Return the section with these runtimes."""
    return {one.name: {_IMAGE: one.image} for one in runtimes}


def runtime_of(runtimes: tuple[Runtime, ...], name: str, model_format: str) -> Runtime | None:
    """Return the runtime `name`, or without a name that of the format; None for the default image."""
    return next((one for one in runtimes if one.name == (name or model_format)), None)


def runtime_fault(runtimes: tuple[Runtime, ...], name: str) -> str:
    """Return the fault of a Model's runtime name; empty for a known or empty name."""
    if not name or runtime_of(runtimes, name, "") is not None:
        return ""
    known = ", ".join(one.name for one in runtimes) or "none"
    return f"{name} is not a runtime of this platform: set {GROUP}.{name}.{_IMAGE}, or use one of: {known}"


def _runtime(name: str, value: Any) -> Runtime:
    key = f"{GROUP}.{name}"
    if fault := label_fault(name):
        raise SettingsError(f"{key}: the name {fault}")
    if not isinstance(value, Mapping) or set(value) != {_IMAGE}:
        raise SettingsError(f"{key}: must be a mapping with one key, as in {name}: {{{_IMAGE}: IMAGE}}")
    image = value[_IMAGE]
    if not isinstance(image, str) or not image.strip():
        raise SettingsError(f"{key}.{_IMAGE}: {image!r} is not a text ({_IMAGE})")
    return Runtime(name, image)
