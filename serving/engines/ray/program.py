"""A Ray with the applications of a Model, as an `EngineProgram`."""

from __future__ import annotations

import os
import secrets
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from serving.engines.base.errors import InferenceFailed
from serving.engines.base.folder import RAY_PREFIX, ModelFolder, short_folder
from serving.engines.ray.key import HEADER, STATE_VARIABLE, group_key
from serving.engines.ray.settings import GROUP_PORTS, STATE, RaySettings, RayState, environment, find_ports
from serving.engines.upstream.client import Address
from serving.engines.upstream.process import GUARDED
from serving.engines.upstream.program import Command, EngineLoad, Get
from serving.storage.folder_lock import LockedFolder

MODULE: Final = "serving.engines.ray.main"
LONGEST_TEMP: Final = 21
"""Bytes of the path. HAProxy's socket has 76 more, with the id of the node, and HAProxy's limit is 97."""
INNER: Final = "s"
"""Ray makes its folder writable for everyone, so the folder is inside of a private one."""
_STATE: Final = msgspec.json.Decoder(RayState)


class RayProgram:
    """Runs the applications in `folder`, which `close` releases."""

    platform = "ray_serve"
    restarts = True
    paths: frozenset[str] = frozenset()
    adapters: Sequence[str] = ()
    refusals: Sequence[str] = ()

    def __init__(self, settings: RaySettings, folder: ModelFolder, token: str = "") -> None:  # nosec B107 - none
        self._settings = settings
        self._folder = folder
        self._token = token  # of a group
        self._port = 0
        self._key = ""
        self._temp: LockedFolder | None = None

    def command(self, socket: Path, key: str) -> Command:
        """Start our own process behind the guard: Ray's agents outlive it by minutes."""
        ports = GROUP_PORTS if self._token else find_ports()
        settings = msgspec.structs.replace(self._settings, socket=str(socket), temp=self._make_temp(), ports=ports)
        self._port = settings.ports.http
        self._key = group_key(self._token) if self._token else key
        environ = environment(settings, self._key, self._token or secrets.token_hex(32))
        return Command(_argv(settings), {**environ, STATE_VARIABLE: key})

    def worker_command(self) -> Command:
        """Start a node that joins the Ray of the leader."""
        settings = msgspec.structs.replace(self._settings, temp=self._make_temp(), ports=GROUP_PORTS)
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
        if self._temp is not None:
            self._temp.release()
        self._folder.close()

    def _state(self, get: Get) -> RayState:
        try:
            return _STATE.decode(get(STATE))
        except msgspec.MsgspecError as error:
            raise InferenceFailed(f"the state of Ray is unexpected: {error}") from error

    def _make_temp(self) -> str:
        """Return the path of a new folder for Ray's files, and remove that of the Ray before."""
        if self._temp is not None:
            self._temp.release()
        self._temp = short_folder(RAY_PREFIX, INNER, LONGEST_TEMP)
        return str(self._temp.path / INNER)


def _argv(settings: RaySettings) -> Sequence[str]:
    return [*GUARDED, sys.executable, "-P", "-m", MODULE, msgspec.json.encode(settings).decode()]
