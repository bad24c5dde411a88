"""The prices that a verb goes by: those of the running platform, or of the cluster that it names."""

from __future__ import annotations

from clusters.base.errors import Forbidden, NotFound
from serving.cli.base.errors import CommandError
from serving.cli.client.client import Client
from serving.cli.context import Session
from serving.types.settings.prices import Prices, read_prices
from serving.types.settings.state import Facts


def prices_in_force(session: Session, client: Client) -> Prices:
    """None are set where a cluster has no settings, or the caller may not read them: pod-hours are told then.

    Raises CommandError; SettingsError for prices that cannot be read.
    """
    if session.kube is None:
        facts = Facts.read(session.state)
        return read_prices(facts.prices if facts is not None else {})
    from serving.cli.installed import installed_settings  # imports what only clusters need

    try:
        return installed_settings(client, session.kube.name).prices
    except Forbidden:
        return Prices()
    except CommandError as error:
        if isinstance(error.__cause__, NotFound):
            return Prices()
        raise
