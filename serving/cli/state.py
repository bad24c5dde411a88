"""The state folder: where `knodel up` leaves what every other command needs to find the platform."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path

from serving.cli.errors import CommandError

PLATFORM_FILE = "platform.json"
TOKEN_FILE = "token"  # noqa: S105 - a file's name


def state_folder(given: str | None) -> Path:
    """`--state`, else KNODEL_STATE, else the XDG state home."""
    chosen = given or os.environ.get("KNODEL_STATE")
    if chosen:
        return Path(chosen).expanduser().absolute()
    base = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
    return Path(base).expanduser() / "knodel"


@dataclass(frozen=True, slots=True)
class Platform:
    """A running platform, as `platform.json` and `token` tell it."""

    state: Path
    control: tuple[str, int]
    gateway: tuple[str, int]
    token: str

    @classmethod
    def find(cls, state: Path) -> Platform:
        """Read the state folder. Raises CommandError when no platform runs there."""
        try:
            facts = json.loads((state / PLATFORM_FILE).read_text())
            token = (state / TOKEN_FILE).read_text().strip()
            return cls(state, _address(facts["control"]), _address(facts["gateway"]), token)
        except FileNotFoundError:
            raise CommandError(f"no platform runs on {state}: start one with `knodel up --detach`") from None
        except (OSError, ValueError, KeyError) as error:
            raise CommandError(
                f"{state / PLATFORM_FILE} cannot be read ({error}): `knodel up` writes it anew"
            ) from error


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    return host, int(port)
