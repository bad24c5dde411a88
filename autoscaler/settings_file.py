"""The section `autoscaler` of knodel-config: the few values that an operator may want otherwise. Pure.

    autoscaler:
      scaleToZeroGrace: 10s            from the activator's proof in the path to scale 0; gateways learn of it later
      activatorPollInterval: 25ms      between two looks at the activators while something is at zero
      activatorNamespace: knative-serving
      clusterDomain: cluster.local     how the names of Services end

All other sections are other programs'; `serving.types.settings.settings` refuses unknown ones.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

import yaml

from autoscaler.config import InvalidSettings, Settings, Zero
from clusters.base.durations import parse_duration
from clusters.base.errors import KnodelError
from clusters.base.redact import one_line

SECTION: Final = "autoscaler"
GRACE: Final = 10.0
"""s. Gateways follow a Service's endpoints within a second or two; Knative gives them 30 s."""
_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", re.ASCII)
_DOMAIN = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?", re.ASCII)


class BadSettings(KnodelError):
    """The section cannot be followed; the message begins with the key."""


@dataclass(frozen=True, slots=True)
class FileSettings:
    """What holds for one process."""

    settings: Settings = field(default_factory=lambda: Settings(zero=Zero(grace=GRACE)))
    activator_namespace: str = "knative-serving"
    cluster_domain: str = "cluster.local"


def read_settings(text: str, where: str) -> FileSettings:
    """The settings that the YAML `text` says, defaults for the rest; `where` names it in errors. Raises BadSettings."""
    given = dict(_section(text, where))
    taken = FileSettings()
    settings = taken.settings
    if (grace := _seconds(given, "scaleToZeroGrace")) is not None:
        settings = _changed(settings, "scaleToZeroGrace", zero=replace(settings.zero, grace=grace))
    if (poll := _seconds(given, "activatorPollInterval")) is not None:
        calm = max(poll, settings.activators.calm)
        activators = replace(settings.activators, poll=poll, calm=calm)
        settings = _changed(settings, "activatorPollInterval", activators=activators)
    namespace = _name(given, "activatorNamespace", _NAME) or taken.activator_namespace
    domain = _name(given, "clusterDomain", _DOMAIN) or taken.cluster_domain
    if given:
        raise BadSettings(
            f"{SECTION}.{next(iter(given))}: unknown setting in {where}; known: scaleToZeroGrace, "
            "activatorPollInterval, activatorNamespace, clusterDomain"
        )
    return FileSettings(settings, namespace, domain)


def _section(text: str, where: str) -> Mapping[str, Any]:
    try:
        document = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise BadSettings(f"{where} is no YAML: {one_line(str(error))}") from error
    if document is not None and not isinstance(document, dict):
        raise BadSettings(f"{where}: expected sections with settings in them")
    section = (document or {}).get(SECTION)
    if section is not None and not isinstance(section, dict):
        raise BadSettings(f"{SECTION}: expected settings in it, as in {SECTION}: {{scaleToZeroGrace: 10s}} ({where})")
    return section or {}


def _changed(settings: Settings, key: str, **group: Any) -> Settings:
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
