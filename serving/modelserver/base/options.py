"""Options of a server: its command line, and the environment variables that the kubelet or a user sets."""

from __future__ import annotations

import argparse
import math
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, NoReturn

import msgspec

from clusters.gateway.token import VARIABLE
from clusters.net.authority import url_host
from clusters.net.hosts import ANY, LOOPBACK_NAMES, PATTERN_FORM, KnownHosts, is_host_pattern
from clusters.net.ssrf import is_loopback
from serving.engines.base.errors import LoadFailed
from serving.engines.base.group import NO_GROUP, GroupOptions, read_group
from serving.engines.base.llm_arguments import (
    ADAPTER_FORM,
    ADAPTERS_VARIABLE,
    BadLlmOptions,
    parse_adapter,
    parse_engine_args,
)
from serving.modelserver.base.assignment import DEFAULT_BATCH_LATENCY, Assignment, BatchBounds, ModelBounds, is_name
from serving.modelserver.base.errors import BadOptions
from serving.modelserver.base.first_digest import RECORD_VARIABLE, first_digest
from serving.modelserver.base.llm import NO_LLM, AdapterSource, LlmParameters
from serving.modelserver.base.observability_options import ObservabilityOptions, add_arguments, observability_of
from serving.modelserver.base.ray import NO_RAY, BadRayOptions, RayParameters

DEFAULT_SLOTS: Final = 4  # concurrent requests in the model; scaleTarget's default
DEFAULT_QUEUE: Final = 1000  # as holdQueue, so that the first replica accepts all requests held at zero
DEFAULT_TIMEOUT: Final = 300.0  # s; as Model.spec.timeout
DEFAULT_LOAD_TIMEOUT: Final = 600.0  # s; Knative's progress-deadline of a revision
DEFAULT_PORT: Final = 8080  # Knative's container contract
DEFAULT_MANAGEMENT_PORT: Final = 9095
DEFAULT_HOST: Final = "127.0.0.1"  # loopback only; container images set HOST
DEFAULT_POOL_FORMAT: Final = "onnx"
NO_SCRATCH: Final = "/tmp"  # noqa: S108 - named in messages: set TMPDIR, or mount a volume there
KUBERNETES_TERMINATION_LOG: Final = Path("/dev/termination-log")  # terminationMessagePath's default
LOAD_TOKEN: Final = "KNODEL_LOAD_TOKEN_SHA256"  # noqa: S105 - a variable's name
"""Variable with the SHA-256 (hex) of the token for load and unload calls; without it all are refused."""

ALLOWED_HOSTS: Final = "KNODEL_ALLOWED_HOSTS"
"""Variable with the names of `--allowed-host`, separated by commas."""
ALLOW_BY_VARIABLE: Final = f"add {{}} to its variable {ALLOWED_HOSTS} to allow it; on a platform, call the gateway"

_MAX_PORT: Final = 65535


class Pool(msgspec.Struct, frozen=True):
    """Options of a member of a warm pool, which imports the engines of `format`."""

    format: str


class ServerOptions(msgspec.Struct, frozen=True):
    """Checked options of a server.

    Attributes that are not obvious:

    - `assignment`: the model to serve; None for a pool member or a server of many models
    - `pool`: None for a server that only serves the model of its command line
    - `bounds`: default limits of models
    - `scratch`: a folder of the container that survives its restart
    - `grpc_port`: None for a server without gRPC
    - `allow_code`: whether code in model files may run
    - `signature`: the signature of a SavedModel to serve, "" for the default
    - `models`: the folder of a server of many models, None for a server of one
    - `format`: the format of the models, "" to detect it
    - `memory_limit`: the memory in bytes of all models together, None for no limit
    - `load_timeout`: seconds that loading one of many models may take
    - `token_sha256`: SHA-256 (hex) of the token for load calls, "" to refuse them
    - `hosts`: names that Host and Origin of a request may have, None for any
    - `remembers`: whether to store the digest of the loaded files (`first_digest`)
    - `group`: the Pods of this replica, if it has several
    - `gateway_token`: token of requests from the gateway (`clusters.gateway.token`), b"" without a gateway
    - `adapters`: folder with the platform's list of adapters (`adapter_list`); None if the adapters do not change
    """

    assignment: Assignment | None
    pool: Pool | None
    bounds: ModelBounds
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
    adapters: Path | None = None
    group: GroupOptions = NO_GROUP


def parse_options(argv: Sequence[str], environ: Mapping[str, str]) -> ServerOptions:
    """Return the checked options. Raises BadOptions; `--help` prints the help and raises SystemExit."""
    given = _parser().parse_args(argv)
    _check_alternatives(given)
    latency = DEFAULT_BATCH_LATENCY if given.max_batch_latency is None else given.max_batch_latency
    batching = BatchBounds(given.max_batch_size, latency) if given.max_batch_size > 1 else None
    bounds = ModelBounds(
        given.slots or DEFAULT_SLOTS, given.timeout, given.cpu, batching, default_slots=given.slots is None
    )
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
        remembers=bool(environ.get(RECORD_VARIABLE)),
        gateway_token=environ.get(VARIABLE, "").encode(),
        adapters=Path(environ[ADAPTERS_VARIABLE]) if environ.get(ADAPTERS_VARIABLE) else None,
        group=_group(given, environ),
    )


