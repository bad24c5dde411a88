"""The settings of Knodel on a cluster: the ConfigMap that `knodel install` creates."""

from __future__ import annotations

from clusters.base.errors import Forbidden, NotFound
from clusters.base.objects import CONFIG_MAP
from clusters.net.strict_yaml import LoadError
from serving.client.api import ApiCalls
from serving.client.effects import Call
from serving.client.errors import ClientError
from serving.types.settings.settings import Settings, SettingsError, settings_from_text

SYSTEM_NAMESPACE = "knodel-system"
CONFIG_NAME = "knodel-config"
CONFIG_KEY = "config.yaml"
READER = "knodel-config-reader"
"""The Role that allows users to read the ConfigMap (manifests/base/rbac/users.yaml)."""


def installed_settings(api: ApiCalls, context: str) -> Call[Settings]:
    """Return the settings of the cluster. Raises ClientError when Knodel is not installed or they are invalid."""
    where = f"ConfigMap {CONFIG_NAME} in namespace {SYSTEM_NAMESPACE}"
    try:
        data = (yield from api.get(CONFIG_MAP, CONFIG_NAME, SYSTEM_NAMESPACE)).get("data")
    except NotFound as error:
        raise ClientError(
            f"the cluster of context {context} has no {where}: `knodel install --kube-context {context}` creates it"
        ) from error
    except Forbidden as error:
        raise Forbidden(f"the settings of the cluster cannot be read: {error}") from error
    text = data.get(CONFIG_KEY) if isinstance(data, dict) else None
    try:
        return settings_from_text(text if isinstance(text, str) else "", where)
    except (SettingsError, LoadError) as error:
        raise ClientError(f"{where} is invalid ({error}): correct it") from error
