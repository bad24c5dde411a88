"""The section `autoscaler` of knodel-config: the few settings that operators may change. Pure.

    autoscaler:
      scaleToZeroGrace: 10s            from the proof that the activator is in the path to scale 0
      activatorPollInterval: 25ms      between two polls of the activators while a revision is at zero
      activatorNamespace: knative-serving
      clusterDomain: cluster.local     suffix of the names of Services

The section `gpu` is that of `autoscaler.gpu.settings`. Other sections belong to other programs;
`serving.types.settings.settings` rejects unknown ones.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from autoscaler.config import AutoscalerSettings, InvalidSettings, Zero
from autoscaler.gpu.claims import AllocationSettings
from autoscaler.gpu.settings import SECTION as GPU_SECTION
from autoscaler.gpu.settings import read_allocation
from clusters.base.durations import parse_duration
from clusters.base.errors import KnodelError
from clusters.base.redact import one_line
from clusters.net.strict_yaml import LoadError, load_documents

SECTION: Final = "autoscaler"
GRACE: Final = 10.0
"""Seconds. Gateways follow a Service's endpoints within one or two seconds; Knative allows them 30 s."""
_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", re.ASCII)
_DOMAIN = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?", re.ASCII)


class BadSettings(KnodelError):
    """Raised for an invalid section; the message begins with the key."""


@dataclass(frozen=True, slots=True)
class FileSettings:
    """The settings of one process."""

    settings: AutoscalerSettings = field(default_factory=lambda: AutoscalerSettings(zero=Zero(grace=GRACE)))
    activator_namespace: str = "knative-serving"
    cluster_domain: str = "cluster.local"
    gpus: AllocationSettings = field(default_factory=AllocationSettings)


def read_settings(text: str, where: str) -> FileSettings:
    """Return the settings of the YAML `text`, with defaults for missing keys. `where` names the text in errors.

    Raises BadSettings.
    """
    try:
        documents = load_documents(text, where)
    except LoadError as error:
        raise BadSettings(f"{where} is not YAML: {one_line(str(error)).removeprefix(f'{where}: ')}") from error
    if len(documents) > 1:
        raise BadSettings(f"{where} is not YAML: it has {len(documents)} documents, and one is expected")
    document = documents[0] if documents else None
    if document is not None and not isinstance(document, dict):
        raise BadSettings(f"{where}: expected sections of settings")
    section = (document or {}).get(SECTION)
    if section is not None and not isinstance(section, dict):
        raise BadSettings(f"{SECTION}: expected settings, such as {SECTION}: {{scaleToZeroGrace: 10s}} ({where})")
    given = dict(section or {})
    taken = FileSettings()
    settings = taken.settings
    if (grace := _seconds(given, "scaleToZeroGrace")) is not None:
        settings = _changed(settings, "scaleToZeroGrace", zero=replace(settings.zero, grace=grace))
    if (poll := _seconds(given, "activatorPollInterval")) is not None:
        idle_poll = max(poll, settings.activators.idle_poll)
        activators = replace(settings.activators, poll=poll, idle_poll=idle_poll)
        settings = _changed(settings, "activatorPollInterval", activators=activators)
    namespace = _name(given, "activatorNamespace", _NAME) or taken.activator_namespace
    domain = _name(given, "clusterDomain", _DOMAIN) or taken.cluster_domain
    if given:
        raise BadSettings(
            f"{SECTION}.{next(iter(given))}: unknown setting in {where}; known: scaleToZeroGrace, "
            "activatorPollInterval, activatorNamespace, clusterDomain"
        )
    return FileSettings(settings, namespace, domain, _read_gpus(document or {}))


def _read_gpus(document: Mapping[str, Any]) -> AllocationSettings:
    """Return the section `gpu`, with the prices of GPUs."""
    prices = document.get("prices")
    found: dict[str, float] = {}
    for name in ("gpu", "gpuTypes"):  # `serving.types.settings.prices` reports faulty prices
        listed = prices.get(name) if isinstance(prices, Mapping) else None
        given = listed if isinstance(listed, Mapping) else {}
        found |= {str(one): float(price) for one, price in given.items() if isinstance(price, int | float)}
    try:
        return read_allocation(document.get(GPU_SECTION), found)
    except ValueError as error:
        raise BadSettings(str(error)) from error


def _changed(settings: AutoscalerSettings, key: str, **group: Any) -> AutoscalerSettings:
    try:
        return replace(settings, **group)
    except InvalidSettings as error:
        raise BadSettings(f"{SECTION}.{key}: {error}") from error


def _seconds(given: dict[str, Any], key: str) -> float | None:
    value = given.pop(key, None)
    if value is None:
        return None
    try:
        return parse_duration(str(value))
    except ValueError as error:
        raise BadSettings(f"{SECTION}.{key}: {error}, not {str(value)!r}") from error


def _name(given: dict[str, Any], key: str, allowed: re.Pattern[str]) -> str:
    value = given.pop(key, None)
    if value is None:
        return ""
    if not isinstance(value, str) or not allowed.fullmatch(value):
        raise BadSettings(f"{SECTION}.{key}: must be a name of a-z, 0-9 and '-', not {value!r}")
    return value
