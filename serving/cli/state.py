"""How a command finds the platform: by its state folder."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from serving.apis.state import TOKEN_FILE, Facts, StateError, split_address
from serving.cli.errors import CommandError
from serving.cli.http import FOREIGN, Endpoint

REMEDY = "`knodel doctor` looks for the cause, `knodel up --detach` starts it"
RENEW = "`knodel down`, remove the file, `knodel up --detach` makes a new one"
RESTARTS_WITHIN = 5.0  # s; a new `knodel up` takes one


def state_folder(given: str | None) -> Path:
    """`--state`, else KNODEL_STATE, else the XDG state home."""
    chosen = given or os.environ.get("KNODEL_STATE")
    if chosen:
        return Path(chosen).expanduser().absolute()
    base = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
    return Path(base).expanduser() / "knodel"


def version_skew(state: Path) -> str:
    """What to say of a failure when the platform and this command are of different versions; empty when not."""
    from serving.apis.version import VERSION  # reads the distribution's metadata

    try:
        facts = Facts.read(state)
    except StateError:
        return ""
    if facts is None or facts.version == VERSION:
        return ""
    remedy = "`knodel down`, then `knodel up --detach` starts one of this version"
    return f"the platform is of version {facts.version}, this command of {VERSION}: {remedy}"


@dataclass(frozen=True, slots=True)
class Platform:
    """A running platform: where it is, and the token that it takes; a `Server` of the command."""

    control: tuple[str, int]
    gateway: tuple[str, int]
    token: str
    domain: str = "localhost"

    @classmethod
    def find(cls, state: Path) -> Platform:
        """Read the state folder. Raises CommandError when no platform runs there."""
        facts = Facts.read(state)
        if facts is None:
            raise CommandError(f"no platform runs on {state}: start one with `knodel up --detach`")
        try:
            token = (state / TOKEN_FILE).read_text().strip()
        except OSError as error:
            raise CommandError(f"{state / TOKEN_FILE} cannot be read ({error.strerror}): are you its owner?") from error
        except UnicodeDecodeError as error:
            raise CommandError(f"{state / TOKEN_FILE} is no text: {RENEW}") from error
        if not (token.isascii() and token.isprintable() and token):
            raise CommandError(f"{state / TOKEN_FILE} holds no token: {RENEW}")
        return cls(split_address(facts.control), split_address(facts.gateway), token, facts.domain)

    @property
    def restarts_within(self) -> float:
        """Seconds in which a new `knodel up` is back, when somebody starts one."""
        return RESTARTS_WITHIN

    @property
    def endpoint(self) -> Endpoint:
        """Its control API."""
        return Endpoint(*self.control, "the platform", REMEDY)

    @property
    def ingress(self) -> Endpoint:
        """Its gateway."""
        return Endpoint(*self.gateway, "the gateway", REMEDY)

    @property
    def checks_models(self) -> bool:
        """The control API does."""
        return True

    def credentials(self) -> Mapping[str, str]:
        """The state folder's token."""
        return {"Authorization": f"Bearer {self.token}"}

    def unauthorized(self, message: str) -> str:
        """A token of another platform."""
        return "the platform does not take the token of the state folder: is another one on its port?"

    def forbidden(self, message: str) -> str:
        """The control API says all there is to say."""
        return message

    def lacks(self, resource: str) -> str:
        """Something that is no control API."""
        return f"the platform has no {resource or 'such path'}: {FOREIGN}"
