"""Collect the facts of `knodel doctor` on this machine: files, processes, ports, the store. Read-only."""

from __future__ import annotations

import http.client
import importlib.util
import os
import resource
import shutil
import stat
import sys
import tempfile
from collections.abc import Callable, Collection, Iterator
from contextlib import closing
from pathlib import Path

from clusters.base.distribution import install_command
from clusters.base.errors import KnodelError
from clusters.embedded.store.lock import holder, is_foreign, owner_of
from serving.cli.doctor import findings as doctor
from serving.cli.doctor.examine_models import examine_here
from serving.cli.doctor.findings import Finding, ProbeResponse
from serving.cli.doctor.ports import is_taken, listen_addresses, listeners, suggest_ports
from serving.client.client import Client
from serving.client.errors import ClientError
from serving.client.http import exchange
from serving.client.models.local_files import kept_limit
from serving.client.state import LocalPlatform, port_flags
from serving.engines.base.registry import FORMATS, is_installed
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

PROBE_TIMEOUT = 3.0  # s for one response of a platform on this machine; it takes milliseconds
READ_BYTES = 1 << 30  # of stored copies; reading takes some seconds
GATEWAY = "envoy"
PACKAGES = {GATEWAY: ("platform", "the gateway"), "onnxruntime": ("onnx", "the engine for ONNX models")}
"""Modules whose absence otherwise shows only with the first model, with the extra that has them and their purpose."""
OF_EVERY_PLATFORM = frozenset({"numpy", "yaml"})
"""Modules of formats that need no further package."""


def needed_packages(engines: Collection[str]) -> dict[str, tuple[str, str]]:
    """Return those of `PACKAGES` that are needed: not ONNX Runtime beside the engine of another format. Pure.

    `engines` are the installed modules of formats.
    """
    has_another = not OF_EVERY_PLATFORM.issuperset(engines)
    return {name: why for name, why in PACKAGES.items() if name == GATEWAY or not has_another}


def examine(
    state: Path, config: Path | None, client: Callable[[float], Client], *, full: bool = False
) -> Iterator[Finding]:
    """Run all checks, in the order of their dependencies.

    `client` takes a timeout in seconds. With `full`, all stored copies of model files are read, of any size.
    """
    has_proc = Path("/proc/self/stat").exists()
    yield doctor.check_system(sys.platform, has_proc)
    yield doctor.check_open_files(*resource.getrlimit(resource.RLIMIT_NOFILE))
    installed = {made.package for made in FORMATS.values() if importlib.util.find_spec(made.package)}
    missing = {
        name: f"`{install_command(f'knodel[{extra}]')}` installs {purpose}"
        for name, (extra, purpose) in needed_packages(installed).items()
        if not importlib.util.find_spec(name)
    }
    engines = {made.name: is_installed(made) for made in FORMATS.values()}
    extras = {made.extra for made in FORMATS.values() if made.extra and not engines[made.name]}
    yield doctor.check_packages(missing, engines, install_command(f"knodel[{','.join(sorted(extras))}]"))
    settings, fault = _settings(config)
    yield doctor.check_settings(fault)
    yield _folder(state)
    if state.is_dir() and (is_foreign(owner_of(state)) or not os.access(state, os.R_OK | os.X_OK)):
        return
    secrets = [state / TOKEN_FILE, state / KUBECONFIG_FILE, state / STORE_FILE, *(state / TLS_FOLDER).glob("*.key")]
    yield doctor.check_secrets({path: _mode(path) for path in secrets if path.exists()})
    yield _kept(state)
    yield doctor.check_copies(*kept.verify_copies(state / KEPT_FOLDER, sys.maxsize if full else READ_BYTES))
    pid = holder(state)
    yield _store(state / STORE_FILE, in_use=pid is not None)
    facts, fault = _facts(state)
    yield doctor.check_platform(state, pid, facts, fault)
    if pid is not None and facts is not None:
        results = _get(facts.control, "/readyz"), _get(facts.gateway, "/"), _version(state)
        answers = doctor.check_responses(facts, *results)
        yield from answers
        if all(answer.ok for answer in answers):
            yield from examine_here(client(PROBE_TIMEOUT))
    if has_proc and GATEWAY not in missing:  # without them no platform runs, and processes cannot be listed
        ports = port_flags(facts) if facts is not None else ""
        yield from _processes_and_ports(state, pid is not None, settings, config, ports)


