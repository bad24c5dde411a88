"""Envoy's dynamic configuration: `routes.json` (RDS) and `endpoints.json` (EDS), which change with the cluster. Pure.

All revisions share one Envoy cluster. Each endpoint has its revision as metadata, and each split of a route selects one
revision by it (Envoy's subset load balancing). A revision without endpoints falls back to the default subset, the
activator. The consequences are:

- Routes and endpoints may change in any order, because every combination of the two files serves requests.
- A model at zero costs a route, and no cluster, file or watch. One cluster with an EDS file for each revision would
  take an inotify instance each. Linux allows 128 per user by default, and Envoy aborts at the 126th.

The same values give the same bytes. The version of a file is the hash of its content.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from clusters.gateway.headers import ADDED_BY_ENVOY, STRIPPED_FROM_ANSWERS
from clusters.gateway.route_config import (
    CLUSTER,
    ORIGINAL_PATH,
    OWN_METADATA,
    TOKEN_KEY,
    VERSION_DOMAIN,
    Json,
    foreign_host,
    model_lists,
    path_form,
    starting_host,
    subset,
    unknown_model,
    version_host,
    virtual_host,
)
from clusters.gateway.routes import Backend, Table, VirtualHost
from clusters.net.hosts import ANY
from clusters.net.language_models import LanguageModel

VERSION_HOST: Final = f"tests{VERSION_DOMAIN}"  # each gateway has a secret one
ANY_HOST: Final = (ANY,)
DEFAULT_DOMAIN: Final = "localhost"  # hosts of models are NAME.NAMESPACE.localhost
ROUTE_TABLE: Final = "gateway"
ACTIVATOR_SUBSET: Final = "activator"  # names of revisions contain a "/"
PARKED_SUBSET: Final = "parked"  # no route selects it

_TYPE: Final = "type.googleapis.com/envoy.config."
_VERSION_BYTES: Final = 8  # of the hash: 64 bits distinguish the versions of one gateway

_LARGEST_LIST: Final = 16 * 1024 * 1024  # bytes of a list of language models: 100 000 of them


@dataclass(frozen=True, slots=True)
class Resource:
    """The content of an xDS file and its version."""

    version: str
    content: bytes


@dataclass(frozen=True, slots=True)
class _Rendered:
    host: VirtualHost
    entry: msgspec.Raw


class RouteMaker:
    """A maker of the RDS file. It caches rendered hosts, so a change of one among thousands is cheap."""

    def __init__(
        self, domain: str = DEFAULT_DOMAIN, hosts: Sequence[str] = ANY_HOST, version_host: str = VERSION_HOST
    ) -> None:
        """`hosts` are the gateway's own names, `*` for any. The table responds with its version at `version_host`."""
        own = [host for host in dict.fromkeys(hosts) if not host.endswith(f".{domain}")]  # the others belong to models
        any_host = ANY in own
        foreign = () if any_host else (foreign_host(),)
        self._others = [_raw(one) for one in (unknown_model(domain), path_form([ANY] if any_host else own), *foreign)]
        self._version_host = version_host
        self._known: dict[str, _Rendered] = {}
        self._last: tuple[tuple[VirtualHost, ...], tuple[LanguageModel, ...], Resource] | None = None

    def make(self, hosts: tuple[VirtualHost, ...], models: tuple[LanguageModel, ...] = ()) -> Resource:
        """Return the route table of virtual hosts with distinct names and host names.

        Of `models`, those are listed that the path form reaches.
        """
        if self._last is not None and self._last[0] is hosts and self._last[1] == models:
            return self._last[2]
        rendered = [self._render(host) for host in hosts]
        self._known = {one.host.name: one for one in rendered}
        reached = {host.path_form for host in hosts} if models else ()
        lists = map(_raw, model_lists(one for one in models if f"{one.name}.{one.namespace}" in reached))
        resource = _route_table([*(one.entry for one in rendered), *lists, *self._others], self._version_host)
        self._last = (hosts, models, resource)
        return resource

    def _render(self, host: VirtualHost) -> _Rendered:
        known = self._known.get(host.name)
        if known is not None and (known.host is host or known.host == host):
            return known
        return _Rendered(host, _raw(virtual_host(host)))


def starting(version_host: str = VERSION_HOST) -> Resource:
    """Return the route table before the first `apply`: 503 with Retry-After for every request."""
    return _route_table([_raw(starting_host())], version_host)


def endpoints(table: Table) -> Resource:
    """Return the EDS file: the endpoints of revisions, the activator for all others, and parked endpoints.

    Envoy needs distinct addresses, so an address that serves a revision is not also parked.
    """
    subsets = {backend: str(revision) for revision, backends in table.backends.items() for backend in backends}
    if table.activator is not None:
        subsets[table.activator] = ACTIVATOR_SUBSET
    subsets = dict.fromkeys(table.parked - subsets.keys(), PARKED_SUBSET) | subsets
    entries = [_endpoint(backend, subsets[backend]) for backend in sorted(subsets)]
    assignment = {
        "@type": _TYPE + "endpoint.v3.ClusterLoadAssignment",
        "cluster_name": CLUSTER,
        "endpoints": [{"lb_endpoints": entries}],
    }
    return response([assignment])


def response(resources: Iterable[Json]) -> Resource:
    """Return a DiscoveryResponse file with the hash of its content as version."""
    resources = list(resources)
    version = _version([msgspec.json.encode(resources)])
    return _response(version, resources)


def _route_table(virtual_hosts: list[msgspec.Raw], version_at: str) -> Resource:
    version = _version([version_at.encode(), *(bytes(host) for host in virtual_hosts)])
    table = {
        "@type": _TYPE + "route.v3.RouteConfiguration",
        "name": ROUTE_TABLE,
        "max_direct_response_body_size_bytes": _LARGEST_LIST,
        "virtual_hosts": [_raw(version_host(version_at, version)), *virtual_hosts],
        "request_headers_to_remove": [ORIGINAL_PATH, *ADDED_BY_ENVOY],
        "response_headers_to_remove": STRIPPED_FROM_ANSWERS,
    }
    return _response(version, [table])


def _response(version: str, resources: list[Json]) -> Resource:
    return Resource(version, msgspec.json.encode({"version_info": version, "resources": resources}))


def _raw(value: Any) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode(value))


def _version(parts: Iterable[bytes]) -> str:
    digest = hashlib.blake2b(digest_size=_VERSION_BYTES)
    for part in parts:
        digest.update(part)
    return digest.hexdigest()


def _endpoint(backend: Backend, revision: str) -> Json:
    address = {"socket_address": {"address": backend.host, "port_value": backend.port}}
    metadata = subset(revision)
    if backend.token:
        metadata["filter_metadata"][OWN_METADATA] = {TOKEN_KEY: backend.token}
    return {"endpoint": {"address": address}, "metadata": metadata}


__all__ = ["CLUSTER", "ROUTE_TABLE", "Resource", "RouteMaker", "endpoints", "response", "starting"]
