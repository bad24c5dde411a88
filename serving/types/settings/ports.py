"""The ports of a platform: defaults, those derived from the gateway's port, and the options of `knodel up`. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

GATEWAY: Final = 8080
CONTROL: Final = 8081
CONTROL_TLS: Final = 8443
_LAST: Final = 65_535
_KEYS: Final = ("gateway.port", "control.port", "control.tlsPort")


def next_ports(given: Mapping[str, Any]) -> dict[str, int]:
    """Return the ports of the control API derived from the gateway's port; none without a valid gateway port.

    `given` has settings by their keys. Ports that are set in `given` are not derived.

    Example:
        >>> next_ports({"gateway.port": 9380})
        {'control.port': 9381, 'control.tlsPort': 9382}
    """
    port = given.get("gateway.port")
    if not isinstance(port, int) or isinstance(port, bool) or not 0 < port <= _LAST:
        return {}
    keys = [key for key in _KEYS[1:] if key not in given]
    taken = {value for key, value in given.items() if key in _KEYS}
    candidates = (*range(port + 1, _LAST + 1), *range(port - 1, 0, -1))
    return dict(zip(keys, (other for other in candidates if other not in taken), strict=False))


def port_options(gateway: int, control: int, control_tls: int) -> str:
    """Return the options of `knodel up` for these ports, each after a space; empty for the default ports.

    Example:
        >>> port_options(9380, 9381, 9443)
        ' --port 9380 --control-tls-port 9443'
    """
    given: dict[str, int] = {} if gateway == GATEWAY else {"gateway.port": gateway}
    options = f" --port {gateway}" if given else ""
    defaults = {"control.port": CONTROL, "control.tlsPort": CONTROL_TLS}
    wanted = (("control.port", "--control-port", control), ("control.tlsPort", "--control-tls-port", control_tls))
    for key, option, port in wanted:
        if port != (defaults | next_ports(given))[key]:
            given[key] = port
            options += f" {option} {port}"
    return options
