"""The ConfigMap `knodel-config`: what an installation writes into it, and what it leaves as people wrote it. Pure.

ConfigMap            its text                              becomes
absent               –                                     the overlay's, with the ingress that was found
of an installation   as the installation wrote it          as above
any                  changed by somebody, or not by us     as it is; absent gateway keys are filled in
"""

from __future__ import annotations

import hashlib
from typing import Any

import yaml

from clusters.base.objects import CONFIG_MAP, Kind, Object, annotations_of, name_of, version_of
from serving.install.bundle import BadManifests
from serving.install.knative import Ingress
from serving.types.loader import load_documents
from serving.types.settings.settings import Settings, settings_from_text

NAME = "knodel-config"
KEY = "config.yaml"
GATEWAY_KEYS = ("address", "port", "domain")
"""What an installation finds out where nobody said it."""
ANNOTATION_INSTALLED = "knodel.dev/installed"
"""On the ConfigMap: digest of the text that an installation wrote (`9f2c4a81d0e1b7c3`); another text is somebody's."""
DIGEST_LENGTH = 16
"""Hex digits: it tells an edit, not an attack."""


def is_settings(kind: Kind, obj: Object) -> bool:
    """Whether this object of an installation is the ConfigMap of settings."""
    return kind is CONFIG_MAP and name_of(obj) == NAME


def settings_of(config_map: Object) -> Settings:
    """The settings that it says. Raises SettingsError, LoadError."""
    return settings_from_text(_text(config_map), f"ConfigMap {NAME}")


def lacks_gateway(wanted: Object, live: Object | None) -> bool:
    """Whether the text in force leaves a gateway key open, so that the ingress is to be looked for."""
    gateway = _gateway(_parsed(_base(wanted, live)))
    return any(key not in gateway for key in GATEWAY_KEYS)


def with_settings(wanted: Object, live: Object | None, ingress: Ingress) -> Object:
    """The ConfigMap to apply for the overlay's `wanted`, over the `live` one. Raises SettingsError, LoadError."""
    text = _filled(_base(wanted, live), ingress)
    metadata = dict(wanted["metadata"])
    if live is None or _is_ours(live):
        metadata["annotations"] = {**annotations_of(wanted), ANNOTATION_INSTALLED: _digest(text)}
    if live is not None:
        metadata["resourceVersion"] = version_of(live)  # nobody's edit is lost in between
    made = {**wanted, "metadata": metadata, "data": {KEY: text}}
    settings_of(made)  # what nobody could read is not applied
    return made


def _base(wanted: Object, live: Object | None) -> str:
    """The text to start from: somebody's own, else the overlay's."""
    return _text(wanted if live is None or _is_ours(live) else live)


def _filled(text: str, ingress: Ingress) -> str:
    """The text with the gateway's keys where they are absent; as it is when none is."""
    settings = _parsed(text)
    gateway = _gateway(settings)
    found = dict(zip(GATEWAY_KEYS, (ingress.address, ingress.port, ingress.domain), strict=True))
    missing = {key: value for key, value in found.items() if value and key not in gateway}
    if not missing:
        return text
    return yaml.safe_dump({**settings, "gateway": {**gateway, **missing}}, sort_keys=False)


def _parsed(text: str) -> dict[str, Any]:
    settings_from_text(text, f"ConfigMap {NAME}")  # names what is wrong
    documents = load_documents(text, f"ConfigMap {NAME}")
    return (documents[0] if documents else None) or {}


def _gateway(settings: dict[str, Any]) -> dict[str, Any]:
    return settings.get("gateway") or {}


def _is_ours(live: Object) -> bool:
    return annotations_of(live).get(ANNOTATION_INSTALLED) == _digest(_text(live))


def _text(config_map: Object) -> str:
    text = (config_map.get("data") or {}).get(KEY, "")
    if not isinstance(text, str):
        raise BadManifests(f"ConfigMap {NAME}: {KEY} is no text")
    return text


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:DIGEST_LENGTH]
