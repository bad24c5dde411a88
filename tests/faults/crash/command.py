"""`knodel` that is sent a signal at its n-th exchange with the platform, before the request or after the answer.

    python -m tests.faults.crash.command SIGNAL WRITE before|after VERB …

Prints how many exchanges there were as the last line of stderr when it lives to the end.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from serving.cli.main import main
from serving.client import client
from serving.client.http import ApiResponse, exchange
from tests.faults.kit.crash import When

Exchange = Callable[..., AbstractContextManager[ApiResponse]]


class Struck:
    """`exchange` that counts, and strikes once."""

    def __init__(self, real: Exchange, number: int, when: When, blow: signal.Signals) -> None:
        self.count = 0
        self._real = real
        self._due = (number, when)
        self._blow = blow

    @contextmanager
    def exchange(self, *arguments: Any, **named: Any) -> Iterator[ApiResponse]:
        """As `serving.client.http.exchange`."""
        self.count += 1
        self._strike("before")
        with self._real(*arguments, **named) as answer:
            self._strike("after")
            yield answer

    def _strike(self, when: When) -> None:
        if (self.count, when) == self._due:
            os.kill(os.getpid(), self._blow)


def run(blow: str, number: str, when: When, *arguments: str) -> int:
    """The command's exit code, if it lives that long."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # what runs in the background may have inherited none
    struck = Struck(exchange, int(number), when, signal.Signals[blow])
    setattr(client, "exchange", struck.exchange)  # noqa: B010 - a name that the module imports
    code = main(arguments)
    print(struck.count, file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(run(*sys.argv[1:]))  # type: ignore[arg-type]  # `when` is what the caller wrote
