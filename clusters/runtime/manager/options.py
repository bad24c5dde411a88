"""What a control-plane process is started with: arguments of the container, and what the kubelet says of its Pod."""

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
"""Where Knodel is installed, and where its Leases are."""
PROBE_PORT = 8081
METRICS_PORT = 9090
LARGEST_PORT = 65_535
LEVELS = ("debug", "info", "warning", "error")


class BadOptions(KnodelError):
    """An argument that cannot be followed."""


@dataclass(frozen=True, slots=True)
class Options:
    """Checked options.

    `identity` is unique to this process; `namespace` None is all; `host` is where probes and metrics listen; port 0 is
    any free one; `files` are those that only some programs take, by the option's name, where given.
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


def parse_options(
    program: str, about: str, argv: Sequence[str], environ: Mapping[str, str], files: Mapping[str, str] = NO_FILES
) -> Options:
    """Raises BadOptions; `--help` prints and raises SystemExit.

    `files`: the program's own options, each a file: name without dashes → help. Variables: HOST; POD_NAME, POD_UID and
    POD_NAMESPACE by the downward API.
    """
    given = _parser(program, about, files).parse_args(argv)
    named = {name: getattr(given, name.replace("-", "_")) for name in files}
    return Options(
        config=given.config,
        kubeconfig=given.kubeconfig,
        kube_context=given.kube_context,
        namespace=given.namespace or None,
        system_namespace=environ.get("POD_NAMESPACE") or SYSTEM_NAMESPACE,
        identity=_identity(environ),
        host=environ.get("HOST") or "127.0.0.1",
        probe_port=given.probe_port,
        metrics_port=given.metrics_port,
        log_format=given.log_format,
        log_level=given.log_level,
        files={name: path for name, path in named.items() if path is not None},
    )


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """Errors are reported as all others are."""
        raise BadOptions(f"{self.prog}: {message}; see --help")


def _parser(program: str, about: str, files: Mapping[str, str]) -> argparse.ArgumentParser:
    parser = _Parser(prog=program, description=about, allow_abbrev=False)
    add = parser.add_argument
    add("--config", type=Path, help="file of settings; a change of it is taken over without a restart")
    add("--kubeconfig", type=Path, help="kubeconfig, for development [in a Pod: its service account]")
    add("--kube-context", default="", help="context of the kubeconfig [its current one]")
    add("--namespace", default="", help="look after this namespace only [all]")
    add("--probe-port", type=_port, default=PROBE_PORT, help="/healthz and /readyz [%(default)s]")
    add("--metrics-port", type=_port, default=METRICS_PORT, help="/metrics for Prometheus [%(default)s]")
    add("--log-format", choices=["json", "text"], default="json", help="[%(default)s]")
    add("--log-level", choices=LEVELS, default="info", help="[%(default)s]")
    for name, what in files.items():
        add(f"--{name}", type=Path, help=what)
    return parser


def _port(text: str) -> int:
    value = int(text)
    if not 0 <= value <= LARGEST_PORT:
        raise argparse.ArgumentTypeError(f"{text} is no port: 0 (any free one) to {LARGEST_PORT}")
    return value


def _identity(environ: Mapping[str, str]) -> str:
    """Pod name and uid: a container that is started again in its Pod is the same candidate, its predecessor is dead."""
    if environ.get("POD_NAME") and environ.get("POD_UID"):
        return f"{environ['POD_NAME']}_{environ['POD_UID']}"
    return f"{socket.gethostname()}_{os.getpid()}_{secrets.token_hex(4)}"
