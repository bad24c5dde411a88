"""The settings that a verb goes by: those of this machine, or those of the cluster that it names."""

from __future__ import annotations

from serving.cli.base.errors import UsageError
from serving.cli.context import Session
from serving.cli.files import settings_of
from serving.cli.installed import installed_settings
from serving.types.settings.settings import Settings


def settings_in_force(session: Session, config: str | None) -> Settings:
    """`--config FILE` and variables; with `--kube-context`, the cluster's ConfigMap. Raises CommandError."""
    if session.kube is None:
        return settings_of(config)
    if config:
        raise UsageError("--config is of a platform on this machine; the settings of a cluster are its knodel-config")
    return installed_settings(session.client(), session.kube.name)
