"""What Envoy itself answers, in the words of the Open Inference Protocol: `{"error": "…"}`, and what it refuses. Pure.

Each reply is a row of `replies`; the first row whose condition holds counts. A condition is an access log filter of
Envoy's (`envoy.config.accesslog.v3.AccessLogFilter`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, Final

from clusters.base.sizes import format_size
from clusters.gateway.limits import Limits
from clusters.gateway.route_config import ASKED_PATH, PATH_FORM_DOMAIN
from clusters.net.hosts import ANY

RETRY_AFTER: Final = "1"  # s; a replica that died is replaced, or the activator takes over, within about this time
_SHOWN: Final = 128  # characters of a caller's own words that an error repeats
_FORBIDDEN: Final = 403  # Envoy's status for a request that a guard refused, and for an upgrade
_BROKEN_OFF: Final = ("UC", "UR")
"""Envoy's flags of an upstream connection that was ended, and of one that was reset, after the request went out: it may
have been carried out, so nothing asks for another try (502), as where nobody was reached (503)."""
BROKEN_OFF: Final = "the model closed the connection before it answered; the request may have been carried out"

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Guard:
    """Requests that are refused by their headers alone, before anything else: those for which all of `matches` hold.

    `matches` are Envoy's HeaderMatchers.
    """

    name: str
    matches: tuple[Json, ...]
    status: int
    message: str


@dataclass(frozen=True, slots=True)
class Reply:
    """`message` for local replies that fulfil `when`; `status` replaces the status of Envoy's own."""

    when: Json
    message: str
    status: int | None = None
    headers: dict[str, str] = field(default_factory=dict)


def guards(limits: Limits) -> tuple[Guard, ...]:
    """What is refused at the door. HTTP's framing itself is guarded by Envoy's parser."""
    within = {"start": 0, "end": limits.body_bytes + 1}
    return (
        Guard(
            "body",
            (
                {"name": "content-length", "present_match": True},
                {"name": "content-length", "range_match": within, "invert_match": True},
            ),
            413,
            f"the request body is larger than {format_size(limits.body_bytes)}, the largest that is taken",
        ),
        Guard(
            "two hosts",
            ({"name": ":authority", "string_match": {"contains": ","}},),
            400,
            "the request names two hosts",
        ),
        Guard(
            "path form",
            ({"name": ":authority", "string_match": {"suffix": PATH_FORM_DOMAIN, "ignore_case": True}},),
            404,
            "no model answers at a host of the gateway's own",
        ),
        *(() if ANY in limits.hosts else (_foreign_origin(limits),)),
    )


def _how_to_allow(limits: Limits) -> str:
    return f"to allow its host name, restart the platform: `knodel down`, then {limits.restart}"


def _foreign_origin(limits: Limits) -> Guard:
    """Return the guard against web pages of others: a browser sends its page's origin with each request."""
    names = "|".join(re.escape(host).replace(r"\*", r"[^/:]+") for host in limits.hosts)
    known = {"safe_regex": {"regex": f"https?://({names})(:[0-9]+)?"}}
    present = {"name": "origin", "present_match": True}
    other = {"name": "origin", "string_match": known, "invert_match": True}
    message = f"a web page of origin %REQ(ORIGIN):{_SHOWN}% may not call this gateway; {_how_to_allow(limits)}"
    return Guard("foreign origin", (present, other), 403, message)


def local_replies(limits: Limits) -> Json:
    """`HttpConnectionManager.local_reply_config`."""
    return {"mappers": [_mapper(reply) for reply in replies(limits)]}


def replies(limits: Limits) -> tuple[Reply, ...]:
    """Every error that the gateway answers, in order of precedence."""
    upgrade = _header({"name": "upgrade", "present_match": True})
    by_path = _header({"name": ASKED_PATH, "present_match": True})
    remedy = "`knodel list` shows the models, `knodel get NAME` the addresses of one"
    host = f"host %REQ(:AUTHORITY):{_SHOWN}% and path %PATH(NQ:PATH):{_SHOWN}%"
    stranger = f"host %REQ(:AUTHORITY):{_SHOWN}% is not a name of this gateway"
    headers = f"the request headers are larger than {limits.header_kib} KiB or more than {limits.header_count}"
    no_path = _header({"name": ":path", "string_match": {"prefix": "/"}, "invert_match": True})
    return (
        Reply(_all(_status(404), no_path), "the request's target is not a path", status=400),
        Reply(_all(_status(404), by_path), f"no model answers at path %REQ({ASKED_PATH}):{_SHOWN}%; {remedy}"),
        Reply(_status(404), f"no model answers at {host}; {remedy}"),
        *(_guarded(guard) for guard in guards(limits)),
        Reply(_all(_status(_FORBIDDEN), upgrade), "protocols are not switched here: send the request without Upgrade"),
        Reply(_status(_FORBIDDEN), f"{stranger}; {_how_to_allow(limits)}"),
        Reply(_status(431), headers),
        Reply(_status(405), "this address is read-only: use GET"),
        Reply(_status(408), "the request did not arrive in time"),
        Reply(_status(504), "the model did not answer in time"),
        Reply(_all(_status(503), _flags(*_BROKEN_OFF)), BROKEN_OFF, status=502),
        Reply(_status(503), "the model cannot be reached right now: try again", headers={"retry-after": RETRY_AFTER}),
        Reply(_status(502), "the model's answer was not valid HTTP"),
        Reply(_status(426), "HTTP/1.0 is not spoken here: use HTTP/1.1 or HTTP/2"),
        Reply(_status(400), "the request is not valid HTTP (%RESPONSE_CODE_DETAILS%)"),
        Reply(_status(400, "GE"), "the gateway refused the request (status %RESPONSE_CODE%)"),
    )


def _guarded(guard: Guard) -> Reply:
    when = _all(_status(_FORBIDDEN), *(_header(match) for match in guard.matches))
    return Reply(when, guard.message, status=guard.status)


def _mapper(reply: Reply) -> Json:
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
    value = {"default_value": code, "runtime_key": "knodel.none"}  # a key is required; there is no such runtime value
    return {"status_code_filter": {"comparison": {"op": comparison, "value": value}}}


def _flags(*flags: str) -> Json:
    return {"response_flag_filter": {"flags": flags}}


def _header(match: Json) -> Json:
    return {"header_filter": {"header": match}}


def _all(*filters: Json) -> Json:
    return {"and_filter": {"filters": filters}}
