"""The log of the server with a reader that stalls."""

from __future__ import annotations

import fcntl
import logging
import os
import sys
from collections.abc import Iterator

import pytest

from serving.modelserver.base.logs import MAX_LINES, UnwaitingHandler, log_to_stderr, own_stderr, traceback_of

F_SETPIPE_SZ = 1031  # fcntl.h of Linux
PIPE = 4096  # bytes; the minimum
LINE = "x" * 99


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    """Return the read and write ends of a small pipe."""
    reading, writing = os.pipe()
    fcntl.fcntl(writing, F_SETPIPE_SZ, PIPE)
    yield reading, writing
    os.close(reading)
    os.close(writing)


def record(words: str) -> logging.LogRecord:
    return logging.LogRecord("n", logging.INFO, "f", 1, words, None, None)


@pytest.mark.fault("M10")
def test_what_the_pipe_does_not_take_is_lost_and_counted(pipe: tuple[int, int]) -> None:
    reading, writing = pipe
    handler = UnwaitingHandler(writing)
    for _ in range(100):
        handler.emit(record(LINE))
    taken = os.read(reading, 1 << 20)
    handler.emit(record("again"))
    kept = taken.count(b"\n")
    assert 0 < kept < 100
    assert (
        os.read(reading, 1 << 20)
        == f"{100 - kept} lines of this log were dropped: its reader was too slow\nagain\n".encode()
    )


@pytest.mark.fault("M10")
def test_another_writer_that_takes_the_room_keeps_nobody_waiting(pipe: tuple[int, int]) -> None:
    handler = UnwaitingHandler(pipe[1])
    os.write(pipe[1], b"x" * PIPE)
    assert handler._written(b"y") is False
    with pytest.raises(BlockingIOError):
        os.write(handler._number, b"y")
    assert os.get_blocking(pipe[1])  # as others have it
    handler.close()


@pytest.mark.fault("M10")
def test_nobody_at_the_other_end_is_no_error() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    try:
        UnwaitingHandler(writing).emit(record("into the void"))
    finally:
        os.close(writing)


def test_a_record_whose_words_do_not_fit_is_told_of(pipe: tuple[int, int], capsys: pytest.CaptureFixture[str]) -> None:
    UnwaitingHandler(pipe[1]).emit(logging.LogRecord("n", logging.INFO, "f", 1, "%d", ("text",), None))
    assert "Logging error" in capsys.readouterr().err


def test_a_stderr_in_memory_is_written_to(capsys: pytest.CaptureFixture[str]) -> None:
    log_to_stderr()
    logging.getLogger("a").info("said")
    assert capsys.readouterr().err.endswith("INFO a said\n")
    assert own_stderr() is sys.stderr


def test_a_traceback_names_the_line_of_each_cause_and_cannot_forge_a_record() -> None:
    def refuse() -> None:
        raise ValueError("first\n2026-01-01 00:00:00,000 INFO forged \x1b[2J")

    try:
        try:
            refuse()
        except ValueError as error:
            raise RuntimeError("the model's") from error
    except RuntimeError as error:
        lines = traceback_of(error).splitlines()
    assert all(line.startswith("    ") and line.isprintable() for line in lines)
    assert any("test_logs.py" in line and "in refuse" in line for line in lines)
    assert any("ValueError: first" in line for line in lines)
    assert any(r"forged \x1b[2J" in line for line in lines)
    assert lines[-1] == "    RuntimeError: the model's"


def test_a_long_traceback_is_cut_in_its_middle() -> None:
    try:
        raise ValueError("\n".join(str(number) for number in range(10_000)))
    except ValueError as error:
        lines = traceback_of(error).splitlines()
    assert len(lines) == MAX_LINES + 1
    assert "lines …" in lines[MAX_LINES // 2]
    assert lines[-1] == "    9999"
