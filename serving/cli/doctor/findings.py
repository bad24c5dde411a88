"""Turn the facts that `examine` collects on a machine into findings of `knodel doctor`. Pure.

A finding has the name of the check, its result, a message, and a remedy for a problem.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from clusters.base.sizes import human_bytes
from serving.cli.doctor.ports import Listener
from serving.client.state import port_flags
from serving.types.settings.state import Facts

OTHERS = 0o077  # permission bits of group and world
MIN_SOFT_LIMIT = 1024  # open files of the control plane: the usual soft limit, enough for some hundred watches and Pods
MIN_HARD_LIMIT = 4096  # open files of gateway and replicas, which raise their soft limit to it: one per connection
INFINITY = -1  # resource.RLIM_INFINITY
FULL_SHARE = 0.95  # of the limit for stored copies; above it, the next model may not fit
PORTS = ("gateway", "events and probes", "control API")
"""The purposes of a platform's ports, in the order of `listen_addresses`."""
HTTP_OK, HTTP_UNAUTHORIZED, HTTP_UNAVAILABLE = 200, 401, 503


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check, with the remedy if it is not `ok`.

    A check that the caller may not run is skipped: `seen` is False and `ok` is True.
    """

    check: str
    ok: bool
    message: str
    remedy: str = ""
    seen: bool = True

    @property
    def state(self) -> str:
        """The result as shown in the table."""
        return ("ok" if self.seen else "skipped") if self.ok else "PROBLEM"


@dataclass(frozen=True, slots=True)
class ProbeResponse:
    """The response of an address: its HTTP status, or 0 with the `error` if there was none."""

    status: int
    error: str = ""


def check_system(platform: str, has_proc: bool) -> Finding:
    """Check for Linux: the embedded cluster needs `/proc` and pidfds."""
    if platform != "linux":
        return Finding("system", False, f"the operating system is {platform}", "use a machine with Linux")
    if not has_proc:
        return Finding("system", False, "/proc is not mounted", "`mount -t proc proc /proc` mounts it")
    return Finding("system", True, "Linux with /proc")


def check_open_files(soft: int, hard: int) -> Finding:
    """Check the limits of `ulimit -n`; each connection, log and watch is an open file."""
    shown = f"soft {_limit(soft)}, hard {_limit(hard)}"
    if INFINITY != soft < MIN_SOFT_LIMIT:
        return Finding("open files", False, shown, f"run `ulimit -n {MIN_SOFT_LIMIT}` or more before `knodel up`")
    if INFINITY != hard < MIN_HARD_LIMIT:
        return Finding(
            "open files", False, shown, f"raise the hard limit to {MIN_HARD_LIMIT} in /etc/security/limits.conf"
        )
    return Finding("open files", True, shown)


def check_packages(missing: Mapping[str, str], engines: Mapping[str, bool], install: str = "") -> Finding:
    """Check the installed packages.

    `missing`: required package → how to install it. `engines`: format → whether its engine is installed. `install` is
    the command that installs the absent engines.
    """
    if missing:
        return Finding("packages", False, f"not installed: {', '.join(missing)}", "; ".join(missing.values()))
    here = ", ".join(name for name, installed in engines.items() if installed) or "none"
    absent = ", ".join(name for name, installed in engines.items() if not installed)
    others = f"; not installed: {absent}: `{install}`" if absent else ""
    return Finding("packages", True, f"gateway; engines of {here}{others}")


def check_folder(state: Path, exists: bool, mode: int, writable: bool, full: bool = False) -> Finding:
    """Check the state folder: only its owner may access it, as it has the token, keys and all objects."""
    if not writable:
        what = f"{state} is not writable" if exists else f"{state} cannot be created"
        return Finding("state folder", False, what, "choose another one with --state or KNODEL_STATE, or use its owner")
    if full:
        what = f"the disk of {state} is full, so no object can be changed"
        return Finding("state folder", False, what, "free some space on it; models continue to serve meanwhile")
    if not exists:
        return Finding("state folder", True, f"{state} does not exist yet: `knodel up` creates it")
    if mode & OTHERS:
        return Finding("state folder", False, f"{state} is accessible to others ({mode:04o})", f"`chmod 700 {state}`")
    return Finding("state folder", True, str(state))


def check_secrets(modes: Mapping[Path, int]) -> Finding:
    """Check the permissions of secret files. `modes`: path → permission bits."""
    bad = [path for path, mode in modes.items() if mode & OTHERS]
    if bad:
        names = " ".join(map(str, bad))
        return Finding("secrets", False, f"accessible to others: {names}", f"`chmod 600 {names}`")
    return Finding("secrets", True, f"{len(modes)} files, accessible only to their owner")


def check_store(store: Path, fault: str, objects: int, in_use: bool) -> Finding:
    """Check that the store can be read. `fault`: why it cannot, empty if it can."""
    if in_use:
        return Finding("store", True, f"{store} was checked when the platform started")
    if fault:
        return Finding("store", False, fault, "follow the message; nothing was changed")
    return Finding("store", True, f"{store}: {objects} objects" if objects else f"{store}: no objects yet")


def check_platform(state: Path, holder: int | None, facts: Facts | None, fault: str) -> Finding:
    """Check whether a platform runs on the folder.

    `holder`: pid that holds the lock of the folder, None for none, 0 if unknown. `facts`: content of `platform.json`,
    `fault`: why it cannot be read.
    """
    if fault:
        return Finding("platform", False, fault, "`knodel down`, then `knodel up --detach`")
    if holder is None and facts is not None:
        message = f"process {facts.pid} in platform.json has ended"
        again = f"`knodel up --detach{port_flags(facts)}` starts it again, `knodel down` cleans up"
        return Finding("platform", False, message, again)
    if holder is None:
        return Finding("platform", True, f"none runs on {state}")
    if facts is None:
        remedy = (
            f"run this again in a moment; if it remains, see {state / 'platform.log'} and run `knodel down --force`"
        )
        return Finding("platform", False, f"process {holder} is not ready: it is starting or stopping", remedy)
    if holder not in (0, facts.pid):
        message = f"process {holder} runs, but platform.json has process {facts.pid}"
        return Finding("platform", False, message, f"`knodel down`, then `knodel up --detach{port_flags(facts)}`")
    return Finding("platform", True, f"process {facts.pid}, version {facts.version}")


def check_responses(
    facts: Facts, control: ProbeResponse, gateway: ProbeResponse, token: ProbeResponse
) -> list[Finding]:
    """Check the responses of a running platform: /readyz, the gateway, and the control API with the token."""
    log = f"see {facts.state}/platform.log"
    unable = f"{log}: it is starting or stopping, or its disk is not writable"
    again = f"`knodel up --detach{port_flags(facts)}`"
    log += f"; `knodel down --force`, then {again}"
    lame = control.status == HTTP_UNAVAILABLE
    changed = f"the token file was changed: `knodel down`, then {again}"
    checks = (
        ("events and probes", control.status == HTTP_OK, f"{facts.control} {_text(control)}", unable if lame else log),
        ("gateway", gateway.status > 0, f"{facts.gateway} {_text(gateway, shown=False)}", log),
        ("token", token.status == HTTP_OK, _text(token), changed if token.status == HTTP_UNAUTHORIZED else log),
    )
    return [Finding(check, ok, message, "" if ok else remedy) for check, ok, message, remedy in checks]


def check_leftovers(running: bool, summary: str, ports: str = "") -> Finding:
    """Check for processes that run without a platform. `summary`: the processes of the folder.

    `ports`: options of `knodel up` for the ports of the previous platform.
    """
    if running:
        return Finding("processes", True, summary or "only the platform")
    if summary:
        remedy = f"`knodel up --detach{ports}` adopts them, `knodel down` stops them"
        return Finding("processes", False, f"running without a platform: {summary}", remedy)
    return Finding("processes", True, "no orphaned processes")


def check_kept(used: int, limit: int) -> Finding:
    """Check the size of the stored copies of local model files against its limit, both in bytes."""
    shown = f"stored copies use {human_bytes(used)} of {human_bytes(limit)}"
    if used >= FULL_SHARE * limit:
        remedy = (
            "delete models that you do not need (their copies are deleted about 10 minutes later), "
            "or start the platform with a higher KNODEL_KEPT_LIMIT"
        )
        return Finding("model files", False, shown, remedy)
    return Finding("model files", True, shown)


def check_copies(copies: int, read: int, read_bytes: int, damaged: Sequence[Path]) -> Finding:
    """Check the stored copies of model files: their number, how many were read, and which are damaged."""
    shown = f"read {read} of {copies} copies ({human_bytes(read_bytes)})"
    if damaged:
        paths = [shlex.quote(str(path)) for path in damaged]
        remedy = (
            f"`rm -r {' '.join(paths)}` deletes them. The next replica, or a deploy of the same files, copies "
            "the source again. If the source no longer exists, deploy other files"
        )
        return Finding("kept copies", False, f"{shown}, {len(damaged)} damaged: {', '.join(paths)}", remedy)
    rest = "" if read == copies else "; `knodel doctor --full` reads all"
    return Finding("kept copies", True, f"{shown}, none damaged{rest}")


def check_port(
    what: str, address: str, remedy: str, taken_by: Sequence[Listener] | None, ours: frozenset[int]
) -> Finding:
    """Check a port. `taken_by`: its listeners, None if it is free. `ours`: pids that the next `knodel up` adopts."""
    if taken_by is None:
        return Finding(f"{what} port", True, f"{address} is free")
    if taken_by and all(listener.pid in ours for listener in taken_by):
        return Finding(f"{what} port", True, f"{address} is used by an orphaned process, which `knodel up` adopts")
    who = ", ".join(map(str, taken_by)) or "a process of another user"
    return Finding(f"{what} port", False, f"{address} is used by {who}", remedy)


def check_settings(fault: str) -> Finding:
    """Check the settings. `fault`: why they are invalid, empty if they are valid."""
    if fault:
        return Finding("settings", False, fault, "correct the file or the variable")
    return Finding("settings", True, "file and variables are valid")


def _limit(value: int) -> str:
    return "unlimited" if value == INFINITY else str(value)


def _text(result: ProbeResponse, *, shown: bool = True) -> str:
    """Describe a result. Without `shown`, omit the status, which is arbitrary for `/` of the gateway."""
    if not result.status:
        return f"does not respond ({result.error})"
    return f"responds with {result.status}" if shown else "responds"
