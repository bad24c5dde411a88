"""The settings and prices that a verb uses: those of this machine, or of the cluster that it acts on."""

from __future__ import annotations

from collections.abc import Mapping

from clusters.base.errors import Forbidden, NotFound
from clusters.base.objects import CONFIG_MAP, version_of
from clusters.net.strict_yaml import LoadError
from serving.cli.context import Session
from serving.cli.files import settings_of
from serving.client.client import Client
from serving.client.errors import ClientError, UsageError
from serving.types.settings.prices import Prices, read_prices
from serving.types.settings.settings import Settings, SettingsError, settings_from_text, text_with_values
from serving.types.settings.state import Facts

SYSTEM_NAMESPACE = "knodel-system"
CONFIG_NAME = "knodel-config"
CONFIG_KEY = "config.yaml"
READER = "knodel-config-reader"
"""The Role that allows users to read the ConfigMap (manifests/base/rbac/users.yaml)."""


def settings_in_force(session: Session, config: str | None) -> Settings:
    """Return the settings of `--config FILE` and variables; with `--kube-context`, of the cluster's ConfigMap.

    Raises ClientError.
    """
    if session.kube is None:
        return settings_of(config)
    if config:
        raise UsageError(
            f"--config applies to a platform on this machine: a cluster has its settings in ConfigMap {CONFIG_NAME}"
        )
    return installed_settings(session.client(), session.kube.name)


def installed_settings(client: Client, context: str) -> Settings:
    """Return the settings of the cluster. Raises ClientError when Knodel is not installed or they are invalid."""
    where = f"ConfigMap {CONFIG_NAME} in namespace {SYSTEM_NAMESPACE}"
    try:
        data = client.get(CONFIG_MAP, CONFIG_NAME, SYSTEM_NAMESPACE).get("data")
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


def change_settings(client: Client, context: str, values: Mapping[str, str]) -> Settings:
    """Set settings of the cluster by key; "" removes one. Return the settings in force.

    Raises UsageError for an unknown or invalid setting, ClientError when Knodel is not installed, and Conflict.
    """
    installed_settings(client, context)  # raises with the remedy
    where = f"ConfigMap {CONFIG_NAME}"
    live = client.get(CONFIG_MAP, CONFIG_NAME, SYSTEM_NAMESPACE)
    try:
        text = text_with_values((live.get("data") or {}).get(CONFIG_KEY, ""), where, values)
    except SettingsError as error:
        raise UsageError(str(error)) from error
    patch = {"metadata": {"resourceVersion": version_of(live)}, "data": {CONFIG_KEY: text}}
    client.merge(CONFIG_MAP, CONFIG_NAME, SYSTEM_NAMESPACE, patch)
    return settings_from_text(text, where)


def prices_in_force(session: Session, client: Client) -> Prices:
    """Return the prices of the running platform, or of the cluster.

    Without prices, verbs show pod-hours: when the cluster has no settings, or the caller may not read them. Raises
    ClientError; SettingsError for invalid prices.
    """
    if session.kube is None:
        facts = Facts.read(session.state)
        return read_prices(facts.prices if facts is not None else {})
    try:
        return installed_settings(client, session.kube.name).prices
    except Forbidden:
        return Prices()
    except ClientError as error:
        if isinstance(error.__cause__, NotFound):
            return Prices()
        raise
