"""Named runtimes of a platform: images that serve some models in the place of the usual one. Pure.

    runtimes:
      tensorflow: {image: registry.example.org/knodel-server:1.0-tensorflow}

A Model gets the one that `spec.runtime.name` names, else the one of its `modelFormat`'s name, else `server.image`.
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
    """An image with our model server, built for some formats."""

    name: str
    image: str


def read_runtimes(given: Mapping[str, Any]) -> tuple[Runtime, ...]:
    """The runtimes that a section says, by name. Raises SettingsError."""
    return tuple(_runtime(name, value) for name, value in sorted(given.items()))


def runtimes_to_dict(runtimes: tuple[Runtime, ...]) -> dict[str, Any]:
    """The section that says them."""
    return {one.name: {_IMAGE: one.image} for one in runtimes}


def runtime_of(runtimes: tuple[Runtime, ...], name: str, model_format: str) -> Runtime | None:
    """The one called `name`, or without a name the one of the format; None: the usual image."""
    return next((one for one in runtimes if one.name == (name or model_format)), None)


def runtime_fault(runtimes: tuple[Runtime, ...], name: str) -> str:
    """What is wrong with the name that a Model says; empty when nothing is."""
    if not name or runtime_of(runtimes, name, "") is not None:
        return ""
    known = ", ".join(one.name for one in runtimes) or "none"
    return f"{name} is no runtime of this platform: its settings have {known} ({GROUP}.{name}.{_IMAGE} makes one)"


def _runtime(name: str, value: Any) -> Runtime:
    key = f"{GROUP}.{name}"
    if fault := label_fault(name):
        raise SettingsError(f"{key}: the name {fault}")
    if not isinstance(value, Mapping) or set(value) != {_IMAGE}:
        raise SettingsError(f"{key}: a mapping with one key is expected, as in {name}: {{{_IMAGE}: IMAGE}}")
    image = value[_IMAGE]
    if not isinstance(image, str) or not image.strip():
        raise SettingsError(f"{key}.{_IMAGE}: {image!r} is no text ({_IMAGE})")
    return Runtime(name, image)
