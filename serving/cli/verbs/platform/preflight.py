"""Checks of `knodel up` before it creates anything, so that a refused start leaves nothing behind."""

from __future__ import annotations

import os
import socket
import stat
from pathlib import Path

from clusters.base.errors import AddressInUse
from clusters.net.sockets import PortGuard, guard_localhost
from serving.cli.doctor.ports import listen_addresses
from serving.client.errors import UsageError
from serving.storage.base.errors import StorageError
from serving.storage.kept import size_limit
from serving.types.settings.settings import Settings
from serving.types.settings.state import GATEWAY_FOLDER

PORTS = (("the gateway", "--port"), ("the control API", "--control-port"), ("the control API", "--control-tls-port"))
"""Names of the ports of `listen_addresses` in messages, and the options that set them."""


def check_start(state: Path, settings: Settings) -> None:
    """Check the state folder, the variables, the addresses and the ports.

    Raises UsageError if the state folder is not a directory, if this machine does not have an address, and for an
    invalid variable; AddressInUse if a port is in use; ModuleNotFoundError without the extra `platform`.
    """
    import envoy  # noqa: F401 - a detached platform could not report its absence

    _check_folder(state)
    try:
        size_limit(os.environ)
    except StorageError as error:
        raise UsageError(str(error)) from error
    for key, host in (("gateway.address", settings.gateway.address), ("control.address", settings.control.address)):
        _check_address(key, host)
    if not (state / GATEWAY_FOLDER).exists():  # an orphaned gateway, which `knodel up` adopts, may have the port
        _check_ports(settings)


def _check_folder(state: Path) -> None:
    try:
        is_folder = stat.S_ISDIR(state.stat().st_mode)
    except NotADirectoryError:
        is_folder = False
    except OSError:  # it does not exist, or taking its lock reports the error
        return
    if not is_folder:
        raise UsageError(f"the state folder {state} is not a directory: choose another with --state or KNODEL_STATE")


def _check_address(key: str, host: str) -> None:
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as trial:
        try:
            trial.bind((host, 0))
        except (OSError, UnicodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not a name"
            variable = f"KNODEL_{key.replace('.', '_').upper()}"
            remedy = f"set it ({variable}, or the settings file) to an address of this machine, such as 127.0.0.1"
            raise UsageError(f"{key}: {host[:80]!r} is not an address of this machine ({reason}): {remedy}") from error


def _check_ports(settings: Settings) -> None:
    """Bind each port as the platform does, and release it."""
    for (what, option), (host, port) in zip(PORTS, listen_addresses(settings), strict=True):
        remedy = f"choose another port with {option}"
        try:
            PortGuard.take(host, port).close()
        except OSError as error:
            reason = error.strerror
            raise AddressInUse(f"{what} cannot listen on {host}:{port} ({reason})", remedy) from error
        if (other := guard_localhost(host, port, remedy)) is not None:
            other.close()
