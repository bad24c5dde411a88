"""The routing table of the gateway as values: hosts, routes, splits, and backends of revisions.

`clusters.gateway.ingress` makes them from a cluster's objects, and `clusters.gateway.config` converts them to Envoy's
configuration.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from clusters.base.objects import Key
from clusters.net.language_models import LanguageModel

Headers = tuple[tuple[str, str], ...]
"""Names and values of headers, in order."""


@dataclass(frozen=True, slots=True, order=True)
class Backend:
    """An address for requests, and the token that they carry; empty for none."""

    host: str
    port: int
    token: str = field(default="", compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class RouteSplit:
    """A share of a route's requests: `percent` of them go to `revision`, with these `headers` set."""

    revision: Key
    percent: int
    headers: Headers = ()


@dataclass(frozen=True, slots=True)
class Route:
    """A route for requests below `prefix` whose headers have exactly the values of `match`.

    `timeout` bounds the seconds from the complete request to the complete response; 0 is no limit. `headers` are set on
    every request.
    """

    splits: tuple[RouteSplit, ...]
    prefix: str = "/"
    match: Headers = ()
    headers: Headers = ()
    timeout: float = 0.0


@dataclass(frozen=True, slots=True)
class VirtualHost:
    """Hosts with common routes, of which the first match applies.

    `path_form` is `NAME.NAMESPACE`, or `TAG.NAME.NAMESPACE` for a tag, if `/namespaces/NAMESPACE/models/NAME[@TAG]/…`
    leads to the same routes; otherwise it is empty.
    """

    name: str
    hosts: tuple[str, ...]
    routes: tuple[Route, ...]
    path_form: str = ""


@dataclass(frozen=True, slots=True)
class Table:
    """The complete routing table.

    The `activator` serves revisions without an entry in `backends` and holds their requests until there is one. The
    `parked` backends get no new requests, but their active ones are counted (`Envoy.requests_at`). `models` are the
    language models, of which those are listed that the path form reaches.
    """

    hosts: tuple[VirtualHost, ...] = ()
    backends: Mapping[Key, tuple[Backend, ...]] = field(default_factory=dict)
    activator: Backend | None = None
    parked: frozenset[Backend] = frozenset()
    models: tuple[LanguageModel, ...] = ()
