"""Messages between `knodel dev` and its server processes: one JSON line each, over a socket pair."""

from __future__ import annotations

from typing import Final

import msgspec

LINE_LIMIT: Final = 1 << 20  # bytes of one message; a traceback is shortened before it is sent


class Prepare(msgspec.Struct, tag=True, frozen=True):
    """To the server, first: import these modules, which the model is likely to need."""

    modules: list[str]


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

    `modules` are the modules of installed packages that the model imported, in this order, for the next `Prepare`.
    """

    modules: list[str]


class Failure(msgspec.Struct, tag=True, frozen=True):
    """From the server: the model cannot be loaded.

    `reason` is one line. `traceback` has the frames of the user's code and of libraries, and ends with the error.
    """

    reason: str
    traceback: list[str] = []


Report = Waiting | Loaded | Failure
Order = Prepare | Load
_order: Final[msgspec.json.Decoder[Order]] = msgspec.json.Decoder(Order)
_report: Final[msgspec.json.Decoder[Report]] = msgspec.json.Decoder(Report)


def encode(message: Order | Report) -> bytes:
    """Return the message as one line."""
    return msgspec.json.encode(message) + b"\n"


def decode_order(line: bytes) -> Order:
    """Return the message of a line to the server. Raises msgspec.MsgspecError."""
    return _order.decode(line)


def decode_report(line: bytes) -> Report:
    """Return the message of a line from the server. Raises msgspec.MsgspecError."""
    return _report.decode(line)
