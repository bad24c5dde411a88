"""The messages between the control plane and the activator: one JSON object a line, over a Unix socket.

    To the activator:    {"set": TARGET, "id": N}    {"remove": [NAMESPACE, REVISION], "id": N}
    From the activator:  {"hello": {"pid": …, "address": "HOST:PORT", "targets": [[NAMESPACE, REVISION], …]},
                          "loads": […]}
                         {"loads": [[NAMESPACE, REVISION, QUEUED, ACTIVE], …]}    {"ack": N}    {"ack": N, "error": "…"}

`hello` is sent first, with every load that is not zero; later messages have the loads that changed. An `ack` is sent
when the message with that `id` is applied.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from clusters.base.objects import Key
from clusters.net.endpoints import Endpoint

LINE_LIMIT = 4 * 1024 * 1024  # bytes; a target of 1 000 endpoints, the maximum of a Model, has 0.1 MB

Message = dict[str, Any]
"""A decoded message."""


@dataclass(frozen=True, slots=True)
class ActivatorTarget:
    """The endpoints of a revision, and how the activator holds its requests.

    `hold_limit`: maximum number of queued requests; another one gets 429. `slots_per_endpoint`: maximum number of
    concurrent requests of the activator at one endpoint, 0 for no limit. `timeout`: maximum time in the queue, in
    seconds. `broken`: every replica failed to start, so requests without an endpoint fail at once.
    """

    key: Key
    endpoints: tuple[Endpoint, ...]
    hold_limit: int
    slots_per_endpoint: int
    timeout: float
    broken: bool = False


@dataclass(frozen=True, slots=True)
class RevisionLoad:
    """The requests of one revision at the activator: queued, and sent to an endpoint but not yet answered."""

    queued: int = 0
    active: int = 0


Loads = Mapping[Key, RevisionLoad]


def encode(message: Mapping[str, Any]) -> bytes:
    """Return the message as one line."""
    return json.dumps(message, separators=(",", ":")).encode() + b"\n"


def decode(line: bytes) -> Message:
    """Return the message of one line. Raises ValueError for anything but a JSON object."""
    message = json.loads(line)
    if not isinstance(message, dict):
        raise ValueError(f"expected a JSON object, got {type(message).__name__}")
    return message


def target_to_wire(target: ActivatorTarget) -> Message:
    """Return a target as JSON."""
    return {
        "key": list(target.key),
        "endpoints": [[one.pod, one.host, one.port, one.management_port] for one in target.endpoints],
        "tokens": [one.token for one in target.endpoints],
        "holdLimit": target.hold_limit,
        "slots": target.slots_per_endpoint,
        "timeout": target.timeout,
        "broken": target.broken,
    }


def target_from_wire(message: Mapping[str, Any]) -> ActivatorTarget:
    """Return the target of `target_to_wire`. Raises KeyError, TypeError or ValueError for another shape."""
    endpoints = message["endpoints"]
    tokens = message.get("tokens") or [""] * len(endpoints)  # an older control plane sends none
    return ActivatorTarget(
        key=key_from_wire(message["key"]),
        endpoints=tuple(
            Endpoint(str(pod), str(host), int(port), int(management), str(token))
            for (pod, host, port, management), token in zip(endpoints, tokens, strict=True)
        ),
        hold_limit=int(message["holdLimit"]),
        slots_per_endpoint=int(message["slots"]),
        timeout=float(message["timeout"]),
        broken=bool(message.get("broken", False)),  # an older control plane omits it
    )


def key_from_wire(pair: Iterable[str]) -> Key:
    """Return the Key of a list of two. Raises ValueError for another length."""
    namespace, name = pair
    return Key(str(namespace), str(name))


def loads_to_wire(loads: Loads) -> list[list[Any]]:
    """Return loads as JSON."""
    return [[*key, load.queued, load.active] for key, load in loads.items()]


def loads_from_wire(items: Iterable[Iterable[Any]]) -> dict[Key, RevisionLoad]:
    """Return the loads of `loads_to_wire`. Raises ValueError or TypeError for another shape."""
    return {Key(str(ns), str(name)): RevisionLoad(int(queued), int(active)) for ns, name, queued, active in items}
