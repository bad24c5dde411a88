"""The ports of a platform, and the command that starts it on others when one is taken."""

from __future__ import annotations

import shlex
from pathlib import Path

from clusters.base.errors import KnodelError
from serving.cli.client.sockets import is_taken
from serving.cli.client.state import state_folder
from serving.types.settings.ports import port_options
from serving.types.settings.settings import Settings, load_settings

FIRST, LAST, STEP = 8180, 9980, 100
"""Ports of the gateway that are proposed."""


def ports_of(settings: Settings) -> tuple[tuple[str, int], ...]:
    """Return the addresses that a platform listens on."""
    gateway, control = settings.gateway, settings.control
    return (gateway.address, gateway.port), (control.address, control.port), (control.address, control.tls_port)


def propose(state: Path, config: str | None) -> str:
    """Return the remedy for a taken port: a command that works now, or where the ports are set."""
    for port in range(FIRST, LAST, STEP):
        try:
            addresses = ports_of(load_settings(Path(config) if config else None, gateway_port=port))
        except KnodelError:
            continue  # it is another port of the settings already
        if not any(is_taken(*address) for address in addresses):
            numbers = [number for _, number in addresses]
            return f"`{_command(state, config, *numbers)}` takes {', '.join(map(str, numbers))}"
    return "end what listens there, or change the settings `gateway.port`, `control.port` and `control.tlsPort`"


def _command(state: Path, config: str | None, gateway: int, control: int, control_tls: int) -> str:
    words = ["knodel", "up", "--detach", *port_options(gateway, control, control_tls).split()]
    words += ["--state", str(state)] if state != state_folder(None) else []
    words += ["--config", config] if config else []
    return shlex.join(words)
