"""How a command finds the platform: by its state folder."""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from clusters.base.errors import KnodelError
from clusters.embedded.store.lock import belongs_to, holder, is_foreign, owner_of
from serving.cli.base.errors import CommandError, Unreachable, UsageError
from serving.cli.base.home import expand
from serving.cli.client.http import FOREIGN, Endpoint
from serving.types.settings.ports import port_options
from serving.types.settings.state import CONTROL_SOCKET, TOKEN_FILE, Facts, StateError, split_address

RESTARTS_WITHIN = 5.0  # s; a new `knodel up` takes one
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
    from clusters.base.version import VERSION  # reads the distribution's metadata

    try:
        facts = running(state)
    except KnodelError:
        return ""
    if facts is None or facts.version == VERSION:
        return ""
    remedy = f"`knodel down`, then `knodel up --detach{ports_again(facts)}` starts one of this version"
    return f"the platform is of version {facts.version}, this command of {VERSION}: {remedy}"


def running(state: Path) -> Facts | None:
    """Return the facts of the platform that runs on the folder, None when none runs there or it is not ready.

    `platform.json` alone proves nothing: a platform that was killed leaves it. The process that it names must hold the
    folder's lock, which the kernel releases when that process ends. Raises StateError, KnodelError as `holder`.
    """
    facts = Facts.read(state)
    return facts if facts is not None and holder(state) == facts.pid else None


def ports_again(facts: Facts) -> str:
    """Return the options by which `knodel up` takes the ports that the platform has or had; empty for the default ones.

    Example:
        >>> ports_again(Facts(1, 1, "1", "/state", "127.0.0.1:9380", "127.0.0.1:9381", "127.0.0.1:9382"))
        ' --port 9380'
    """
    return port_options(*(split_address(address)[1] for address in (facts.gateway, facts.control, facts.control_tls)))


@dataclass(frozen=True, slots=True)
class Platform:
    """A running platform, as a `Server` of the command."""

    state: Path
    owner: int
    gateway: tuple[str, int]
    domain: str = "localhost"
    ports: str = ""  # options of `knodel up`, as `ports_again` has them

    @classmethod
    def find(cls, state: Path) -> Platform:
        """Read the state folder. Raises CommandError for that of another user, and when no platform runs there."""
        owner = owner_of(state)
        if is_foreign(owner):
            raise CommandError(belongs_to(state, owner))
        facts = running(state)
        if facts is None or owner is None:
            raise CommandError(_absent(state))
        return cls(state, owner, split_address(facts.gateway), facts.domain, ports_again(facts))

    @property
    def restarts_within(self) -> float:
        """Seconds in which a new `knodel up` is back, when somebody starts one."""
        return RESTARTS_WITHIN

    @property
    def endpoint(self) -> Endpoint:
        """Its control API, which only the owner of the state folder may serve."""
        return Endpoint(HOST, 80, "the platform", self._remedy, socket=self.state / CONTROL_SOCKET, owner=self.owner)

    @property
    def ingress(self) -> Endpoint:
        """Its gateway."""
        return Endpoint(*self.gateway, "the gateway", self._remedy)

    @property
    def _remedy(self) -> str:
        return f"`knodel doctor` looks for the cause, `knodel up --detach{self.ports}` starts it"

    @property
    def _renewal(self) -> str:
        return f"`knodel down`, then `knodel up --detach{self.ports}` writes a new one"

    @property
    def checks_models(self) -> bool:
        """The control API does."""
        return True

    def credentials(self) -> Mapping[str, str]:
        """Return the header with the present token, which each `knodel up` makes anew.

        Raises Unreachable when the platform has ended meanwhile, CommandError when the token cannot be read.
        """
        if running(self.state) is None:
            raise Unreachable(
                f"the platform on {self.state} has stopped: start it again with `knodel up --detach{self.ports}`"
            )
        path = self.state / TOKEN_FILE
        try:
            token = _read_own(path, self.owner).strip()
        except OSError as error:
            raise CommandError(f"{path} cannot be read ({error.strerror}): are you its owner?") from error
        if not (token.isascii() and token.isprintable() and token):
            raise CommandError(f"{path} holds no token: {self._renewal}")
        return {"Authorization": f"Bearer {token}"}

    def unauthorized(self, message: str) -> str:
        """The token in the file is not the one that the platform made."""
        return f"the platform does not take the token in {self.state / TOKEN_FILE}: {self._renewal}"

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
    try:
        left = Facts.read(state)  # by a platform that was killed
    except StateError:
        left = None
    return f"no platform runs on {state}: start one with `knodel up --detach{ports_again(left) if left else ''}`"
