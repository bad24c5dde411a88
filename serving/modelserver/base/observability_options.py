"""Options of the access log, the payload log and tracing, from the command line and the environment."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Final, Literal
from urllib.parse import urlsplit

import msgspec

from clusters.net.otlp.environment import InvalidTelemetry, export_interval, wants
from serving.modelserver.base.errors import BadOptions

Mode = Literal["all", "request", "response"]
MODES: Final[tuple[Mode, ...]] = ("all", "request", "response")
"""Which payloads are logged, as KServe names the modes."""
_MAX_QUOTED: Final = 80  # characters of an invalid value that a message repeats


class PayloadSink(msgspec.Struct, frozen=True):
    """The URL that receives payload events; `port` is None for the default port of the scheme."""

    scheme: str
    host: str
    port: int | None
    path: str


class PayloadOptions(msgspec.Struct, frozen=True):
    """The payload log: `share` of requests (more than 0, at most 1); `namespace` is that of the Pod, "" if unknown."""

    target: PayloadSink
    share: float = 1.0
    mode: Mode = "all"
    namespace: str = ""


class ObservabilityOptions(msgspec.Struct, frozen=True):
    """Checked options; `access_log` is the share of requests to log, 0 for none.

    `metrics_interval` is the time in seconds between two exports of metrics to a collector, 0 for none.
    """

    access_log: float = 0.0
    payload_log: PayloadOptions | None = None
    tracing: bool = False
    metrics_interval: float = 0.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options that `observability_of` reads."""
    add = parser.add_argument
    add("--access-log", nargs="?", type=_share, const=1.0, default=0.0, metavar="SHARE",
        help="write a JSON line to stderr for each request, or for this share of them")  # fmt: skip
    add("--payload-log", default="", metavar="URL", help="send requests and responses to URL as CloudEvents")
    add("--payload-log-share", type=_share, default=1.0, metavar="SHARE",
        help="share of the requests to send, more than 0 and at most 1 [%(default)s]")  # fmt: skip
    add("--payload-log-mode", choices=MODES, default="all", help="payloads to send [%(default)s]")


def observability_of(given: argparse.Namespace, environ: Mapping[str, str]) -> ObservabilityOptions:
    """Return the checked options. Raises BadOptions."""
    payload_log = None
    if given.payload_log:
        target, namespace = parse_sink(given.payload_log), environ.get("POD_NAMESPACE", "")
        payload_log = PayloadOptions(target, given.payload_log_share, given.payload_log_mode, namespace)
    try:
        tracing = wants("traces", environ)
        interval = export_interval(environ) if wants("metrics", environ) else 0.0
    except InvalidTelemetry as error:
        raise BadOptions(str(error)) from error
    return ObservabilityOptions(given.access_log, payload_log, tracing, interval)


def parse_sink(url: str) -> PayloadSink:
    """Return the parts of a `--payload-log` URL. Raises BadOptions."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise BadOptions(f"--payload-log {url[:_MAX_QUOTED]!r} is not a URL: {error}") from error
    if parts.scheme not in ("http", "https") or not host or not url.isascii() or not url.isprintable() or " " in url:
        raise BadOptions(f"--payload-log {url[:_MAX_QUOTED]!r} is not a URL: use http(s)://HOST[:PORT]/PATH")
    return PayloadSink(parts.scheme, host, port, (parts.path or "/") + (f"?{parts.query}" if parts.query else ""))


def _share(text: str) -> float:
    value = float(text)
    if not 0 < value <= 1:  # refuses NaN, too
        raise argparse.ArgumentTypeError(f"{text} is not a share: use more than 0 and at most 1")
    return value
