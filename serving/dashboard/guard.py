"""Checks of requests to the dashboard, and the headers of its responses. Pure.

Host      a name of this address, against DNS rebinding
Origin    of a change: the dashboard itself, against forms on other pages
form      of a change: the hidden field of the session, against the same
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final
from urllib.parse import parse_qsl

from clusters.base.errors import Forbidden, KnodelError
from clusters.net.hosts import KnownHosts, host_name

MOST_BODY: Final = 1 << 20
"""Bytes of a form: a request for a model may be in it."""
MOST_FIELDS: Final = 256
FORM: Final = "application/x-www-form-urlencoded"
POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
"""The Content-Security-Policy: no inline code or style, and nothing from elsewhere."""
HEADERS: Final[Mapping[str, str]] = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    # `no-referrer` would also take the Origin from the forms
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "x-frame-options": "DENY",
}
"""Headers of every response."""


class BadForm(KnodelError):
    """A form that cannot be read."""


def check_host(headers: Mapping[str, str], hosts: Collection[str]) -> None:
    """Check the Host header. Raises Forbidden."""
    host = host_name(headers.get("host", ""))
    if not KnownHosts(frozenset(hosts)).knows(host):
        raise Forbidden(f"Host {host[:100]!r} is not an address of the dashboard: use {min(hosts)}")


def check_origin(headers: Mapping[str, str]) -> None:
    """Check that a change comes from a page of the dashboard. Raises Forbidden."""
    origin = headers.get("origin", "")
    if (
        origin.partition("://")[2] != headers.get("host")
        or headers.get("sec-fetch-site", "same-origin") != "same-origin"
    ):
        raise Forbidden(f"Origin {origin[:100]!r} may not change anything here: use the forms of the dashboard")


def read_form(content_type: str, body: bytes) -> dict[str, str]:
    """Return the fields of a form. Raises BadForm for another media type, and for a field that is repeated."""
    if content_type.partition(";")[0].strip().lower() != FORM:
        raise BadForm(f"media type {content_type[:60]!r} is not that of a form: send {FORM}")
    try:
        pairs = parse_qsl(body.decode(), keep_blank_values=True, strict_parsing=True, max_num_fields=MOST_FIELDS)
    except (ValueError, UnicodeError) as error:
        raise BadForm("the body is not a form: reload the page and send it again") from error
    if len(pairs) != len(dict(pairs)):
        raise BadForm("a field of the form is repeated: reload the page and send it again")
    return dict(pairs)
