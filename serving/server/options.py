"""What a server is started with: arguments of the container, and the environment that the kubelet gives it."""

from __future__ import annotations

import argparse
import math
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NoReturn

from serving.server.assignment import Assignment, Bounds, is_name
from serving.server.errors import BadOptions
from serving.server.observability_options import ObservabilityOptions, add_arguments, observability_of

DEFAULT_SLOTS: Final = 4  # requests inside the model at once; scaleTarget's default
DEFAULT_QUEUE: Final = 1000  # as holdQueue: what was held at zero is not refused by the first replica that it reaches
DEFAULT_TIMEOUT: Final = 300.0  # s; as Model.spec.timeout
DEFAULT_PORT: Final = 8080  # Knative's container contract
DEFAULT_MANAGEMENT_PORT: Final = 9095
DEFAULT_HOST: Final = "127.0.0.1"  # loopback only unless asked: container images set HOST
DEFAULT_POOL_FORMAT: Final = "onnx"
KUBERNETES_TERMINATION_LOG: Final = Path("/dev/termination-log")  # terminationMessagePath's default
LOAD_TOKEN: Final = "KNODEL_LOAD_TOKEN_SHA256"  # noqa: S105 - a variable's name
"""Hex SHA-256 of the token that a load call needs; without it each is refused."""

_LARGEST_PORT: Final = 65535


@dataclass(frozen=True, slots=True)
class Pool:
    """What a pool member is: engines of `format` imported, and loads that bear the token with this SHA-256 (hex)."""

    format: str
    token_sha256: str


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """Checked options. `assignment`: the model to serve, None until a pool member is told; `bounds` are its default.

    `scratch` is a folder of this container's own that outlives its restart; `pool` is None for a server that can only
    serve what its command line says. `grpc_port` is None for a server without gRPC; `allow_code`: code of an artifact
    may run; `signature` is that of a SavedModel to serve, "" for the usual one.
    """

    assignment: Assignment | None
    pool: Pool | None
    bounds: Bounds
    queue: int
    observability: ObservabilityOptions
    host: str
    port: int
    management_port: int
    cache: Path
    scratch: Path
    allow_hosts: frozenset[str]
    grpc_port: int | None = None
    allow_code: bool = False
    signature: str = ""


def parse_options(argv: Sequence[str], environ: Mapping[str, str]) -> ServerOptions:
    """Raises BadOptions; `--help` prints and raises SystemExit."""
    given = _parser().parse_args(argv)
    bounds = Bounds(given.slots, given.timeout, given.cpu)
    scratch = Path(environ.get("TMPDIR") or tempfile.gettempdir())
    return ServerOptions(
        assignment=None if given.pool else _assignment(given, bounds, environ),
        pool=_pool(given, environ) if given.pool else None,
        bounds=bounds,
        queue=given.queue,
        observability=observability_of(given, environ),
        host=environ.get("HOST") or DEFAULT_HOST,
        port=_port(environ, "PORT", DEFAULT_PORT),
        management_port=_port(environ, "MANAGEMENT_PORT", DEFAULT_MANAGEMENT_PORT),
        cache=Path(environ.get("KNODEL_CACHE") or scratch / "knodel-cache"),
        scratch=scratch,
        allow_hosts=frozenset(filter(None, map(str.strip, environ.get("KNODEL_ALLOW_HOSTS", "").split(",")))),
        grpc_port=_port(environ, "GRPC_PORT", 0) if environ.get("GRPC_PORT") else None,
        allow_code=given.allow_code,
        signature=given.signature,
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
    add("--name", default="", help="name of the model")
    add("--storage-uri", default="", help="where the model is: file:///PATH, http(s)://…")
    add("--digest", default="", help="sha256:… of the file or folder; refused on mismatch")
    add("--pool", action="store_true", help="wait for a load call that names the model, engines imported")
    add("--format", default="", help=f"format of the model [found from its files; of a pool {DEFAULT_POOL_FORMAT}]")
    add("--slots", type=_count, default=DEFAULT_SLOTS, help="requests inside the model at once [%(default)s]")
    add("--queue", type=_count_or_zero, default=DEFAULT_QUEUE, help="requests that may wait for a slot [%(default)s]")
    add("--timeout", type=_seconds, default=DEFAULT_TIMEOUT, help="seconds that a request may take [%(default)s]")
    add("--cpu", type=_seconds, default=1.0, help="CPU limit of the container in cores [%(default)s]")
    add("--signature", default="", help="signature of a SavedModel that has several [serving_default]")
    add("--allow-code", action="store_true", help="serve formats that run code of the artifact: python, pickle, joblib")
    add_arguments(parser)
    return parser


def _assignment(given: argparse.Namespace, bounds: Bounds, environ: Mapping[str, str]) -> Assignment:
    missing = [option for option, value in _named(given) if not value and option != "--digest"]
    if missing:
        raise BadOptions(f"{', '.join(missing)}: required, unless --pool waits for a load call; see --help")
    if not is_name(given.name):
        raise BadOptions(f"--name {given.name[:80]!r}: at most 63 of a-z, 0-9 and '-', a letter or digit at both ends")
    revision = environ.get("K_REVISION") or f"{given.name}-00001"  # without a platform: the only one
    if not is_name(revision):
        raise BadOptions(f"K_REVISION={revision[:80]!r} is no name of a revision")
    return Assignment(given.name, revision, given.storage_uri, given.digest, given.format, bounds)


def _pool(given: argparse.Namespace, environ: Mapping[str, str]) -> Pool:
    named = [option for option, value in _named(given) if value]
    if named:
        raise BadOptions(f"{', '.join(named)}: not together with --pool, whose model a load call names")
    return Pool(given.format or DEFAULT_POOL_FORMAT, environ.get(LOAD_TOKEN, "").lower())


def _named(given: argparse.Namespace) -> tuple[tuple[str, str], ...]:
    return ("--name", given.name), ("--storage-uri", given.storage_uri), ("--digest", given.digest)


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


def _port(environ: Mapping[str, str], name: str, default: int) -> int:
    text = environ.get(name) or str(default)
    if not (text.isascii() and text.isdigit() and int(text) <= _LARGEST_PORT):
        raise BadOptions(f"{name}={text[:80]!r}: a port is a number from 0 (any free one) to {_LARGEST_PORT}")
    return int(text)
