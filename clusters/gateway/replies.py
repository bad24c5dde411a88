"""Envoy's local replies in the format of the Open Inference Protocol, `{"error": "…"}`, and refused requests. Pure.

Those at paths of OpenAI's API have its form (`clusters.net.language_models`). The first reply in `replies` whose
condition holds is sent. A condition is one of Envoy's access log filters
(`envoy.config.accesslog.v3.AccessLogFilter`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, Final

from clusters.base.sizes import format_size
from clusters.gateway.limits import GatewayLimits
from clusters.gateway.openai_script import CODE_KEY, MODEL_KEY, OPENAI_PATH, PARAM_KEY, REFUSED, TOO_LARGE
from clusters.gateway.route_config import ORIGINAL_PATH, OWN_METADATA, PATH_FORM_DOMAIN
from clusters.net.hosts import ANY
from clusters.net.language_models import MODEL_NOT_FOUND, error_body

RETRY_AFTER: Final = "1"  # s; a dead replica is replaced, or the activator takes over, within about this time
_SHOWN: Final = 128  # characters of a header value in an error
_OPENAI: Final = rf"(/namespaces/[a-z0-9-]+)?{OPENAI_PATH}([/?].*)?"  # also after the path form has replaced the path
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
    """A local reply to Envoy's status `at` under the condition `when`, with `message`.

    `status`, if set, replaces Envoy's. `param` and `code` are those of an error in OpenAI's form.
    """

    at: int
    when: Json
    message: str
    status: int | None = None
    headers: dict[str, str] = field(default_factory=dict)
    param: str | None = None
    code: str | None = None


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
    common = [mapper for reply in replies(limits) for mapper in (_openai_mapper(reply), _mapper(reply))]
    return {"mappers": [*map(_openai_mapper, openai_replies()), *common]}


def openai_replies() -> tuple[LocalReply, ...]:
    """Return the errors that only requests at paths of OpenAI's API have, in order of precedence."""
    refused = _header({"name": REFUSED, "present_match": True})
    by_path = _header({"name": ORIGINAL_PATH, "present_match": True})
    no_model = f"no model '{_metadata(MODEL_KEY)}': GET …{OPENAI_PATH}/models lists the models"
    param, code = _metadata(PARAM_KEY), _metadata(CODE_KEY)
    full = _all(_status(503), refused)
    return (
        LocalReply(503, full, "%LOCAL_REPLY_BODY%", headers={"retry-after": RETRY_AFTER}),
        LocalReply(400, refused, "%LOCAL_REPLY_BODY%", param=param, code=code),
        LocalReply(404, _all(_status(404), by_path), no_model, param="model", code=MODEL_NOT_FOUND),
        LocalReply(413, _status(413), TOO_LARGE),
    )


def replies(limits: GatewayLimits) -> tuple[LocalReply, ...]:
    """Return every other error of the gateway, in order of precedence."""
    upgrade = _header({"name": "upgrade", "present_match": True})
    by_path = _header({"name": ORIGINAL_PATH, "present_match": True})
    remedy = "`knodel list` lists the models, `knodel get NAME` the addresses of one"
    host = f"host %REQ(:AUTHORITY):{_SHOWN}% and path %PATH(NQ:PATH):{_SHOWN}%"
    foreign = f"host %REQ(:AUTHORITY):{_SHOWN}% is not a name of this gateway"
    headers = f"the request headers are larger than {limits.header_kib} KiB or more than {limits.header_count}"
    guarded = (
        _reply(_FORBIDDEN, guard.message, *map(_header, guard.matches), status=guard.status) for guard in guards(limits)
    )
    no_path = _header({"name": ":path", "string_match": {"prefix": "/"}, "invert_match": True})
    broken_off = {"response_flag_filter": {"flags": _BROKEN_OFF}}
    return (
        _reply(404, "the request's target is not a path", no_path, status=400),
        _reply(404, f"no model at path %REQ({ORIGINAL_PATH}):{_SHOWN}%; {remedy}", by_path),
        _reply(404, f"no model at {host}; {remedy}"),
        *guarded,
        _reply(_FORBIDDEN, "upgrades are not supported: send the request without Upgrade", upgrade),
        _reply(_FORBIDDEN, f"{foreign}; {_how_to_allow(limits)}"),
        _reply(431, headers),
        _reply(405, "this address is read-only: use GET"),
        _reply(408, "the request did not arrive in time"),
        _reply(504, "the model did not respond in time"),
        _reply(503, BROKEN_OFF, broken_off, status=502),
        _reply(503, "the model cannot be reached now: try again", headers={"retry-after": RETRY_AFTER}),
        _reply(502, "the model's response was not valid HTTP"),
        _reply(426, "HTTP/1.0 is not supported: use HTTP/1.1 or HTTP/2"),
        _reply(400, "the request is not valid HTTP (%RESPONSE_CODE_DETAILS%)"),
        LocalReply(400, _status(400, "GE"), "the gateway refused the request (status %RESPONSE_CODE%)"),
    )


def _reply(at: int, message: str, *conditions: Json, **more: Any) -> LocalReply:
    return LocalReply(at, _all(_status(at), *conditions) if conditions else _status(at), message, **more)


def _openai_mapper(reply: LocalReply) -> Json:
    body = error_body(reply.status or reply.at, reply.message, param=reply.param, code=reply.code)
    at_path = _header({"name": ":path", "string_match": {"safe_regex": {"regex": _OPENAI}}})
    return _mapper_of(reply, _all(at_path, reply.when), body)


def _mapper(reply: LocalReply) -> Json:
    return _mapper_of(reply, reply.when, {"error": reply.message})


def _mapper_of(reply: LocalReply, when: Json, body: Json) -> Json:
    mapper: Json = {"filter": when, "body_format_override": {"json_format": body}}
    if reply.status is not None:
        mapper["status_code"] = reply.status
    if reply.headers:
        mapper["headers_to_add"] = [
            {"header": {"key": name, "value": value}, "append_action": "OVERWRITE_IF_EXISTS_OR_ADD"}
            for name, value in reply.headers.items()
        ]
    return mapper


def _metadata(key: str) -> str:
    return f"%DYNAMIC_METADATA({OWN_METADATA}:{key})%"


def _status(code: int, comparison: str = "EQ") -> Json:
    value = {"default_value": code, "runtime_key": "knodel.none"}  # a key is required; the runtime has no such value
    return {"status_code_filter": {"comparison": {"op": comparison, "value": value}}}


def _header(match: Json) -> Json:
    return {"header_filter": {"header": match}}


def _all(*filters: Json) -> Json:
    return {"and_filter": {"filters": filters}}