def termination_log(environ: Mapping[str, str]) -> Path | None:
    """Return the file for the reason of a failed start; None outside of a cluster."""
    named = environ.get("KNODEL_TERMINATION_LOG")
    if named:
        return Path(named)
    return KUBERNETES_TERMINATION_LOG if KUBERNETES_TERMINATION_LOG.exists() else None


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """Raise BadOptions, so that errors of arguments are reported like all others."""
        raise BadOptions(f"{message}; see --help")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="serving.modelserver", description="Serve models over the Open Inference Protocol v2.",
                     allow_abbrev=False)  # fmt: skip
    add = parser.add_argument
    add("--name", default="", help="name of the model")
    add("--storage-uri", default="", help="URI of the model: file:///PATH, https://…, …")
    add("--digest", default="", help="digest (sha256:…) that the files must have")
    add("--pool", action="store_true", help="import the engines, then wait for a load call that names the model")
    add(
        "--models",
        type=Path,
        metavar="DIR",
        help="serve many models: each folder and model file in DIR, under its name",
    )
    add(
        "--memory-limit",
        type=_bytes,
        metavar="QUANTITY",
        help="memory limit of all --models together, for example 4Gi [none]",
    )
    add("--load-timeout", type=_seconds, metavar="SECONDS",
        help=f"maximum time to fetch and load one of --models [{DEFAULT_LOAD_TIMEOUT:g}]")  # fmt: skip
    add(
        "--format", default="", help=f"format of the model [detected from its files; {DEFAULT_POOL_FORMAT} with --pool]"
    )
    add(
        "--slots",
        type=_count,
        help=f"maximum number of concurrent requests in the model [{DEFAULT_SLOTS}, or as its engine chooses]",
    )
    add(
        "--queue",
        type=_count_or_zero,
        default=DEFAULT_QUEUE,
        help="maximum number of requests that wait for a slot [%(default)s]",
    )
    add(
        "--timeout",
        type=_seconds,
        default=DEFAULT_TIMEOUT,
        help="maximum duration of a request in seconds [%(default)s]",
    )
    add(
        "--max-batch-size",
        type=_count,
        default=1,
        metavar="ROWS",
        help="maximum number of rows in a batch [%(default)s]",
    )
    add("--max-batch-latency", type=_seconds_or_zero, metavar="SECONDS",
        help=f"maximum time to wait for a batch to fill [{DEFAULT_BATCH_LATENCY:g}]")  # fmt: skip
    add("--cpu", type=_seconds, default=1.0, help="CPU limit of the container in cores [%(default)s]")
    _add_group(add)
    _add_llm(add)
    add("--ray-application", default="", metavar="MODULE:NAME",
        help="import path of a Ray Serve application, for a folder without serve.yaml [app:app]")  # fmt: skip
    add("--signature", default="", help="signature of a SavedModel with several [serving_default]")
    add(
        "--allow-code",
        action="store_true",
        help="serve formats that run code from the model files: python, pickle, joblib, pyfunc, ray",
    )
    add("--allowed-host", action="append", default=[], metavar="NAME",
        help="host name to accept in requests and from web pages, `*.DOMAIN`, or `*` for any; repeatable "
        "[on loopback 127.0.0.1, [::1], localhost, *.localhost, else any]")  # fmt: skip
    add_arguments(parser)
    return parser


def _add_group(add: Callable[..., object]) -> None:
    """Add the options of a replica of several Pods, which a platform sets."""
    add("--workers", type=_count_or_zero, default=0, metavar="COUNT",
        help="number of worker Pods of this replica, on a platform [none]")  # fmt: skip
    add("--worker-cpu", type=_seconds, default=1.0, metavar="CPU", help="cores of each worker [%(default)s]")
    add("--on-loss", choices=("restart", "tolerate"), default="restart",
        help="tolerate: stay ready while a worker is lost, if the engine can [%(default)s]")  # fmt: skip


def _add_llm(add: Callable[..., object]) -> None:
    """Add the options of a language model; those of a pool member come with its load call."""
    add("--context-length", type=_count_or_zero, default=0, metavar="TOKENS",
        help="maximum number of tokens of a request, prompt and answer [that of the model]")  # fmt: skip
    add("--embeddings", action="store_true", help="compute embeddings")
    add("--adapter", action="append", default=[], metavar="NAME=URI",
        help=f"LoRA adapter, written {ADAPTER_FORM}; repeatable")  # fmt: skip
    add("--tool-parser", default="", metavar="NAME", help="the engine's parser of tool calls [none]")
    add("--engine-arg", action="append", default=[], metavar="NAME=VALUE",
        help="further option of the engine; repeatable")  # fmt: skip


