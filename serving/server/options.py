"""What a server is started with: arguments of the container, and the environment that the kubelet gives it."""

from __future__ import annotations

import argparse
import math
import re
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NoReturn

from serving.server.errors import BadOptions

DEFAULT_SLOTS: Final = 4  # requests inside the model at once; scaleTarget's default
DEFAULT_QUEUE: Final = 1000  # as holdQueue: what was held at zero is not refused by the first replica that it reaches
DEFAULT_TIMEOUT: Final = 300.0  # s; as Model.spec.timeout
DEFAULT_PORT: Final = 8080  # Knative's container contract
DEFAULT_MANAGEMENT_PORT: Final = 9095
DEFAULT_HOST: Final = "127.0.0.1"  # loopback only unless asked: container images set HOST
KUBERNETES_TERMINATION_LOG: Final = Path("/dev/termination-log")  # terminationMessagePath's default

_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_LARGEST_PORT: Final = 65535


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """Checked options. `timeout` in seconds; `cpu` in cores; `revision` is what answers are labelled with."""

    name: str
    storage_uri: str
    digest: str
    format: str
    slots: int
    queue: int
    timeout: float
    cpu: float
    access_log: bool
    host: str
    port: int
    management_port: int
    revision: str
    cache: Path
    allow_hosts: frozenset[str]

    @property
    def threads(self) -> int:
        """Threads that one inference may use."""
        return max(1, math.floor(self.cpu))


def parse_options(argv: Sequence[str], environ: Mapping[str, str]) -> ServerOptions:
    """Raises BadOptions; `--help` prints and raises SystemExit."""
    given = _parser().parse_args(argv)
    if not _NAME.fullmatch(given.name):
        raise BadOptions(f"--name {given.name[:80]!r}: at most 63 of a-z, 0-9 and '-', a letter or digit at both ends")
    return ServerOptions(
        name=given.name,
        storage_uri=given.storage_uri,
        digest=given.digest,
        format=given.format,
        slots=given.slots,
        queue=given.queue,
        timeout=given.timeout,
        cpu=given.cpu,
        access_log=given.access_log,
        host=environ.get("HOST") or DEFAULT_HOST,
        port=_port(environ, "PORT", DEFAULT_PORT),
        management_port=_port(environ, "MANAGEMENT_PORT", DEFAULT_MANAGEMENT_PORT),
        revision=_revision(environ.get("K_REVISION") or f"{given.name}-00001"),  # without a platform: the only one
        cache=Path(environ.get("KNODEL_CACHE") or Path(tempfile.gettempdir()) / "knodel-cache"),
        allow_hosts=frozenset(filter(None, map(str.strip, environ.get("KNODEL_ALLOW_HOSTS", "").split(",")))),
    )


def termination_log(environ: Mapping[str, str]) -> Path | None:
    """Where the reason of a failed start is written; None where nobody reads it."""
    named = environ.get("KNODEL_TERMINATION_LOG")
    if named:
        return Path(named)
    return KUBERNETES_TERMINATION_LOG if KUBERNETES_TERMINATION_LOG.exists() else None


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """Errors are reported as all others are."""
        raise BadOptions(f"{self.prog}: {message}; see --help")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="serving.server", description="Serve one model by the Open Inference Protocol v2.",
                     allow_abbrev=False)  # fmt: skip
    add = parser.add_argument
    add("--name", required=True, help="name of the model")
    add("--storage-uri", required=True, help="where the model is: file:///PATH, http(s)://…")
    add("--digest", default="", help="sha256:… of the file or folder; refused on mismatch")
    add("--format", default="", help="format of the model [found from its files]")
    add("--slots", type=_count, default=DEFAULT_SLOTS, help="requests inside the model at once [%(default)s]")
    add("--queue", type=_count_or_zero, default=DEFAULT_QUEUE, help="requests that may wait for a slot [%(default)s]")
    add("--timeout", type=_seconds, default=DEFAULT_TIMEOUT, help="seconds that a request may take [%(default)s]")
    add("--cpu", type=_seconds, default=1.0, help="CPU limit of the container in cores [%(default)s]")
    add("--access-log", action="store_true", help="write one JSON line for each request to stderr")
    return parser


def _count(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} is less than 1")
    return value


def _count_or_zero(text: str) -> int:
    value = int(text)
    if value < 0:
        raise argparse.ArgumentTypeError(f"{text} is negative")
    return value


def _seconds(text: str) -> float:
    value = float(text)
    if not (math.isfinite(value) and value > 0):
        raise argparse.ArgumentTypeError(f"{text} is no positive number")
    return value


def _revision(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise BadOptions(f"K_REVISION={name[:80]!r} is no name of a revision")
    return name


def _port(environ: Mapping[str, str], name: str, default: int) -> int:
    text = environ.get(name) or str(default)
    if not (text.isascii() and text.isdigit() and int(text) <= _LARGEST_PORT):
        raise BadOptions(f"{name}={text[:80]!r}: a port is a number from 0 (any free one) to {_LARGEST_PORT}")
    return int(text)
