"""Messages between `knodel dev` and its server processes: one JSON line each, over a socket pair."""

from __future__ import annotations

from typing import Final

import msgspec

LINE_LIMIT: Final = 1 << 20  # bytes of one message; a traceback is shortened before it is sent


class Load(msgspec.Struct, tag=True, frozen=True):
    """To the server, once: load and serve this model.

    `argv` and `environ` are the command line and additional variables of `serving.modelserver`. After `timeout`
    seconds the server reports what its code is doing.
    """

    argv: list[str]
    environ: dict[str, str]
    timeout: float


class Waiting(msgspec.Struct, tag=True, frozen=True):
    """From the server, first: all is imported, and it waits for `Load`."""


class Loaded(msgspec.Struct, tag=True, frozen=True):
    """From the server: the model is loaded and every port answers.

    `modules` are the installed packages that the model imported, for the next server to import early.
    """

    modules: list[str]


class Failure(msgspec.Struct, tag=True, frozen=True):
    """From the server: the model cannot be loaded.

    `reason` is one line. `traceback` has the frames of the user's code and of libraries, and ends with the error.
    """

    reason: str
    traceback: list[str] = []


Report = Waiting | Loaded | Failure
_load: Final = msgspec.json.Decoder(Load)
_report: Final[msgspec.json.Decoder[Report]] = msgspec.json.Decoder(Report)


def encode(message: Load | Report) -> bytes:
    """Return the message as one line."""
    return msgspec.json.encode(message) + b"\n"


def decode_load(line: bytes) -> Load:
    """Return the message of a line. Raises msgspec.MsgspecError."""
    return _load.decode(line)


def decode_report(line: bytes) -> Report:
    """Return the message of a line. Raises msgspec.MsgspecError."""
    return _report.decode(line)
