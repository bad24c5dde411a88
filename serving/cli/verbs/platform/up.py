"""`knodel up`."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import BinaryIO, NamedTuple

import click

from clusters.base.errors import AddressInUse
from clusters.embedded.store.lock import holder, prepare_folder
from serving.cli.base.output import ProgressLine
from serving.cli.context import Session, verb
from serving.cli.doctor.ports import suggest_ports
from serving.client.errors import ClientError, TimedOut, UsageError
from serving.client.state import running_platform
from serving.types.settings.state import LOG_FILE, Facts, StateError, full_disk_message, split_address

READY_TIMEOUT = 60.0  # s for a detached platform to become ready; it takes about one
PRIVATE = 0o600  # the log has names of models and clients
POLL = 0.02  # s between two reads of the state


class _Ports(NamedTuple):
    """The ports given on the command line; None for the others."""

    gateway: int | None
    control: int | None
    control_tls: int | None

    def options(self) -> dict[str, int | None]:
        """Return option → port, in the order of `Facts`."""
        return {"--port": self.gateway, "--control-port": self.control, "--control-tls-port": self.control_tls}


@verb(
    "up", place="machine", namespaced=False,
    examples=[
        ("Start the platform in the background", "knodel up --detach"),
        ("Start a second one, on other ports", "knodel up --detach --state ~/second --port 8180"),
    ],
)  # fmt: skip
@click.option(
    "--port", type=click.IntRange(1, 65535),
    help="Port N of the gateway [8080]; events and probes get N+1 [8081], the control API for kubectl N+2 [8443].",
)  # fmt: skip
@click.option("--control-port", type=click.IntRange(1, 65535), help="Port of events and probes [N+1].")
@click.option("--control-tls-port", type=click.IntRange(1, 65535), help="Port of the control API for kubectl [N+2].")
@click.option("--config", "config", type=click.Path(dir_okay=False), help="Settings file (YAML).")
@click.option("--detach", is_flag=True, help="Run in the background; return when it is ready.")
def command(
    session: Session, port: int | None, control_port: int | None, control_tls_port: int | None, config: str | None,
    detach: bool,
) -> int:  # fmt: skip
    """Start the platform on this machine; Ctrl-C stops it. A running platform is not changed."""
    ports = _Ports(port, control_port, control_tls_port)
    facts = _find_running(session)
    if facts is not None:
        return _show_running(session, facts, ports, config)
    from serving.cli.files import settings_of
    from serving.cli.verbs.platform.preflight import check_start

    settings = settings_of(config, gateway_port=port, control_port=control_port, control_tls_port=control_tls_port)
    try:
        check_start(session.state, settings)
    except AddressInUse as error:
        if (facts := _find_running(session)) is not None:  # another command started one at the same time
            return _show_running(session, facts, ports, config)
        raise _with_free_ports(session, config, error) from error
    if detach:
        return _start_detached(session, ports, config)
    from serving.platform.platform import run_platform  # heavy: imports all parts of the platform

    try:
        return run_platform(session.state, settings)
    except AddressInUse as error:
        raise _with_free_ports(session, config, error) from error


def _with_free_ports(session: Session, config: str | None, error: AddressInUse) -> ClientError:
    """Return the error with another remedy: a command that starts the platform on free ports."""
    return ClientError(f"{error.problem}: {suggest_ports(session.state, config)}")


def _show_running(session: Session, facts: Facts, ports: _Ports, config: str | None) -> int:
    """Print the addresses of the running platform. Raises UsageError for a given port that it does not have."""
    _check_ports(session, facts, ports)
    _show(session, facts)
    note = "; --config has no effect before `knodel down`" if config else ""
    click.echo(f"the platform on {session.state} is already running (process {facts.pid}){note}", err=True)
    return 0


def _find_running(session: Session) -> Facts | None:
    """Return the facts of the platform on the folder when it is ready; None if none runs.

    Raises TimedOut if a process holds the folder and does not become ready, ClientError if platform.json is
    invalid.
    """
    deadline, progress = time.monotonic() + READY_TIMEOUT, ProgressLine()
    try:
        while (pid := holder(session.state)) is not None:
            if (facts := running_platform(session.state)) is not None:
                return facts
            if time.monotonic() > deadline:
                log = session.state / LOG_FILE
                raise TimedOut(f"process {pid} holds {session.state} but is not ready: see {log}")
            progress.show(f"another process ({pid}) is starting or stopping the platform")
            time.sleep(POLL)
    finally:
        progress.clear()
    return None


def _check_ports(session: Session, facts: Facts, ports: _Ports) -> None:
    """Raise UsageError for a given port that differs from that of the running platform."""
    addresses = (facts.gateway, facts.control, facts.control_tls)
    for (option, wanted), address in zip(ports.options().items(), addresses, strict=True):
        if wanted is not None and wanted != split_address(address)[1]:
            raise UsageError(
                f"{option} {wanted}: the platform on {session.state} runs already, at {address}: "
                f"`knodel down` stops it, then `knodel up` can use {option}"
            )


def _start_detached(session: Session, ports: _Ports, config: str | None) -> int:
    arguments = ["up", "--state", str(session.state)]
    for option, value in {**ports.options(), "--config": config}.items():
        arguments += [option, str(value)] if value is not None else []
    log = session.state / LOG_FILE
    with _open_log(log) as sink:
        began = sink.tell()
        child = subprocess.Popen(
            [sys.executable, "-m", "serving.cli.main", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=sink,
            start_new_session=True,
        )
    try:
        _wait_until_ready(session, child, log, began)
    except ClientError:
        if child.poll() is None or (other := _find_running(session)) is None:
            raise
        return _show_running(session, other, ports, config)  # another command started one at the same time
    facts = Facts.read(session.state)
    if facts is None:
        raise ClientError(f"the platform has ended again: see {log}")
    _show(session, facts)
    return 0


def _show(session: Session, facts: Facts) -> None:
    if session.output.structured:
        session.output.value(asdict(facts))
    else:
        session.output.text(
            f"gateway http://{facts.gateway}, control https://{facts.control_tls}, events http://{facts.control}/events"
        )


def _open_log(log: Path) -> BinaryIO:
    prepare_folder(log.parent)
    try:
        return os.fdopen(os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, PRIVATE), "ab")
    except OSError as error:
        raise ClientError(f"cannot use the state folder {log.parent}: {error.strerror}") from error


def _wait_until_ready(session: Session, child: subprocess.Popen[bytes], log: Path, began: int) -> None:
    progress, deadline = ProgressLine(), time.monotonic() + READY_TIMEOUT
    while True:
        code = child.poll()
        if code is not None:
            progress.clear()
            message = _last_line(log, began) or full_disk_message(session.state)
            raise ClientError(message or f"the platform ended at once with exit code {code}: see {log}")
        if _is_ready(session, child.pid):
            progress.clear()
            return
        if time.monotonic() > deadline:
            progress.clear()
            raise TimedOut(f"the platform was not ready within {READY_TIMEOUT:g} s: see {log}")
        progress.show("starting the platform")
        time.sleep(POLL)


def _is_ready(session: Session, pid: int) -> bool:
    """Return whether the process has written `platform.json`, which it does when it is ready."""
    try:
        facts = Facts.read(session.state)
    except StateError:
        return False
    return facts is not None and facts.pid == pid


def _last_line(log: Path, began: int) -> str:
    with log.open("rb") as file:
        file.seek(began)
        lines = [line for line in file.read().decode("utf-8", "replace").splitlines() if line.startswith("knodel: ")]
    return lines[-1].removeprefix("knodel: ") if lines else ""
