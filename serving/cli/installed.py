"""Knodel as it is installed on a cluster: the settings that its ConfigMap `knodel-config` holds."""

from __future__ import annotations

from clusters.base.errors import Forbidden, NotFound
from clusters.base.objects import CONFIG_MAP, Object
from serving.cli.base.errors import CommandError
from serving.cli.client.client import Client
from serving.types.loader import LoadError
from serving.types.settings.settings import Settings, SettingsError, settings_from_text

SYSTEM_NAMESPACE = "knodel-system"
CONFIG_NAME = "knodel-config"
CONFIG_KEY = "config.yaml"
READER = "knodel-config-reader"
"""The Role that lets people read it (manifests/base/rbac/users.yaml)."""


def installed_settings(client: Client, context: str) -> Settings:
    """The settings in force on the cluster. Raises CommandError when Knodel is not installed there, or they are bad."""
    where = f"ConfigMap {CONFIG_NAME} in namespace {SYSTEM_NAMESPACE}"
    try:
        found = client.get(CONFIG_MAP, CONFIG_NAME, SYSTEM_NAMESPACE)
    except NotFound as error:
        raise CommandError(
            f"the cluster of context {context} has no {where}: `knodel install --kube-context {context}` brings it"
        ) from error
    except Forbidden as error:
        raise Forbidden(f"the settings of the cluster cannot be read: {error}") from error
    try:
        return settings_from_text(_text(found), where)
    except (SettingsError, LoadError) as error:
        raise CommandError(f"{where} is not understood ({error}): correct it") from error


def _text(config_map: Object) -> str:
    data = config_map.get("data")
    text = data.get(CONFIG_KEY) if isinstance(data, dict) else None
    return text if isinstance(text, str) else ""
