"""What a server is started with: arguments of the container, and the environment that the kubelet gives it."""

from __future__ import annotations

import argparse
import math
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, NoReturn

import msgspec

from clusters.gateway.token import VARIABLE
from clusters.net.authority import url_host
from clusters.net.hosts import ANY, LOOPBACK_NAMES, PATTERN_FORM, KnownHosts, is_host_pattern
from clusters.net.ssrf import is_loopback
from serving.modelserver.base.assignment import BATCH_LATENCY, Assignment, Batching, Bounds, is_name
from serving.modelserver.base.errors import BadOptions
from serving.modelserver.base.first_digest import RECORD, first_digest
from serving.modelserver.base.observability_options import ObservabilityOptions, add_arguments, observability_of

DEFAULT_SLOTS: Final = 4  # requests inside the model at once; scaleTarget's default
DEFAULT_QUEUE: Final = 1000  # as holdQueue: what was held at zero is not refused by the first replica that it reaches
DEFAULT_TIMEOUT: Final = 300.0  # s; as Model.spec.timeout
DEFAULT_LOAD_TIMEOUT: Final = 600.0  # s; as long as Knative lets a revision come up (progress-deadline)
DEFAULT_PORT: Final = 8080  # Knative's container contract
DEFAULT_MANAGEMENT_PORT: Final = 9095
DEFAULT_HOST: Final = "127.0.0.1"  # loopback only unless asked: container images set HOST
DEFAULT_POOL_FORMAT: Final = "onnx"
NO_SCRATCH: Final = "/tmp"  # noqa: S108 - named in messages: set TMPDIR, or mount a volume there
KUBERNETES_TERMINATION_LOG: Final = Path("/dev/termination-log")  # terminationMessagePath's default
LOAD_TOKEN: Final = "KNODEL_LOAD_TOKEN_SHA256"  # noqa: S105 - a variable's name
"""Hex SHA-256 of the token that load and unload calls need; without it each is refused."""

ALLOWED_HOSTS: Final = "KNODEL_ALLOWED_HOSTS"
"""What `--allowed-host` names, with commas."""
ALLOW_BY_VARIABLE: Final = f"add {{}} to its variable {ALLOWED_HOSTS} to allow it; on a platform, call the gateway"

_LARGEST_PORT: Final = 65535


class Pool(msgspec.Struct, frozen=True):
    """What a pool member is: engines of `format` imported."""

    format: str