def _check_alternatives(given: argparse.Namespace) -> None:
    """Check that the options describe one model, many models, or a pool member. Raises BadOptions."""
    named = [option for option, value in (*_model_options(given), *_engine_options(given)) if value]
    for option, value, source in (("--pool", given.pool, "a load call"), ("--models", given.models, "DIR")):
        if value and named:
            raise BadOptions(f"{', '.join(named)} cannot be used with {option}, where {source} names the model")
    if given.pool and given.models:
        raise BadOptions("--models cannot be used with --pool, where a load call names the model")
    if given.memory_limit is not None and not given.models:
        raise BadOptions("--memory-limit needs --models")
    if given.load_timeout is not None and not given.models:
        raise BadOptions("--load-timeout needs --models")
    if given.max_batch_latency is not None and given.max_batch_size == 1:
        raise BadOptions("--max-batch-latency needs --max-batch-size of 2 or more")


def _assignment(given: argparse.Namespace, bounds: ModelBounds, environ: Mapping[str, str]) -> Assignment:
    missing = [option for option, value in _model_options(given) if not value and option != "--digest"]
    if missing:
        raise BadOptions(f"{', '.join(missing)} must be set, unless --pool or --models is used; see --help")
    if not is_name(given.name):
        raise BadOptions(
            f"--name {given.name[:80]!r} is not a name: use at most 63 of a-z, 0-9 and '-', no '-' at the ends"
        )
    revision = environ.get("K_REVISION") or f"{given.name}-00001"  # without a platform, there is only one revision
    if not is_name(revision):
        raise BadOptions(
            f"K_REVISION={revision[:80]!r} is not a name: use at most 63 of a-z, 0-9 and '-', no '-' at the ends"
        )
    digest = given.digest or first_digest(environ, revision, _scratch(environ))
    return Assignment(given.name, revision, given.storage_uri, digest, given.format, bounds, _llm(given), _ray(given))


def _group(given: argparse.Namespace, environ: Mapping[str, str]) -> GroupOptions:
    """Return the group of this replica. Raises BadOptions."""
    try:
        return read_group(given.workers, given.worker_cpu, given.on_loss == "tolerate", environ)
    except LoadFailed as error:
        raise BadOptions(str(error)) from error


def _llm(given: argparse.Namespace) -> LlmParameters:
    """Return the options of a language model. Raises BadOptions."""
    try:
        adapters = tuple(AdapterSource(*parse_adapter(text)) for text in given.adapter)
        found = LlmParameters(
            given.context_length, given.embeddings, adapters, given.tool_parser, parse_engine_args(given.engine_arg)
        )
        found.check()
    except BadLlmOptions as error:
        raise BadOptions(f"{error}; see --help") from error
    return NO_LLM if found == NO_LLM else found


def _ray(given: argparse.Namespace) -> RayParameters:
    """Return the options of a Ray Serve application. Raises BadOptions."""
    found = RayParameters(given.ray_application)
    try:
        found.check()
    except BadRayOptions as error:
        raise BadOptions(f"{error}; see --help") from error
    return NO_RAY if found == NO_RAY else found


def _engine_options(given: argparse.Namespace) -> tuple[tuple[str, object], ...]:
    return (
        ("--context-length", given.context_length), ("--embeddings", given.embeddings), ("--adapter", given.adapter),
        ("--tool-parser", given.tool_parser), ("--engine-arg", given.engine_arg),
        ("--ray-application", given.ray_application),
    )  # fmt: skip


def _model_options(given: argparse.Namespace) -> tuple[tuple[str, str], ...]:
    return ("--name", given.name), ("--storage-uri", given.storage_uri), ("--digest", given.digest)


def _known_hosts(named: Sequence[str], environ: Mapping[str, str]) -> KnownHosts | None:
    """Return the accepted host names: None (any) off loopback, unless some are configured. Raises BadOptions."""
    address = environ.get("HOST") or DEFAULT_HOST
    setting, allowed = ("--allowed-host", named) if named else (ALLOWED_HOSTS, _list(environ, ALLOWED_HOSTS))
    for name in allowed:
        if not is_host_pattern(name):
            raise BadOptions(f"{setting} {name[:80]!r} is not a host name: {PATTERN_FORM}")
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
        raise argparse.ArgumentTypeError(f"{text} is not a positive number")
    return value


def _scratch(environ: Mapping[str, str]) -> Path:
    """Return the folder for temporary files. If there is none, a later write to it reports the error."""
    try:
        return Path(environ.get("TMPDIR") or tempfile.gettempdir())
    except FileNotFoundError:
        return Path(NO_SCRATCH)


def _seconds_or_zero(text: str) -> float:
    return 0.0 if float(text) == 0 else _seconds(text)


def _bytes(text: str) -> int:
    from clusters.base.quantities import parse_quantity  # imported here because few servers have a limit

    try:
        value = int(parse_quantity(text))
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text} {error}") from error
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} is less than 1")
    return value


def _port(environ: Mapping[str, str], name: str, default: int) -> int:
    text = environ.get(name) or str(default)
    if not (text.isascii() and text.isdigit() and int(text) <= _MAX_PORT):
        raise BadOptions(f"{name}={text[:80]!r} is not a port: use a number from 0 (any free port) to {_MAX_PORT}")
    return int(text)
