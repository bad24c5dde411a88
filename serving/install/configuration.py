"""The ConfigMap `knodel-config`: which text an installation writes, and which it leaves unchanged. Pure.

ConfigMap            its text                              becomes
absent               –                                     the overlay's, with the ingress that was found
of an installation   as the installation wrote it          as above
any                  edited, or not of an installation      unchanged; absent gateway keys are filled in
"""

from __future__ import annotations

import hashlib
from typing import Any

import yaml

from clusters.base.objects import CONFIG_MAP, Kind, Object, annotations_of, name_of, version_of
from clusters.net.strict_yaml import load_documents
from serving.install.bundle import BadManifests
from serving.install.knative import Ingress
from serving.types.settings.settings import Settings, settings_from_text

NAME = "knodel-config"
KEY = "config.yaml"
GATEWAY_KEYS = ("address", "port", "domain")
"""Keys that an installation fills in if they are not set."""
ANNOTATION_INSTALLED = "knodel.dev/installed"
"""Annotation of the ConfigMap: digest of the text that an installation wrote (`9f2c4a81d0e1b7c3`), to detect edits."""
DIGEST_LENGTH = 16
"""Hexadecimal digits: enough to detect an edit, not an attack."""


def is_settings(kind: Kind, obj: Object) -> bool:
    """Return whether the object is the ConfigMap of settings."""
    return kind is CONFIG_MAP and name_of(obj) == NAME


def settings_of(config_map: Object) -> Settings:
    """Return the settings in the ConfigMap. Raises SettingsError, LoadError."""
    return settings_from_text(_text(config_map), f"ConfigMap {NAME}")


def lacks_gateway(wanted: Object, live: Object | None) -> bool:
    """Return whether the effective text lacks a gateway key, so that the ingress must be found."""
    gateway = _gateway(_parsed(_base(wanted, live)))
    return any(key not in gateway for key in GATEWAY_KEYS)


def with_settings(wanted: Object, live: Object | None, ingress: Ingress) -> Object:
    """Return the ConfigMap to apply, from the overlay's `wanted` and the `live`. Raises SettingsError, LoadError."""
    text = _filled(_base(wanted, live), ingress)
    metadata = dict(wanted["metadata"])
    if live is None or _is_ours(live):
        metadata["annotations"] = {**annotations_of(wanted), ANNOTATION_INSTALLED: _digest(text)}
    if live is not None:
        metadata["resourceVersion"] = version_of(live)  # no concurrent edit is lost
    made = {**wanted, "metadata": metadata, "data": {KEY: text}}
    settings_of(made)  # invalid settings are not applied
    return made


def _base(wanted: Object, live: Object | None) -> str:
    """Return the edited text if there is one, else the overlay's."""
    return _text(wanted if live is None or _is_ours(live) else live)


def _filled(text: str, ingress: Ingress) -> str:
    """Return the text with absent gateway keys filled in."""
    settings = _parsed(text)
    gateway = _gateway(settings)
    found = dict(zip(GATEWAY_KEYS, (ingress.address, ingress.port, ingress.domain), strict=True))
    missing = {key: value for key, value in found.items() if value and key not in gateway}
    if not missing:
        return text
    return yaml.safe_dump({**settings, "gateway": {**gateway, **missing}}, sort_keys=False)


def _parsed(text: str) -> dict[str, Any]:
    settings_from_text(text, f"ConfigMap {NAME}")  # raises with the fault
    documents = load_documents(text, f"ConfigMap {NAME}")
    return (documents[0] if documents else None) or {}


def _gateway(settings: dict[str, Any]) -> dict[str, Any]:
    return settings.get("gateway") or {}


def _is_ours(live: Object) -> bool:
    return annotations_of(live).get(ANNOTATION_INSTALLED) == _digest(_text(live))


def _text(config_map: Object) -> str:
    text = (config_map.get("data") or {}).get(KEY, "")
    if not isinstance(text, str):
        raise BadManifests(f"ConfigMap {NAME}: {KEY} is not a string")
    return text


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:DIGEST_LENGTH]
