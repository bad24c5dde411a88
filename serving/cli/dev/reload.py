"""Decide which server of `knodel dev` serves, and what happens on a save, a load or a crash. Pure.

Each save starts a version in a process of its own. Requests go to it once it is loaded; until then, and if it fails,
the last good version serves.

| event | version that loads | effects |
|---|---|---|
| Saved | none | start one |
| Saved | loads | kill it, start another one: its files are outdated |
| Gone | any | kill it; wait for the files |
| Ready | loads | serve it, drain the former version |
| LoadFailed, Ended | loads | kill what is left of it, keep the former version |
| Ended | (the serving version) | load the present files, at most `MAX_RESTARTS` times without a save |
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from serving.cli.dev.messages import Failure

MAX_RESTARTS: Final = 3  # of a version that ends by itself, until the next save


@dataclass(frozen=True, slots=True)
class Reload:
    """The state: the number of the version that is `serving`, of the one that is `loading`, and of the `last` started.

    `failure` is why the present files are not served; None while they are served, or are being loaded.
    """

    serving: int | None = None
    loading: int | None = None
    last: int = 0
    failure: Failure | None = None
    restarts: int = 0


@dataclass(frozen=True, slots=True)
class Saved:
    """The files changed, and have settled."""


@dataclass(frozen=True, slots=True)
class Gone:
    """The files do not exist any more."""

    path: str


@dataclass(frozen=True, slots=True)
class Ready:
    """The version is loaded."""

    version: int


@dataclass(frozen=True, slots=True)
class LoadFailed:
    """The version cannot be loaded."""

    version: int
    failure: Failure


@dataclass(frozen=True, slots=True)
class Ended:
    """The process of the version ended by itself; `how` is with which code or signal."""

    version: int
    how: str


@dataclass(frozen=True, slots=True)
class Start:
    """Start a server with the present files."""

    version: int


@dataclass(frozen=True, slots=True)
class Kill:
    """Kill a server, which has no requests."""

    version: int


@dataclass(frozen=True, slots=True)
class Serve:
    """Send new requests to this version."""

    version: int


@dataclass(frozen=True, slots=True)
class Drain:
    """Stop a version once its requests are answered."""

    version: int


Event = Saved | Gone | Ready | LoadFailed | Ended
Effect = Start | Kill | Serve | Drain


def advance(state: Reload, event: Event) -> tuple[Reload, list[Effect]]:
    """Return the next state and its effects, in order. Events of versions that are neither role change nothing.

    Example:
        state, effects = advance(Reload(), Saved())  # Reload(loading=1, last=1), [Start(1)]
    """
    match event:
        case Saved():
            return _start(replace(state, restarts=0))
        case Gone(path):
            reason = f"{path} does not exist any more: it is loaded when it is back"
            return replace(state, loading=None, failure=Failure(reason), restarts=0), _kill(state.loading)
        case Ready(version) if version == state.loading:
            drain: list[Effect] = [] if state.serving is None else [Drain(state.serving)]
            return replace(state, serving=version, loading=None, failure=None), [Serve(version), *drain]
        case LoadFailed(version, failure) if version == state.loading:
            return replace(state, loading=None, failure=failure), _kill(version)
        case Ended(version, how) if version == state.loading:
            failure = Failure(f"its process ended {how} before the model was loaded")
            return replace(state, loading=None, failure=failure), _kill(version)
        case Ended(version, how) if version == state.serving:
            left = replace(state, serving=None, failure=Failure(f"its process ended {how}"))
            if state.loading is not None or state.failure is not None or state.restarts >= MAX_RESTARTS:
                return left, _kill(version)
            started, effects = _start(replace(left, restarts=state.restarts + 1))
            return started, [*_kill(version), *effects]
    return state, []


def _start(state: Reload) -> tuple[Reload, list[Effect]]:
    version = state.last + 1
    started = replace(state, loading=version, last=version, failure=None)
    return started, [*_kill(state.loading), Start(version)]


def _kill(version: int | None) -> list[Effect]:
    return [] if version is None else [Kill(version)]
