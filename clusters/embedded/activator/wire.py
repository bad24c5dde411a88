"""The words that the control plane and the activator exchange: one JSON object a line, over a unix socket.

To the activator:    {"set": TARGET, "id": N}    {"remove": [NAMESPACE, REVISION], "id": N}
From the activator:  {"hello": {"pid": …, "address": "HOST:PORT", "targets": [[NAMESPACE, REVISION], …]}, "loads": […]}
                     {"loads": [[NAMESPACE, REVISION, QUEUED, ACTIVE], …]}    {"ack": N}    {"ack": N, "error": "…"}

`hello` comes first, with every load that is not zero; later lines name what changed. An `ack` is sent when the order is
in force. Pure: lines in, values out.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from clusters.base.objects import Key
from clusters.net.endpoints import Endpoint

LINE_LIMIT = 4 * 1024 * 1024  # bytes; a Target of 1 000 endpoints (the most that a Model may have) takes 0.1 MB

Message = dict[str, Any]
"""One decoded line."""


@dataclass(frozen=True, slots=True)
class Target:
    """What the activator knows of a revision.

    `hold_limit`: how many requests may wait; the next is refused with 429. `slots_per_endpoint`: how many requests of
    the activator's one endpoint takes at once, 0 for any number. `timeout`: seconds that a request may wait.
    `broken`: every replica failed to start and says why; without endpoints nobody is to wait.
    """

    key: Key
    endpoints: tuple[Endpoint, ...]
    hold_limit: int
    slots_per_endpoint: int
    timeout: float
    broken: bool = False


@dataclass(frozen=True, slots=True)
class Load:
    """Requests of one revision at the activator: waiting for an endpoint, and passed on but not yet answered."""

    queued: int = 0
    active: int = 0


Loads = Mapping[Key, Load]


def encode(message: Mapping[str, Any]) -> bytes:
    """One line."""
    return json.dumps(message, separators=(",", ":")).encode() + b"\n"


def decode(line: bytes) -> Message:
    """The object of one line. Raises ValueError for anything else."""
    message = json.loads(line)
    if not isinstance(message, dict):
        raise ValueError(f"expected a JSON object, got {type(message).__name__}")
    return message


def target_to_wire(target: Target) -> Message:
    """A Target as JSON."""
    return {
        "key": list(target.key),
        "endpoints": [[one.pod, one.host, one.port, one.management_port] for one in target.endpoints],
        "tokens": [one.token for one in target.endpoints],
        "holdLimit": target.hold_limit,
        "slots": target.slots_per_endpoint,
        "timeout": target.timeout,
        "broken": target.broken,
    }


def target_from_wire(message: Mapping[str, Any]) -> Target:
    """The inverse of `target_to_wire`. Raises KeyError, TypeError or ValueError for another shape."""
    endpoints = message["endpoints"]
    tokens = message.get("tokens") or [""] * len(endpoints)  # a control plane of an earlier version sends none
    return Target(
        key=key_from_wire(message["key"]),
        endpoints=tuple(
            Endpoint(str(pod), str(host), int(port), int(management), str(token))
            for (pod, host, port, management), token in zip(endpoints, tokens, strict=True)
        ),
        hold_limit=int(message["holdLimit"]),
        slots_per_endpoint=int(message["slots"]),
        timeout=float(message["timeout"]),
        broken=bool(message.get("broken", False)),  # a control plane of before does not say
    )


def key_from_wire(pair: Iterable[str]) -> Key:
    """A Key from its two-element list. Raises ValueError for another length."""
    namespace, name = pair
    return Key(str(namespace), str(name))


def loads_to_wire(loads: Loads) -> list[list[Any]]:
    """Loads as JSON."""
    return [[*key, load.queued, load.active] for key, load in loads.items()]


def loads_from_wire(items: Iterable[Iterable[Any]]) -> dict[Key, Load]:
    """The inverse of `loads_to_wire`. Raises ValueError or TypeError for another shape."""
    return {Key(str(ns), str(name)): Load(int(queued), int(active)) for ns, name, queued, active in items}
