"""What the gateway is told, as values: hosts, their routes, the split of each, and where revisions answer.

Made from a cluster's objects (`clusters.gateway.ingress`), turned into Envoy's words by `clusters.gateway.config`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from clusters.base.objects import Key

Headers = tuple[tuple[str, str], ...]
"""Header names and values, in order."""


@dataclass(frozen=True, slots=True, order=True)
class Backend:
    """An address that takes requests, and the token that is sent along with them; empty for none."""

    host: str
    port: int
    token: str = field(default="", compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Split:
    """A share of a route's requests: `percent` of them go to `revision`, with `headers` set to these values."""

    revision: Key
    percent: int
    headers: Headers = ()


@dataclass(frozen=True, slots=True)
class Route:
    """Requests below `prefix` whose headers have exactly the values of `match`.

    `timeout`: seconds from the whole request to the whole answer, 0 for none. `headers` are set on every request.
    """

    splits: tuple[Split, ...]
    prefix: str = "/"
    match: Headers = ()
    headers: Headers = ()
    timeout: float = 0.0


@dataclass(frozen=True, slots=True)
class VirtualHost:
    """Hosts that share routes; the first matching route counts.

    `path_form`: `NAME.NAMESPACE`, or `TAG.NAME.NAMESPACE` of a tag, if `/namespaces/NAMESPACE/models/NAME[@TAG]/…`
    reaches the same routes; empty if not.
    """

    name: str
    hosts: tuple[str, ...]
    routes: tuple[Route, ...]
    path_form: str = ""


@dataclass(frozen=True, slots=True)
class Table:
    """Everything the gateway is to know.

    A revision without an entry in `backends` is served by `activator`, which holds requests until there is one.
    `parked` are sent nothing new, but the requests that they still have are counted (`Envoy.requests_at`).
    """

    hosts: tuple[VirtualHost, ...] = ()
    backends: Mapping[Key, tuple[Backend, ...]] = field(default_factory=dict)
    activator: Backend | None = None
    parked: frozenset[Backend] = frozenset()
