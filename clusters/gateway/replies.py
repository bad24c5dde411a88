"""Envoy's local replies in the format of the Open Inference Protocol, `{"error": "…"}`, and refused requests. Pure.

The first reply in `replies` whose condition holds is sent. A condition is one of Envoy's access log filters
(`envoy.config.accesslog.v3.AccessLogFilter`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, Final

from clusters.base.sizes import format_size
from clusters.gateway.limits import GatewayLimits
from clusters.gateway.route_config import ORIGINAL_PATH, PATH_FORM_DOMAIN
from clusters.net.hosts import ANY

RETRY_AFTER: Final = "1"  # s; a dead replica is replaced, or the activator takes over, within about this time
_SHOWN: Final = 128  # characters of a header value in an error
_FORBIDDEN: Final = 403  # Envoy's status for a guarded request, and for an upgrade
_BROKEN_OFF: Final = ("UC", "UR")
"""Envoy's flags for an upstream connection that was closed or reset after the request was sent. The request may have
been carried out, so the status is 502. It is 503, for a retry, only where no backend was reached."""
BROKEN_OFF: Final = "the model closed the connection before it responded; the request may have been carried out"

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class RequestGuard:
    """A rule that refuses requests by their headers, when all of `matches` (Envoy's HeaderMatchers) hold."""

    name: str
    matches: tuple[Json, ...]
    status: int
    message: str


@dataclass(frozen=True, slots=True)
class LocalReply:
    """A local reply under the condition `when`, with `message` and, if set, another `status` than Envoy's."""

    when: Json
    message: str
    status: int | None = None
    headers: dict[str, str] = field(default_factory=dict)


def guards(limits: GatewayLimits) -> tuple[RequestGuard, ...]:
    """Return the rules that refuse requests. Envoy's parser checks the framing of HTTP itself."""
    within = {"start": 0, "end": limits.body_bytes + 1}
    return (
        RequestGuard(
            "body",
            (
                {"name": "content-length", "present_match": True},
                {"name": "content-length", "range_match": within, "invert_match": True},
            ),
            413,
            f"the request body is larger than the limit of {format_size(limits.body_bytes)}",
        ),
        RequestGuard(
            "two hosts",
            ({"name": ":authority", "string_match": {"contains": ","}},),
            400,
            "the request has two hosts",
        ),
        RequestGuard(
            "path form",
            ({"name": ":authority", "string_match": {"suffix": PATH_FORM_DOMAIN, "ignore_case": True}},),
            404,
            "no model has this internal host name of the gateway",
        ),
        *(() if ANY in limits.hosts else (_foreign_origin(limits),)),
    )


def _how_to_allow(limits: GatewayLimits) -> str:
    return f"to allow its host name, restart the platform: `knodel down`, then {limits.restart}"


def _foreign_origin(limits: GatewayLimits) -> RequestGuard:
    """Return the rule against foreign web pages: a browser sends the origin of the page with each request."""
    names = "|".join(re.escape(host).replace(r"\*", r"[^/:]+") for host in limits.hosts)
    known = {"safe_regex": {"regex": f"https?://({names})(:[0-9]+)?"}}
    present = {"name": "origin", "present_match": True}
    other = {"name": "origin", "string_match": known, "invert_match": True}
    message = f"a web page of origin %REQ(ORIGIN):{_SHOWN}% may not call this gateway; {_how_to_allow(limits)}"
    return RequestGuard("foreign origin", (present, other), 403, message)


def local_replies(limits: GatewayLimits) -> Json:
    """Return `HttpConnectionManager.local_reply_config`."""
    return {"mappers": [_mapper(reply) for reply in replies(limits)]}


def replies(limits: GatewayLimits) -> tuple[LocalReply, ...]:
    """Return every error of the gateway, in order of precedence."""
    upgrade = _header({"name": "upgrade", "present_match": True})
    by_path = _header({"name": ORIGINAL_PATH, "present_match": True})
    remedy = "`knodel list` lists the models, `knodel get NAME` the addresses of one"
    host = f"host %REQ(:AUTHORITY):{_SHOWN}% and path %PATH(NQ:PATH):{_SHOWN}%"
    foreign = f"host %REQ(:AUTHORITY):{_SHOWN}% is not a name of this gateway"
    headers = f"the request headers are larger than {limits.header_kib} KiB or more than {limits.header_count}"
    guarded = (
        LocalReply(_all(_status(_FORBIDDEN), *map(_header, guard.matches)), guard.message, status=guard.status)
        for guard in guards(limits)
    )
    no_path = _header({"name": ":path", "string_match": {"prefix": "/"}, "invert_match": True})
    return (
        LocalReply(_all(_status(404), no_path), "the request's target is not a path", status=400),
        LocalReply(_all(_status(404), by_path), f"no model at path %REQ({ORIGINAL_PATH}):{_SHOWN}%; {remedy}"),
        LocalReply(_status(404), f"no model at {host}; {remedy}"),
        *guarded,
        LocalReply(_all(_status(_FORBIDDEN), upgrade), "upgrades are not supported: send the request without Upgrade"),
        LocalReply(_status(_FORBIDDEN), f"{foreign}; {_how_to_allow(limits)}"),
        LocalReply(_status(431), headers),
        LocalReply(_status(405), "this address is read-only: use GET"),
        LocalReply(_status(408), "the request did not arrive in time"),
        LocalReply(_status(504), "the model did not respond in time"),
        LocalReply(_all(_status(503), {"response_flag_filter": {"flags": _BROKEN_OFF}}), BROKEN_OFF, status=502),
        LocalReply(_status(503), "the model cannot be reached now: try again", headers={"retry-after": RETRY_AFTER}),
        LocalReply(_status(502), "the model's response was not valid HTTP"),
        LocalReply(_status(426), "HTTP/1.0 is not supported: use HTTP/1.1 or HTTP/2"),
        LocalReply(_status(400), "the request is not valid HTTP (%RESPONSE_CODE_DETAILS%)"),
        LocalReply(_status(400, "GE"), "the gateway refused the request (status %RESPONSE_CODE%)"),
    )


def _mapper(reply: LocalReply) -> Json:
    mapper: Json = {"filter": reply.when, "body_format_override": {"json_format": {"error": reply.message}}}
    if reply.status is not None:
        mapper["status_code"] = reply.status
    if reply.headers:
        mapper["headers_to_add"] = [
            {"header": {"key": name, "value": value}, "append_action": "OVERWRITE_IF_EXISTS_OR_ADD"}
            for name, value in reply.headers.items()
        ]
    return mapper


def _status(code: int, comparison: str = "EQ") -> Json:
    value = {"default_value": code, "runtime_key": "knodel.none"}  # a key is required; the runtime has no such value
    return {"status_code_filter": {"comparison": {"op": comparison, "value": value}}}


def _header(match: Json) -> Json:
    return {"header_filter": {"header": match}}


def _all(*filters: Json) -> Json:
    return {"and_filter": {"filters": filters}}
