"""A Ray with the applications of a Model, as an `EngineProgram`."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from serving.engines.base.errors import InferenceFailed
from serving.engines.base.folder import ModelFolder
from serving.engines.ray.key import HEADER, STATE_VARIABLE, group_key
from serving.engines.ray.settings import GROUP_PORTS, STATE, RaySettings, RayState, environment, find_ports
from serving.engines.upstream.client import Address
from serving.engines.upstream.program import Command, EngineLoad, Get

GUARD: Final = "serving.engines.upstream.guard"
MODULE: Final = "serving.engines.ray.main"
LONGEST_TEMP: Final = 21
"""Bytes of the path. HAProxy's socket has 76 more, with the id of the node, and HAProxy's limit is 97."""
_SHORT: Final = "/tmp"  # noqa: S108 - only for Ray's files, in a folder that mkdtemp makes private
_STATE: Final = msgspec.json.Decoder(RayState)


class RayProgram:
    """Runs the applications in `folder`, which `close` releases."""

    platform = "ray_serve"
    restarts = True
    paths: frozenset[str] = frozenset()
    adapters: Sequence[str] = ()
    refusals: Sequence[str] = ()

    def __init__(self, settings: RaySettings, folder: ModelFolder, token: str = "") -> None:
        self._settings = settings
        self._folder = folder
        self._token = token  # of a group
        self._port = 0
        self._key = ""

    def command(self, socket: Path, key: str) -> Command:
        """Start our own process behind the guard: Ray's agents outlive it by minutes."""
        self._remove_temp()
        self._settings = settings = msgspec.structs.replace(
            self._settings, socket=str(socket), temp=make_temp(), ports=GROUP_PORTS if self._token else find_ports()
        )
        self._port = settings.ports.http
        self._key = group_key(self._token) if self._token else key
        environ = environment(settings, self._key, self._token or secrets.token_hex(32))
        return Command(_argv(settings), {**environ, STATE_VARIABLE: key})

    def worker_command(self) -> Command:
        """Start a node that joins the Ray of the leader."""
        self._settings = settings = msgspec.structs.replace(self._settings, temp=make_temp(), ports=GROUP_PORTS)
        environ = environment(settings, group_key(self._token), self._token)
        path = os.pathsep.join(filter(None, (settings.folder, os.environ.get("PYTHONPATH"))))
        return Command(_argv(settings), {**environ, "PYTHONPATH": path})  # the leader's folder is not here

    def entrance(self, state: Address) -> Address:
        """Return where callers' requests go: Ray's HAProxy."""
        return Address(state.socket, self._key, self._port, HEADER)

    def slots(self, get: Get, wanted: int) -> int:
        """Return the wanted number, or that of the ingress deployments."""
        return wanted or self._state(get).slots

    def load(self, get: Get) -> EngineLoad:
        """Return whether all applications run. Raises EngineError."""
        return EngineLoad(reason=self._state(get).reason)

    def change_body(self, body: dict[str, Any], adapter: str) -> dict[str, Any] | None:
        """Send every request unchanged."""
        return None

    def wake(self, get: Get) -> None:
        """Do nothing: a Ray never sleeps."""

    def close(self) -> None:
        """Release the files."""
        self._remove_temp()
        self._folder.close()

    def _state(self, get: Get) -> RayState:
        try:
            return _STATE.decode(get(STATE))
        except msgspec.MsgspecError as error:
            raise InferenceFailed(f"the state of Ray is unexpected: {error}") from error

    def _remove_temp(self) -> None:
        if self._settings.temp:
            shutil.rmtree(Path(self._settings.temp).parent, ignore_errors=True)


def _argv(settings: RaySettings) -> Sequence[str]:
    python = [sys.executable, "-P", "-m"]
    return [*python, GUARD, *python, MODULE, msgspec.json.encode(settings).decode()]


def make_temp() -> str:
    """Return a new folder, below $TMPDIR if its path is short enough for Ray's sockets.

    Ray makes its folder writable for everyone, so the folder is inside of a private one.
    """
    made = tempfile.mkdtemp(prefix="ray-")
    if len(os.fsencode(made)) + len("/s") > LONGEST_TEMP:
        with contextlib.suppress(OSError):
            Path(made).rmdir()
        made = tempfile.mkdtemp(prefix="ray-", dir=_SHORT)
    return f"{made}/s"