def _settings(config: Path | None) -> tuple[Settings, str]:
    try:
        return load_settings(config), ""
    except KnodelError as error:
        return Settings(), str(error)


def _folder(state: Path) -> Finding:
    exists = state.is_dir()
    nearest = next(folder for folder in (state, *state.parents) if folder.exists())
    writable = nearest.is_dir() and os.access(nearest, os.W_OK | os.X_OK)
    return doctor.check_folder(state, exists, _mode(state) if exists else 0, writable, is_full(nearest))


def _mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def _store(store: Path, *, in_use: bool) -> Finding:
    """Open a copy of the store as `knodel up` opens the file: SQLite writes files beside it even for reading."""
    if in_use:
        return doctor.check_store(store, "", 0, in_use=True)
    from clusters.embedded.store.database import Database

    with tempfile.TemporaryDirectory(prefix="knodel-doctor-") as folder:
        copy = Path(folder) / store.name
        try:
            if not _copy(store, copy):
                return doctor.check_store(store, "", 0, in_use=False)
            with closing(Database.open(copy)) as database:
                objects = sum(1 for _ in database.load())
        except KnodelError as error:
            return doctor.check_store(store, str(error).replace(str(copy), str(store)), 0, in_use=False)
        except OSError as error:
            return doctor.check_store(store, f"{store} cannot be read ({error.strerror})", 0, in_use=False)
    return doctor.check_store(store, "", objects, in_use=False)


def _copy(store: Path, copy: Path) -> bool:
    """Copy the file and its write-ahead log, if they exist. Return whether one of them does."""
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
    return doctor.check_kept(kept.used_bytes(state / KEPT_FOLDER), limit)


def _version(state: Path) -> ProbeResponse:
    """Request /version of the control API with the token, over the unix socket."""
    try:
        platform = LocalPlatform.find(state)
        headers = platform.credentials()
        with exchange(platform.endpoint, "GET", "/version", headers=headers, timeout=PROBE_TIMEOUT) as response:
            return ProbeResponse(response.status)
    except ClientError as error:
        return ProbeResponse(0, str(error))


def _get(address: str, path: str) -> ProbeResponse:
    connection: http.client.HTTPConnection | None = None
    try:
        host, port = split_address(address)
        connection = http.client.HTTPConnection(host, port, timeout=PROBE_TIMEOUT)
        connection.request("GET", path)
        return ProbeResponse(connection.getresponse().status)
    except (OSError, ValueError, http.client.HTTPException) as error:
        return ProbeResponse(0, str(error) or error.__class__.__name__)
    finally:
        if connection is not None:
            connection.close()


def _processes_and_ports(
    state: Path, running: bool, settings: Settings, config: Path | None, ports: str
) -> Iterator[Finding]:
    from serving.cli.orphans import find_orphans, summary  # heavy; the other checks do not need it

    orphans = find_orphans(state)
    yield doctor.check_leftovers(running, summary(orphans), ports)
    if running:
        return  # the platform itself uses the ports
    taken = {address for address in listen_addresses(settings) if is_taken(*address)}
    remedy = suggest_ports(state, str(config) if config else None) if taken else ""
    ours = frozenset(orphan.identity.pid for orphan in orphans)
    for what, address in zip(doctor.PORTS, listen_addresses(settings), strict=True):
        host, port = address
        taken_by = listeners(port) if address in taken else None
        yield doctor.check_port(what, f"{host}:{port}", remedy, taken_by, ours)
