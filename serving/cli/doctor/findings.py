"""What `knodel doctor` judges: from what was seen on the machine to findings. Pure: `examine` looks, this decides.

A finding is a value: what was checked, whether it is well, what was seen, and the remedy when it is not.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from clusters.base.sizes import human_bytes
from serving.cli.client.sockets import Listener
from serving.cli.client.state import ports_again
from serving.types.settings.state import Facts

OTHERS = 0o077  # permission bits of group and world
LEAST_SOFT = 1024  # open files of the control plane: the usual soft limit, enough for some hundred watches and Pods
LEAST_HARD = 4096  # open files of gateway and replicas, which raise theirs to it: every connection is one
INFINITY = -1  # resource.RLIM_INFINITY
FULL_SHARE = 0.95  # of the limit of kept copies: the next model may not fit
PORTS = ("gateway", "events and probes", "control API")
"""What a platform has its ports for, in their order."""
HTTP_OK, HTTP_UNAUTHORIZED, HTTP_UNAVAILABLE = 200, 401, 503


@dataclass(frozen=True, slots=True)
class Finding:
    """One check: `ok`, what was seen, and what to do when it is not ok. What may not be `seen` is no fault."""

    check: str
    ok: bool
    message: str
    remedy: str = ""
    seen: bool = True

    @property
    def state(self) -> str:
        """For people."""
        return ("ok" if self.seen else "not seen") if self.ok else "PROBLEM"


@dataclass(frozen=True, slots=True)
class Reply:
    """What an address answered: the status of HTTP, 0 with the `error` when there was no answer."""

    status: int
    error: str = ""


def judge_system(platform: str, has_proc: bool) -> Finding:
    """The embedded cluster follows processes by `/proc` and pidfd, which only Linux has."""
    if platform != "linux":
        return Finding(
            "system", False, f"this is {platform}", "the embedded cluster needs Linux: use a machine with it"
        )
    if not has_proc:
        return Finding("system", False, "/proc shows no processes", "mount it: `mount -t proc proc /proc`")
    return Finding("system", True, "Linux with /proc")


def judge_open_files(soft: int, hard: int) -> Finding:
    """`ulimit -n`; each connection, log and watch is an open file."""
    shown = f"soft {_limit(soft)}, hard {_limit(hard)}"
    if INFINITY != soft < LEAST_SOFT:
        return Finding("open files", False, shown, f"`ulimit -n {LEAST_SOFT}` or more before `knodel up`")
    if INFINITY != hard < LEAST_HARD:
        return Finding("open files", False, shown, f"raise the hard limit to {LEAST_HARD} in /etc/security/limits.conf")
    return Finding("open files", True, shown)


def judge_packages(missing: Mapping[str, str], engines: Mapping[str, str | None]) -> Finding:
    """`missing`: required package → how to install it; `engines`: format → how to install its engine, None if it is."""
    if missing:
        return Finding("packages", False, f"not installed: {', '.join(missing)}", "; ".join(missing.values()))
    here = ", ".join(name for name, how in engines.items() if how is None) or "none"
    absent = "; ".join(f"{name}: {how}" for name, how in engines.items() if how is not None)
    return Finding("packages", True, f"gateway; engines of {here}" + (f"; not installed: {absent}" if absent else ""))


def judge_folder(state: Path, exists: bool, mode: int, writable: bool, full: bool = False) -> Finding:
    """The state folder holds the token, keys and every object: its owner alone may read and write it."""
    if not writable:
        what = f"{state} is not writable" if exists else f"{state} cannot be made"
        return Finding("state folder", False, what, "choose another by --state or KNODEL_STATE, or become its owner")
    if full:
        what = f"the disk of {state} is full: nothing can be changed"
        return Finding("state folder", False, what, "make room on it; models go on serving meanwhile")
    if not exists:
        return Finding("state folder", True, f"{state} is made by the first `knodel up`")
    if mode & OTHERS:
        return Finding("state folder", False, f"{state} is open to others ({mode:04o})", f"`chmod 700 {state}`")
    return Finding("state folder", True, str(state))


def judge_secrets(modes: Mapping[Path, int]) -> Finding:
    """Path → permission bits, of the files that nobody else may read."""
    bad = [path for path, mode in modes.items() if mode & OTHERS]
    if bad:
        names = " ".join(map(str, bad))
        return Finding("secrets", False, f"open to others: {names}", f"`chmod 600 {names}`")
    return Finding("secrets", True, f"{len(modes)} files, for their owner alone")


def judge_store(store: Path, fault: str, objects: int, in_use: bool) -> Finding:
    """`fault`: why the store cannot be read, empty when it can."""
    if in_use:
        return Finding("store", True, f"{store} was checked when the platform started")
    if fault:
        return Finding("store", False, fault, "nothing was changed; the message says what helps")
    return Finding("store", True, f"{store}: {objects} objects" if objects else f"{store}: none yet")


def judge_platform(state: Path, holder: int | None, facts: Facts | None, fault: str) -> Finding:
    """`holder` has the folder's lock (None: nobody); `facts` are what `platform.json` says, `fault` why it does not."""
    if fault:
        return Finding("platform", False, fault, "`knodel down`, then `knodel up --detach`")
    if holder is None and facts is not None:
        message = f"platform.json tells of process {facts.pid}, which has ended"
        again = f"`knodel up --detach{ports_again(facts)}` starts it again, `knodel down` tidies up"
        return Finding("platform", False, message, again)
    if holder is None:
        return Finding("platform", True, f"none runs on {state}")
    if facts is None:
        remedy = f"look again in a moment; else see {state / 'platform.log'}, and `knodel down --force`"
        return Finding("platform", False, f"process {holder} is not ready: it starts or ends", remedy)
    if holder not in (0, facts.pid):
        message = f"process {holder} runs, but platform.json tells of process {facts.pid}"
        return Finding("platform", False, message, f"`knodel down`, then `knodel up --detach{ports_again(facts)}`")
    return Finding("platform", True, f"process {facts.pid}, version {facts.version}")


