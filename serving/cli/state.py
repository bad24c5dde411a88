"""How a command finds the platform: by its state folder."""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from clusters.embedded.lock import holder
from serving.apis.state import CONTROL_SOCKET, TOKEN_FILE, Facts, StateError, split_address
from serving.cli.errors import CommandError, Unreachable, UsageError
from serving.cli.home import expand
from serving.cli.http import FOREIGN, Endpoint

REMEDY = "`knodel doctor` looks for the cause, `knodel up --detach` starts it"
RENEW = "`knodel down`, then `knodel up --detach` writes a new one"
RESTARTS_WITHIN = 5.0  # s; a new `knodel up` takes one
ROOT = 0
HOST = "localhost"  # the Host of requests over the platform's unix socket


def state_folder(given: str | None) -> Path:
    """Return the state folder: `--state`, else KNODEL_STATE, else `knodel` in the XDG state home.

    A relative XDG_STATE_HOME is ignored, as the XDG base directory specification requires. Raises UsageError when the
    home folder is not known.
    """
    chosen = given or os.environ.get("KNODEL_STATE")
    if chosen:
        return expand(chosen).absolute()
    base = Path(os.environ.get("XDG_STATE_HOME") or "")
    if base.is_absolute():
        return base / "knodel"
    try:
        return Path("~/.local/state/knodel").expanduser()
    except RuntimeError as error:
        raise UsageError("this user has no home folder: name the state folder with --state or KNODEL_STATE") from error


def version_skew(state: Path) -> str:
    """What to say of a failure when the platform and this command are of different versions; empty when not."""
    from serving.apis.version import VERSION  # reads the distribution's metadata

    try:
        facts = running(state)
    except StateError:
        return ""
    if facts is None or facts.version == VERSION:
        return ""
    remedy = "`knodel down`, then `knodel up --detach` starts one of this version"
    return f"the platform is of version {facts.version}, this command of {VERSION}: {remedy}"


def running(state: Path) -> Facts | None:
    """Return the facts of the platform that runs on the folder, None when none runs there or it is not ready.

    `platform.json` alone proves nothing: a platform that was killed leaves it. The process that it names must hold the
    folder's lock, which the kernel releases when that process ends. Raises StateError.
    """
    facts = Facts.read(state)
    return facts if facts is not None and holder(state) == facts.pid else None


@dataclass(frozen=True, slots=True)
class Platform:
    """A running platform, as a `Server` of the command."""

    state: Path
    owner: int
    gateway: tuple[str, int]
    domain: str = "localhost"

    @classmethod
    def find(cls, state: Path) -> Platform:
        """Read the state folder. Raises CommandError when no platform runs there."""
        facts = running(state)
        if facts is None:
            raise CommandError(_absent(state))
        owner = state.stat().st_uid
        if os.geteuid() not in (owner, ROOT):
            raise CommandError(
                f"{state} is the state folder of user {owner}: name your own with --state or KNODEL_STATE"
            )
        return cls(state, owner, split_address(facts.gateway), facts.domain)

    @property
    def restarts_within(self) -> float:
        """Seconds in which a new `knodel up` is back, when somebody starts one."""
        return RESTARTS_WITHIN

    @property
    def endpoint(self) -> Endpoint:
        """Its control API, which only the owner of the state folder may serve."""
        return Endpoint(HOST, 80, "the platform", REMEDY, socket=self.state / CONTROL_SOCKET, owner=self.owner)

    @property
    def ingress(self) -> Endpoint:
        """Its gateway."""
        return Endpoint(*self.gateway, "the gateway", REMEDY)

    @property
    def checks_models(self) -> bool:
        """The control API does."""
        return True

    def credentials(self) -> Mapping[str, str]:
        """Return the header with the present token, which each `knodel up` makes anew.

        Raises Unreachable when the platform has ended meanwhile, CommandError when the token cannot be read.
        """
        if running(self.state) is None:
            raise Unreachable(_absent(self.state))
        path = self.state / TOKEN_FILE
        try:
            token = _read_own(path, self.owner).strip()
        except OSError as error:
            raise CommandError(f"{path} cannot be read ({error.strerror}): are you its owner?") from error
        if not (token.isascii() and token.isprintable() and token):
            raise CommandError(f"{path} holds no token: {RENEW}")
        return {"Authorization": f"Bearer {token}"}

    def unauthorized(self, message: str) -> str:
        """The token in the file is not the one that the platform made."""
        return f"the platform does not take the token in {self.state / TOKEN_FILE}: {RENEW}"

    def forbidden(self, message: str) -> str:
        """The control API says all there is to say."""
        return message

    def lacks(self, resource: str) -> str:
        """Something that is no control API."""
        return f"the platform has no {resource or 'such path'}: {FOREIGN}"


def _read_own(path: Path, owner: int) -> str:
    """Read a file of `owner`; a link, and a file of another user, are an OSError: a token goes to its owner only."""
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC), "rb") as file:
        if os.fstat(file.fileno()).st_uid != owner:
            raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))
        return file.read().decode("utf-8", "replace")


def _absent(state: Path) -> str:
    return f"no platform runs on {state}: start one with `knodel up --detach`"
