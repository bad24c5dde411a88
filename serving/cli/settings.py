"""The settings and prices that a verb uses: those of this machine, or of the cluster that it acts on."""

from __future__ import annotations

from collections.abc import Mapping

from clusters.base.errors import Forbidden, NotFound
from clusters.base.objects import CONFIG_MAP, version_of
from serving.cli.context import Session
from serving.cli.files import settings_of
from serving.client.client import Client
from serving.client.errors import ClientError, UsageError
from serving.client.installed import CONFIG_KEY, CONFIG_NAME, SYSTEM_NAMESPACE, installed_settings
from serving.types.settings.prices import Prices, read_prices
from serving.types.settings.settings import Settings, SettingsError, settings_from_text, text_with_values
from serving.types.settings.state import Facts


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
    return session.client().call(installed_settings, session.kube.name)


def change_settings(client: Client, context: str, values: Mapping[str, str]) -> Settings:
    """Set settings of the cluster by key; "" removes one. Return the settings in force.

    Raises UsageError for an unknown or invalid setting, ClientError when Knodel is not installed, and Conflict.
    """
    client.call(installed_settings, context)  # raises with the remedy
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
        return client.call(installed_settings, session.kube.name).prices
    except Forbidden:
        return Prices()
    except ClientError as error:
        if isinstance(error.__cause__, NotFound):
            return Prices()
        raise