def judge_answers(facts: Facts, control: Reply, gateway: Reply, token: Reply) -> list[Finding]:
    """Whether a platform that runs answers: /readyz at the port of probes, the gateway, and the control API with
    the token."""
    log = f"see {facts.state}/platform.log"
    unable = f"{log}: it starts or ends, or nothing can be written"
    again = f"`knodel up --detach{ports_again(facts)}`"
    log += f"; `knodel down --force`, then {again}"
    lame = control.status == HTTP_UNAVAILABLE
    changed = f"the file was changed: `knodel down`, then {again}"
    checks = (
        ("events and probes", control.status == HTTP_OK, f"{facts.control} {_said(control)}", unable if lame else log),
        ("gateway", gateway.status > 0, f"{facts.gateway} {_said(gateway, shown=False)}", log),
        ("token", token.status == HTTP_OK, _said(token), changed if token.status == HTTP_UNAUTHORIZED else log),
    )
    return [Finding(check, ok, message, "" if ok else remedy) for check, ok, message, remedy in checks]


def judge_leftovers(running: bool, summary: str, ports: str = "") -> Finding:
    """Judge what `summary` tells of processes of the folder; without a platform nobody looks after them.

    `ports`: options by which `knodel up` takes the ports that the platform had.
    """
    if running:
        return Finding("processes", True, summary or "none beside the platform")
    if summary:
        remedy = f"`knodel up --detach{ports}` takes them over, `knodel down` ends them"
        return Finding("processes", False, f"left running without a platform: {summary}", remedy)
    return Finding("processes", True, "none left running")


def judge_kept(used: int, limit: int) -> Finding:
    """Bytes of the copies of local model files that versions serve, and the most that they may have."""
    shown = f"kept copies have {human_bytes(used)} of {human_bytes(limit)}"
    if used >= FULL_SHARE * limit:
        remedy = (
            "delete models that are not needed (their copies go some 10 minutes later), "
            "or start the platform with more bytes in KNODEL_KEPT_LIMIT"
        )
        return Finding("model files", False, shown, remedy)
    return Finding("model files", True, shown)


def judge_copies(copies: int, read: int, read_bytes: int, damaged: Sequence[Path]) -> Finding:
    """Kept copies of model files: how many there are, how many of them were read, and which are damaged."""
    shown = f"{read} of {copies} copies were read ({human_bytes(read_bytes)})"
    if damaged:
        paths = [shlex.quote(str(path)) for path in damaged]
        remedy = (
            f"`rm -r {' '.join(paths)}` deletes them. The next replica, or a deploy of the same files, copies "
            "the source again. If the source is gone, deploy other files"
        )
        return Finding("kept copies", False, f"{shown}, and {len(damaged)} damaged: {', '.join(paths)}", remedy)
    rest = "" if read == copies else "; `knodel doctor --full` reads them all"
    return Finding("kept copies", True, f"{shown}, and none is damaged{rest}")


def judge_port(
    what: str, address: str, remedy: str, taken_by: Sequence[Listener] | None, ours: frozenset[int]
) -> Finding:
    """`taken_by`: who has the port, None when it is free. `ours`: pids that the next `knodel up` takes over."""
    if taken_by is None:
        return Finding(f"{what} port", True, f"{address} is free")
    if taken_by and all(listener.pid in ours for listener in taken_by):
        return Finding(f"{what} port", True, f"{address} is held by what this platform left running")
    who = ", ".join(map(str, taken_by)) or "a process of another user"
    return Finding(f"{what} port", False, f"{address} is taken by {who}", remedy)


def judge_settings(fault: str) -> Finding:
    """`fault`: why the settings are refused, empty when they are not."""
    if fault:
        return Finding("settings", False, fault, "correct the file or the variable")
    return Finding("settings", True, "file and variables are understood")


def _limit(value: int) -> str:
    return "unlimited" if value == INFINITY else str(value)


def _said(reply: Reply, *, shown: bool = True) -> str:
    """Describe the reply; a status that means nothing, as that of the gateway's `/`, is not `shown`."""
    if not reply.status:
        return f"does not answer ({reply.error})"
    return f"answers {reply.status}" if shown else "answers"