class ServerOptions(msgspec.Struct, frozen=True):
    """Checked options. `assignment`: the model to serve, None until a pool member is told; `bounds` are its default.

    `scratch` is a folder of this container's own that outlives its restart; `pool` is None for a server that can only
    serve what its command line says. `grpc_port` is None for a server without gRPC; `allow_code`: code of an artifact
    may run; `signature` is that of a SavedModel to serve, "" for the usual one.

    `models` is the folder of a server of many models, of `format` ("": found for each), which may take `memory_limit`
    bytes together, and one of them `load_timeout` seconds until it is loaded; None for a server of one. `token_sha256`
    (hex) is that of the token by which models are loaded, "" where none may be. `hosts` are the names that
    Host and Origin of a request may have, None for any. A server that `remembers` keeps the digest of what it loaded
    (`first_digest`). `gateway_token` is of requests from the gateway (`clusters.gateway.token`), b"" without one.
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
    models: Path | None = None
    memory_limit: int | None = None
    load_timeout: float = DEFAULT_LOAD_TIMEOUT
    format: str = ""
    token_sha256: str = ""
    hosts: KnownHosts | None = None
    remembers: bool = False
    gateway_token: bytes = b""


def parse_options(argv: Sequence[str], environ: Mapping[str, str]) -> ServerOptions:
    """Raises BadOptions; `--help` prints and raises SystemExit."""
    given = _parser().parse_args(argv)
    _check_alternatives(given)
    bounds = _bounds(given)
    scratch = _scratch(environ)
    return ServerOptions(
        assignment=None if given.pool or given.models else _assignment(given, bounds, environ),
        pool=Pool(given.format or DEFAULT_POOL_FORMAT) if given.pool else None,
        bounds=bounds,
        queue=given.queue,
        observability=observability_of(given, environ),
        host=environ.get("HOST") or DEFAULT_HOST,
        port=_port(environ, "PORT", DEFAULT_PORT),
        management_port=_port(environ, "MANAGEMENT_PORT", DEFAULT_MANAGEMENT_PORT),
        cache=Path(environ.get("KNODEL_CACHE") or scratch / "knodel-cache"),
        scratch=scratch,
        allow_hosts=frozenset(_list(environ, "KNODEL_ALLOW_HOSTS")),
        grpc_port=_port(environ, "GRPC_PORT", 0) if environ.get("GRPC_PORT") else None,
        allow_code=given.allow_code,
        signature=given.signature,
        models=given.models,
        memory_limit=given.memory_limit,
        load_timeout=given.load_timeout or DEFAULT_LOAD_TIMEOUT,
        format=given.format,
        token_sha256=environ.get(LOAD_TOKEN, "").lower(),
        hosts=_known_hosts(given.allowed_host, environ),
        remembers=bool(environ.get(RECORD)),
        gateway_token=environ.get(VARIABLE, "").encode(),
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
        raise BadOptions(f"{message}; see --help")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="serving.modelserver", description="Serve models by the Open Inference Protocol v2.",
                     allow_abbrev=False)  # fmt: skip
    add = parser.add_argument
    add("--name", default="", help="name of the model")
    add("--storage-uri", default="", help="where the model is: file:///PATH, http(s)://…")
    add("--digest", default="", help="sha256:… of the file or folder; refused on mismatch")
    add("--pool", action="store_true", help="wait for a load call that names the model, engines imported")
    add("--models", type=Path, metavar="DIR", help="serve many: each folder and model file in DIR, by its name")
    add("--memory-limit", type=_bytes, metavar="QUANTITY", help="memory of all --models together, as 4Gi [all]")
    add("--load-timeout", type=_seconds, metavar="SECONDS",
        help=f"that one of --models may take to be fetched and loaded [{DEFAULT_LOAD_TIMEOUT:g}]")  # fmt: skip
    add("--format", default="", help=f"format of the model [found from its files; of a pool {DEFAULT_POOL_FORMAT}]")
    add("--slots", type=_count, default=DEFAULT_SLOTS, help="requests inside the model at once [%(default)s]")
    add("--queue", type=_count_or_zero, default=DEFAULT_QUEUE, help="requests that may wait for a slot [%(default)s]")
    add("--timeout", type=_seconds, default=DEFAULT_TIMEOUT, help="seconds that a request may take [%(default)s]")
    add("--max-batch-size", type=_count, default=1, metavar="ROWS", help="rows that share an inference [%(default)s]")
    add("--max-batch-latency", type=_seconds_or_zero, metavar="SECONDS", help="that it waits for more of them at most")
    add("--cpu", type=_seconds, default=1.0, help="CPU limit of the container in cores [%(default)s]")
    add("--signature", default="", help="signature of a SavedModel that has several [serving_default]")
    add("--allow-code", action="store_true", help="serve formats that run code of the artifact: python, pickle, joblib")
    add("--allowed-host", action="append", default=[], metavar="NAME",
        help="host name that requests and web pages may have, `*.DOMAIN` or `*` for any; may be repeated "
        "[on loopback 127.0.0.1, [::1], localhost, *.localhost, else any]")  # fmt: skip
    add_arguments(parser)
    return parser


def _check_alternatives(given: argparse.Namespace) -> None:
    """One model, many, or one that is told later. Raises BadOptions."""
    named = [option for option, value in _named(given) if value]
    for option, value, told in (("--pool", given.pool, "a load call names"), ("--models", given.models, "DIR names")):
        if value and named:
            raise BadOptions(f"{', '.join(named)}: not together with {option}, whose model {told}")
    if given.pool and given.models:
        raise BadOptions("--models: not together with --pool, whose model a load call names")
    if given.memory_limit is not None and not given.models:
        raise BadOptions("--memory-limit: only with --models, which it may unload")
    if given.load_timeout is not None and not given.models:
        raise BadOptions("--load-timeout: only with --models, of which one that hangs would keep the others out")
    if given.max_batch_latency is not None and given.max_batch_size == 1:
        raise BadOptions("--max-batch-latency: only with --max-batch-size, of 2 or more")


def _bounds(given: argparse.Namespace) -> Bounds:
    latency = BATCH_LATENCY if given.max_batch_latency is None else given.max_batch_latency
    batching = Batching(given.max_batch_size, latency) if given.max_batch_size > 1 else None
    return Bounds(given.slots, given.timeout, given.cpu, batching)


def _assignment(given: argparse.Namespace, bounds: Bounds, environ: Mapping[str, str]) -> Assignment:
    missing = [option for option, value in _named(given) if not value and option != "--digest"]
    if missing:
        raise BadOptions(
            f"{', '.join(missing)}: required, unless --pool waits for a load call or --models has them; see --help"
        )
    if not is_name(given.name):
        raise BadOptions(f"--name {given.name[:80]!r}: at most 63 of a-z, 0-9 and '-', a letter or digit at both ends")
    revision = environ.get("K_REVISION") or f"{given.name}-00001"  # without a platform: the only one
    if not is_name(revision):
        raise BadOptions(f"K_REVISION={revision[:80]!r} is no name of a revision")
    digest = given.digest or first_digest(environ, revision, _scratch(environ))
    return Assignment(given.name, revision, given.storage_uri, digest, given.format, bounds)


def _named(given: argparse.Namespace) -> tuple[tuple[str, str], ...]:
    return ("--name", given.name), ("--storage-uri", given.storage_uri), ("--digest", given.digest)


def _known_hosts(named: Sequence[str], environ: Mapping[str, str]) -> KnownHosts | None:
    """Return the names of a server: any where it is not on loopback, unless some are named. Raises BadOptions."""
    address = environ.get("HOST") or DEFAULT_HOST
    setting, allowed = ("--allowed-host", named) if named else (ALLOWED_HOSTS, _list(environ, ALLOWED_HOSTS))
    for name in allowed:
        if not is_host_pattern(name):
            raise BadOptions(f"{setting} {name[:80]!r}: is not a host name: {PATTERN_FORM}")
    if ANY in allowed or not (allowed or is_loopback(address)):
        return None
    names = frozenset(name.lower() for name in (*LOOPBACK_NAMES, url_host(address), *allowed))
    return KnownHosts(names) if setting != ALLOWED_HOSTS or not allowed else KnownHosts(names, ALLOW_BY_VARIABLE)


def _list(environ: Mapping[str, str], variable: str) -> list[str]:
    return [name for name in map(str.strip, environ.get(variable, "").split(",")) if name]


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


def _scratch(environ: Mapping[str, str]) -> Path:
    """Where temporary files go. On a machine that has no such place, whoever writes one is told that it cannot."""
    try:
        return Path(environ.get("TMPDIR") or tempfile.gettempdir())
    except FileNotFoundError:
        return Path(NO_SCRATCH)


def _seconds_or_zero(text: str) -> float:
    return 0.0 if float(text) == 0 else _seconds(text)


def _bytes(text: str) -> int:
    from clusters.base.quantities import parse_quantity  # few servers have a limit

    try:
        value = int(parse_quantity(text))
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text} {error}") from error
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} is less than 1")
    return value


def _port(environ: Mapping[str, str], name: str, default: int) -> int:
    text = environ.get(name) or str(default)
    if not (text.isascii() and text.isdigit() and int(text) <= _LARGEST_PORT):
        raise BadOptions(f"{name}={text[:80]!r}: a port is a number from 0 (any free one) to {_LARGEST_PORT}")
    return int(text)
