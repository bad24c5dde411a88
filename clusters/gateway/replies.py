"""What Envoy itself answers, in the words of the Open Inference Protocol: `{"error": "…"}`. Pure.

Each reply is a row of `REPLIES`; the first row whose condition holds counts. A condition is an access log filter of
Envoy's (`envoy.config.accesslog.v3.AccessLogFilter`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from clusters.gateway.limits import Limits
from clusters.gateway.route_config import ASKED_HOST

RETRY_AFTER: Final = "1"  # s; a replica that died is replaced, or the activator takes over, within about this time
_SHOWN: Final = 128  # characters of a caller's own words that an error repeats

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Reply:
    """`message` for local replies that fulfil `when`; `status` replaces the status of Envoy's own."""

    when: Json
    message: str
    status: int | None = None
    headers: dict[str, str] = field(default_factory=dict)


def local_replies(limits: Limits) -> Json:
    """`HttpConnectionManager.local_reply_config`."""
    return {"mappers": [_mapper(reply) for reply in replies(limits)]}


def replies(limits: Limits) -> tuple[Reply, ...]:
    """Every reply that the gateway makes, in order of precedence."""
    retry = {"retry-after": RETRY_AFTER}
    mebibytes = limits.body_bytes // (1024 * 1024)
    return (
        Reply(
            _status(404),
            f"no model answers at host %REQ({ASKED_HOST}?:AUTHORITY):{_SHOWN}% and path %REQ(:PATH):{_SHOWN}%; "
            "`knodel list` shows the addresses",
        ),
        Reply(
            _both(_status(403), _header(too_large(limits))),
            f"the request body is larger than {mebibytes} MiB, the largest that is taken",
            status=413,
        ),
        Reply(_status(403), "this gateway does not switch protocols: send the request without Upgrade"),
        Reply(
            _status(431),
            f"the request headers are larger than {limits.header_kib} KiB or more than {limits.header_count}",
        ),
        Reply(_status(405), "this address is read-only: use GET"),
        Reply(_status(408), "the request did not arrive in time"),
        Reply(_status(504), "the model did not answer in time"),
        Reply(_status(503), "the model cannot be reached right now: try again", headers=retry),
        Reply(_status(502), "the model's answer was not valid HTTP"),
        Reply(_status(426), "HTTP/1.0 is not spoken here: use HTTP/1.1 or HTTP/2"),
        Reply(_status(400), "the request is not valid HTTP (%RESPONSE_CODE_DETAILS%)"),
        Reply(_status(400, "GE"), "the gateway refused the request (status %RESPONSE_CODE%)"),
    )


def too_large(limits: Limits) -> Json:
    """A header match for a body that announces more than the limit."""
    beyond = {"start": limits.body_bytes + 1, "end": 2**63 - 1}
    return {"name": "content-length", "range_match": beyond}


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


def _header(match: Json) -> Json:
    return {"header_filter": {"header": match}}


def _both(first: Json, second: Json) -> Json:
    return {"and_filter": {"filters": [first, second]}}
