"""The node's network: an address on a bridge of its own, routes that keep all test addresses on this machine.

iproute2 says what is there (JSON); only what is missing is added.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from tests.testbed import commands
from tests.testbed.addresses import (
    NODE_ADDRESS,
    NODE_BRIDGE,
    NODE_PREFIX,
    POD_BRIDGE,
    SERVICE_RANGE,
    TEST_RANGE,
)
from tests.testbed.errors import MachineLacks, TestbedError

_REFUSALS: Final = ("not permitted", "not supported", "Unknown device type")  # of a kernel that lacks or forbids it


def ensure() -> bool:
    """Make the bridge, its address and the routes; whether something was missing.

    Raises MachineLacks when the kernel refuses.
    """
    missing = [
        *([] if _exists(NODE_BRIDGE) else [("link", "add", NODE_BRIDGE, "type", "bridge")]),
        *([] if _has_address() else [("address", "add", f"{NODE_ADDRESS}/{NODE_PREFIX}", "dev", NODE_BRIDGE)]),
        *([] if _is_up() else [("link", "set", NODE_BRIDGE, "up")]),
        *_missing_routes(),
    ]
    for command in missing:
        _ip(*command)
    return bool(missing)


def remove() -> None:
    """Remove bridges, with the pods' ends that hang on them, and routes. What is not there is no error."""
    for bridge in (NODE_BRIDGE, POD_BRIDGE):
        for link in _ports(bridge) + ([bridge] if _exists(bridge) else []):
            _remove(link)
    if TEST_RANGE in _destinations():
        _ip("route", "delete", "blackhole", TEST_RANGE)


def _missing_routes() -> list[tuple[str, ...]]:
    # Routing precedes the translation of a service address: without a route of its own the packet would be dropped.
    wanted = {
        TEST_RANGE: ("route", "add", "blackhole", TEST_RANGE),
        SERVICE_RANGE: ("route", "add", SERVICE_RANGE, "dev", NODE_BRIDGE, "src", NODE_ADDRESS),
    }
    there = _destinations()
    return [command for destination, command in wanted.items() if destination not in there]


def _destinations() -> set[str]:
    return {str(route["dst"]) for route in _listed("route", "show")}


def _ports(bridge: str) -> list[str]:
    folder = Path("/sys/class/net", bridge, "brif")
    return [port.name for port in folder.iterdir()] if folder.exists() else []


def _remove(link: str) -> None:
    try:
        _ip("link", "delete", link)
    except TestbedError:
        if _exists(link):  # a pod's end goes by itself when its network namespace does
            raise


def _exists(link: str) -> bool:
    return Path("/sys/class/net", link).exists()


def _has_address() -> bool:
    return any(info["local"] == NODE_ADDRESS for info in _bridge().get("addr_info", []))


def _is_up() -> bool:
    return "UP" in _bridge().get("flags", [])


def _bridge() -> dict[str, Any]:
    return _listed("address", "show", "dev", NODE_BRIDGE)[0] if _exists(NODE_BRIDGE) else {}


def _listed(*arguments: str) -> list[dict[str, Any]]:
    return list(json.loads(commands.run("ip", "-json", "-4", *arguments) or "[]"))


def _ip(*arguments: str) -> None:
    try:
        commands.run("ip", *arguments)
    except TestbedError as exc:
        if any(refusal in str(exc) for refusal in _REFUSALS):
            raise MachineLacks(f"this machine does not let us make networks: {exc}") from exc
        raise
