"""A control-plane process, from arguments to exit code."""

from __future__ import annotations

import asyncio
import json
import os
import signal

import pytest

from clusters.base.errors import KnodelError
from clusters.runtime.manager.options import InvalidOptions, Options
from clusters.runtime.manager.process import run_process


def run(error: BaseException | None = None, argv: tuple[str, ...] = ()) -> int:
    """A process that ends with this error, or when asked."""

    async def serve(_: Options, stop: asyncio.Event) -> None:
        if error is not None:
            raise error
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.wait_for(stop.wait(), 5)

    return run_process("p", "A process.", serve, argv, {})


def test_an_asked_end_is_none_to_worry_about() -> None:
    assert run() == 0


@pytest.mark.parametrize(("error", "code"), [(KnodelError("no"), 1), (InvalidOptions("PORT=x"), 2)])
def test_what_we_know_is_told_in_one_line(error: KnodelError, code: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(error) == code
    told = capsys.readouterr().err
    assert str(error) in told and told.count("\n") == 1


def test_a_fault_of_ours_is_logged_as_everything_else_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(ExceptionGroup("unhandled", [ValueError("a fault of ours")])) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert "a fault of ours" in json.loads(line)["exception"]


def test_wrong_usage_is_two(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(argv=("--nope",)) == 2
    assert "--nope" in capsys.readouterr().err
