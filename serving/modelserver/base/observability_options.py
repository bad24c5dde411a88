"""What a server is told about watching its requests: options of the command line, variables of the environment."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Final, Literal
from urllib.parse import urlsplit

import msgspec

from serving.modelserver.base.errors import BadOptions

Mode = Literal["all", "request", "response"]
MODES: Final[tuple[Mode, ...]] = ("all", "request", "response")
"""Which payloads are logged, in KServe's words."""
ENDPOINTS: Final = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
PROTOCOLS: Final = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
SPOKEN: Final = "http/protobuf"
_SHOWN: Final = 80  # characters of a wrong value that an error repeats


class Target(msgspec.Struct, frozen=True):
    """Where events are sent; `port` is None for the scheme's own."""

    scheme: str
    host: str
    port: int | None
    path: str


class PayloadOptions(msgspec.Struct, frozen=True):
    """Of which share of the requests (more than 0, at most 1) which payloads go where; `namespace` is "" if unknown."""

    target: Target
    share: float = 1.0
    mode: Mode = "all"
    namespace: str = ""


class ObservabilityOptions(msgspec.Struct, frozen=True):
    """`access_log`: share of the requests that get a line, 0 for none."""

    access_log: float = 0.0
    payload_log: PayloadOptions | None = None
    tracing: bool = False


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options that `observability_of` reads."""
    add = parser.add_argument
    add("--access-log", nargs="?", type=_share, const=1.0, default=0.0, metavar="SHARE",
        help="write one JSON line for each request or call, or for this share of them, to stderr")  # fmt: skip
    add("--payload-log", default="", metavar="URL", help="send requests and answers over HTTP there as CloudEvents")
    add("--payload-log-share", type=_share, default=1.0, metavar="SHARE", help="of the requests [%(default)s]")
    add("--payload-log-mode", choices=MODES, default="all", help="which payloads are sent [%(default)s]")


def observability_of(given: argparse.Namespace, environ: Mapping[str, str]) -> ObservabilityOptions:
    """Raises BadOptions."""
    payload_log = None
    if given.payload_log:
        target, namespace = target_of(given.payload_log), environ.get("POD_NAMESPACE", "")
        payload_log = PayloadOptions(target, given.payload_log_share, given.payload_log_mode, namespace)
    return ObservabilityOptions(given.access_log, payload_log, wants_tracing(environ))


def target_of(url: str) -> Target:
    """Where `--payload-log` points to. Raises BadOptions."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise BadOptions(f"--payload-log {url[:_SHOWN]!r}: {error}") from error
    if parts.scheme not in ("http", "https") or not host or not url.isascii() or not url.isprintable() or " " in url:
        raise BadOptions(f"--payload-log {url[:_SHOWN]!r}: give a URL, http(s)://HOST[:PORT]/PATH")
    return Target(parts.scheme, host, port, (parts.path or "/") + (f"?{parts.query}" if parts.query else ""))


def wants_tracing(environ: Mapping[str, str]) -> bool:
    """Whether the environment names a collector, by OpenTelemetry's own variables. Raises BadOptions."""
    off = environ.get("OTEL_SDK_DISABLED", "").lower() == "true" or environ.get("OTEL_TRACES_EXPORTER") == "none"
    if off or not any(environ.get(name) for name in ENDPOINTS):
        return False
    for name in PROTOCOLS:
        if environ.get(name, SPOKEN) != SPOKEN:
            raise BadOptions(f"{name}={environ[name][:_SHOWN]!r}: set {SPOKEN}, and the collector's port for it")
    return True


def _share(text: str) -> float:
    value = float(text)
    if not 0 < value <= 1:  # NaN neither
        raise argparse.ArgumentTypeError(f"{text} is no share: more than 0, at most 1")
    return value
