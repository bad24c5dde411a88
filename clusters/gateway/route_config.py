"""Virtual hosts → Envoy's route table entries: weights, header matches, the path form, and what the gateway itself says.

Pure. Field names are those of `envoy.config.route.v3`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final

from clusters.gateway.routes import Headers, Route, Split

CLUSTER: Final = "revisions"
METADATA: Final = "envoy.lb"  # the namespace in which Envoy's subset load balancer looks
SUBSET_KEY: Final = "revision"
VERSION_HOST: Final = "version.gateway.knodel.internal"
"""Asked with this Host, the listener itself answers the version of the route table in force: a hash, nothing else."""

PLATFORM: Final = {"name": "knodel", "version": "1", "extensions": ["binary_tensor_data", "model_repository"]}
"""Server metadata of the Open Inference Protocol for the platform as a whole (`GET /v2`)."""

_FIXED_ANSWERS: Final = (
    ("/v2", PLATFORM),
    ("/v2/health/live", {"live": True}),
    ("/v2/health/ready", {"ready": True}),
)

Json = dict[str, Any]


def subset(value: str) -> Json:
    """Metadata of an endpoint, or the wish of a route, for the endpoints of one revision."""
    return {"filter_metadata": {METADATA: {SUBSET_KEY: value}}}


def host_route(route: Route) -> Json:
    """The entry of a virtual host for one route."""
    path = {"prefix": "/"} if route.prefix == "/" else {"path_separated_prefix": route.prefix.rstrip("/")}
    return _entry(path, route)


def path_routes(route: Route, model: str) -> list[Json]:
    """The entries that reach the same backends by the path form alone; none for a route below a path of its own."""
    if route.prefix != "/":
        return []
    paths = ({"path_separated_prefix": f"/v2/models/{model}"}, {"path": f"/v1/models/{model}:predict"})
    return [_entry(path, route) for path in paths]


def path_form(routes: Iterable[Any]) -> Json:
    """The virtual host of every Host that no model has: the platform's own answers, then models by their path."""
    fixed = [entry for path, answer in _FIXED_ANSWERS for entry in _fixed(path, answer)]
    return {"name": "path form", "domains": ["*"], "routes": [*fixed, *routes]}


def version_host(version: str) -> Json:
    """The virtual host that tells the version of the table it stands in."""
    answer = {"status": 200, "body": {"inline_string": version}}
    return {
        "name": "version",
        "domains": [VERSION_HOST],
        "routes": [{"match": {"prefix": "/"}, "direct_response": answer}],
    }


def starting_host() -> Json:
    """The one virtual host of a gateway that has not heard of the cluster yet: try again."""
    return {
        "name": "starting",
        "domains": ["*"],
        "routes": [{"match": {"prefix": "/"}, "direct_response": {"status": 503}}],
    }


def _entry(path: Json, route: Route) -> Json:
    entry: Json = {"match": path | _header_matches(route.match)}
    if route.headers:
        entry["request_headers_to_add"] = _set_headers(route.headers)
    if not route.splits:
        return entry | {"direct_response": {"status": 503}}
    clusters = [_weighted(split) for split in route.splits]
    return entry | {"route": {"weighted_clusters": {"clusters": clusters}, "timeout": f"{route.timeout:g}s"}}


def _header_matches(match: Headers) -> Json:
    if not match:
        return {}
    return {"headers": [{"name": name, "string_match": {"exact": value}} for name, value in match]}


def _weighted(split: Split) -> Json:
    entry: Json = {"name": CLUSTER, "weight": split.percent, "metadata_match": subset(str(split.revision))}
    if split.headers:
        entry["request_headers_to_add"] = _set_headers(split.headers)
    return entry


def _set_headers(headers: Headers) -> list[Json]:
    return [
        {"header": {"key": name, "value": _escaped(value)}, "append_action": "OVERWRITE_IF_EXISTS_OR_ADD"}
        for name, value in headers
    ]


def _escaped(value: str) -> str:
    """Envoy reads `%` as the start of a variable."""
    return value.replace("%", "%%")


def _fixed(path: str, answer: Mapping[str, Any]) -> list[Json]:
    json_type = {"header": {"key": "content-type", "value": "application/json"}}
    read = {"name": ":method", "string_match": {"exact": "GET"}}
    return [
        {
            "match": {"path": path, "headers": [read]},
            "direct_response": {"status": 200, "body": {"inline_string": json.dumps(answer)}},
            "response_headers_to_add": [json_type | {"append_action": "OVERWRITE_IF_EXISTS_OR_ADD"}],
        },
        {
            "match": {"path": path},
            "direct_response": {"status": 405},
            "response_headers_to_add": [{"header": {"key": "allow", "value": "GET"}}],
        },
    ]
