"""Options of a control-plane process: arguments of the container, and variables of the downward API."""

from __future__ import annotations

import argparse
import os
import secrets
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import NoReturn

from clusters.base.errors import KnodelError
from clusters.runtime.manager.logs import LogFormat

NO_FILES: Mapping[str, str] = MappingProxyType({})

SYSTEM_NAMESPACE = "knodel-system"
"""The namespace of the installation and of its Leases."""
PROBE_PORT = 8081
METRICS_PORT = 9090
LARGEST_PORT = 65_535
LEVELS = ("debug", "info", "warning", "error")


class InvalidOptions(KnodelError):
    """A command-line argument is invalid."""


@dataclass(frozen=True, slots=True)
class Options:
    """Checked options.

    `identity` is unique to this process. `namespace` None means all namespaces. `host` is the address of probes and
    metrics; port 0 means any free port. `files` holds the given file options of this `program` by name.
    """

    config: Path | None
    kubeconfig: Path | None
    kube_context: str
    namespace: str | None
    system_namespace: str
    identity: str
    host: str
    probe_port: int
    metrics_port: int
    log_format: LogFormat
    log_level: str
    files: Mapping[str, Path] = field(default_factory=dict)
    program: str = "knodel"


def parse_options(
    program: str, about: str, argv: Sequence[str], environ: Mapping[str, str], files: Mapping[str, str] = NO_FILES
) -> Options:
    """Parse arguments and environment. Raises InvalidOptions; `--help` prints the help and raises SystemExit.

    `files` maps the names of the program's own file options, without dashes, to their help. The environment variables
    are HOST, and POD_NAME, POD_UID and POD_NAMESPACE of the downward API.
    """
    given = _parser(program, about, files).parse_args(argv)
    if environ.get("POD_NAME") and environ.get("POD_UID"):  # the same candidate after a restart of its container
        identity = f"{environ['POD_NAME']}_{environ['POD_UID']}"
    else:
        identity = f"{socket.gethostname()}_{os.getpid()}_{secrets.token_hex(4)}"
    named = {name: getattr(given, name.replace("-", "_")) for name in files}
    return Options(
        config=given.config,
        kubeconfig=given.kubeconfig,
        kube_context=given.kube_context,
        namespace=given.namespace or None,
        system_namespace=environ.get("POD_NAMESPACE") or SYSTEM_NAMESPACE,
        identity=identity,
        host=environ.get("HOST") or "127.0.0.1",
        probe_port=given.probe_port,
        metrics_port=given.metrics_port,
        log_format=given.log_format,
        log_level=given.log_level,
        files={name: path for name, path in named.items() if path is not None},
        program=program,
    )


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """Raise InvalidOptions instead of exiting."""
        raise InvalidOptions(f"{self.prog}: {message}; see --help")


def _parser(program: str, about: str, files: Mapping[str, str]) -> argparse.ArgumentParser:
    parser = _Parser(prog=program, description=about, allow_abbrev=False)
    add = parser.add_argument
    add("--config", type=Path, help="settings file; changes are applied without a restart")
    add("--kubeconfig", type=Path, help="kubeconfig for development [in a Pod: the service account]")
    add("--kube-context", default="", help="context of the kubeconfig [the current context]")
    add("--namespace", default="", help="restrict to one namespace [all]")
    add("--probe-port", type=_port, default=PROBE_PORT, help="port of /healthz and /readyz [%(default)s]")
    add("--metrics-port", type=_port, default=METRICS_PORT, help="port of /metrics [%(default)s]")
    add("--log-format", choices=["json", "text"], default="json", help="format of log records [%(default)s]")
    add("--log-level", choices=LEVELS, default="info", help="minimum level of log records [%(default)s]")
    for name, what in files.items():
        add(f"--{name}", type=Path, help=what)
    return parser


def _port(text: str) -> int:
    value = int(text)
    if not 0 <= value <= LARGEST_PORT:
        raise argparse.ArgumentTypeError(f"{text} is not a port: use 0 (any free port) to {LARGEST_PORT}")
    return value
