"""Make virtual hosts from Ingress objects of Knative's `networking.internal.knative.dev/v1alpha1`. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from clusters.base.objects import Key, Object, key_of, name_of, namespace_of
from clusters.gateway.headers import TAG
from clusters.gateway.routes import Headers, Route, RouteSplit, VirtualHost

PUBLIC: Final = "ExternalIP"  # visibility of an Ingress rule; "ClusterLocal" is not served by the public listener

_HOST: Final = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")
_HEADER_NAME: Final = re.compile(r"[-!#$%&'*+.^_`|~0-9A-Za-z]+")  # a token of RFC 9110
_HEADER_VALUE: Final = re.compile(r"[ -~]*")
_PATH: Final = re.compile(r"/[^?#\s]*")

TimeoutOf = Callable[[Key], float]
"""Return the request timeout of a revision in seconds, 0 for none."""


def virtual_hosts(ingress: Object, timeout_of: TimeoutOf) -> tuple[VirtualHost, ...]:
    """Return a virtual host named `NAMESPACE/NAME/RULE` for each public rule.

    Raises ValueError for a host, path or header that Envoy would reject; KeyError or TypeError for a malformed object.
    """
    rules = (ingress.get("spec") or {}).get("rules") or ()
    return tuple(
        _virtual_host(ingress, number, rule, timeout_of)
        for number, rule in enumerate(rules)
        if rule.get("visibility", PUBLIC) == PUBLIC
    )


def revisions_of(ingress: Object) -> frozenset[Key]:
    """Return every revision in the rules of an Ingress, whatever its percent."""
    rules = (ingress.get("spec") or {}).get("rules") or ()
    paths = (path for rule in rules for path in _paths(rule))
    return frozenset(_revision(ingress, split) for path in paths for split in path.get("splits") or ())


def without_collisions(hosts: Iterable[VirtualHost]) -> tuple[tuple[VirtualHost, ...], Mapping[str, str]]:
    """Remove duplicate host names; the first virtual host keeps the name.

    Returns the virtual hosts, and the removed host names with the name of their virtual host. Envoy would reject the
    whole route table for one duplicate name.
    """
    taken: set[str] = set()
    path_forms: set[str] = set()
    refused: dict[str, str] = {}
    kept: list[VirtualHost] = []
    for host in hosts:
        refused |= {name: host.name for name in host.hosts if name in taken}
        names = tuple(name for name in host.hosts if name not in taken)
        taken.update(names)
        path_form = "" if host.path_form in path_forms else host.path_form
        path_forms.add(path_form)
        if names:  # Envoy also rejects the whole table for a virtual host without names
            unchanged = names == host.hosts and path_form == host.path_form
            kept.append(host if unchanged else replace(host, hosts=names, path_form=path_form))
    return tuple(kept), refused


def _virtual_host(ingress: Object, number: int, rule: Object, timeout_of: TimeoutOf) -> VirtualHost:
    hosts = tuple(dict.fromkeys(_matching(_HOST, "host", str(host).lower()) for host in rule.get("hosts") or ()))
    routes = tuple(_route(ingress, path, timeout_of) for path in _paths(rule))
    return VirtualHost(
        name=f"{key_of(ingress)}/{number}",
        hosts=hosts,
        # Longer paths first, then more header matches (Knative's Ingress contract).
        routes=tuple(sorted(routes, key=lambda route: (-len(route.prefix), -len(route.match)))),
        path_form=_path_form(ingress, hosts, routes),
    )


def _path_form(ingress: Object, hosts: tuple[str, ...], routes: tuple[Route, ...]) -> str:
    """Return the path form of a rule. The rule of a tag is recognized by the header that it sets."""
    name, namespace = name_of(ingress), namespace_of(ingress)
    tags = {value for route in routes for header, value in route.headers if header == TAG}
    forms = {f"{name}.{namespace}": f"{name}.{namespace}"}
    forms |= {f"{tag}-{name}.{namespace}": f"{tag}.{name}.{namespace}" for tag in tags}
    return next((form for host in hosts for own, form in forms.items() if host.startswith(f"{own}.")), "")


def _paths(rule: Object) -> Iterator[Mapping[str, Any]]:
    yield from (rule.get("http") or {}).get("paths") or ()


def _route(ingress: Object, path: Mapping[str, Any], timeout_of: TimeoutOf) -> Route:
    splits = tuple(
        RouteSplit(_revision(ingress, split), percent, _headers(split))
        for split in path.get("splits") or ()
        if (percent := int(split.get("percent", 100))) > 0
    )
    timeouts = [timeout_of(split.revision) for split in splits]
    return Route(
        splits=splits,
        prefix=_matching(_PATH, "path", str(path.get("path") or "/")),
        match=_checked((name, match["exact"]) for name, match in (path.get("headers") or {}).items()),
        headers=_headers(path),
        timeout=0.0 if 0.0 in timeouts else max(timeouts, default=0.0),
    )


def _revision(ingress: Object, split: Mapping[str, Any]) -> Key:
    return Key(str(split.get("serviceNamespace") or namespace_of(ingress)), str(split["serviceName"]))


def _headers(holder: Mapping[str, Any]) -> Headers:
    return _checked((holder.get("appendHeaders") or {}).items())


def _checked(headers: Iterable[tuple[Any, Any]]) -> Headers:
    return tuple(
        sorted(
            (_matching(_HEADER_NAME, "header name", str(name)), _matching(_HEADER_VALUE, "header value", str(value)))
            for name, value in headers
        )
    )


def _matching(pattern: re.Pattern[str], what: str, value: str) -> str:
    if pattern.fullmatch(value) is None:
        raise ValueError(f"{what} {value!r} must match {pattern.pattern}")
    return value
