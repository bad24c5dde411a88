"""The access log: lines of all requests or of a sample."""

from __future__ import annotations

import io
import json
import threading
from collections.abc import Sequence
from typing import Any

import pytest

from serving.modelserver.base.errors import BadOptions
from serving.modelserver.base.line_writer import MAX_LINES
from serving.modelserver.base.options import parse_options
from serving.modelserver.observe.access_log import AccessLog

PATIENCE = 10.0  # s


class Stalled(io.StringIO):
    """A pipe without a reader until it is `released`."""

    def __init__(self) -> None:
        super().__init__()
        self.released = threading.Event()
        self.asked = threading.Event()

    def write(self, text: str) -> int:
        self.asked.set()
        self.released.wait(PATIENCE)
        return super().write(text)


def written(share: float, statuses: Sequence[int], random: Sequence[float] = ()) -> list[dict[str, Any]]:
    """Return the lines of requests with these statuses; `random` samples those that are not always written."""
    out, drawn = io.StringIO(), iter(random)
    log = AccessLog(share, out, lambda: next(drawn))
    for status in statuses:
        log.write("POST", "/v2/models/m/infer", status, 0.0125, trace="abc")
    log.close(PATIENCE)
    return [json.loads(line) for line in out.getvalue().splitlines()]


def test_a_line_tells_what_was_asked_and_how_it_went() -> None:
    (line,) = written(1.0, [200])
    assert line.pop("at").endswith("+00:00")
    assert line == {"method": "POST", "path": "/v2/models/m/infer", "status": 200, "ms": 12.5, "trace": "abc"}


def test_of_a_share_each_line_says_for_how_many_it_stands() -> None:
    lines = written(0.25, [200, 201, 202, 203], random=[0.24, 0.25, 0.9, 0.0])
    assert [(line["status"], line["share"]) for line in lines] == [(200, 0.25), (203, 0.25)]


def test_what_failed_always_has_its_line() -> None:
    lines = written(0.01, [500, 404, 503], random=[0.5])
    assert [(line["status"], "share" in line) for line in lines] == [(500, False), (503, False)]


def test_what_a_caller_writes_into_a_path_stays_on_its_line() -> None:
    out = io.StringIO()
    log = AccessLog(1.0, out, lambda: 0.0)
    log.write("GET", '/v2/\n{"status": 200}', 404, 0.1)
    log.close(PATIENCE)
    assert json.loads(out.getvalue())["path"] == '/v2/\n{"status": 200}'
    assert out.getvalue().count("\n") == 1


@pytest.mark.fault("M10")
def test_who_does_not_read_the_log_keeps_nobody_waiting_and_learns_what_was_dropped() -> None:
    out = Stalled()
    log = AccessLog(1.0, out, lambda: 0.0)
    log.write("GET", "/first", 200, 0.1)
    assert out.asked.wait(PATIENCE)
    for number in range(MAX_LINES + 7):
        log.write("GET", f"/{number}", 200, 0.1)
    out.released.set()
    log.close(PATIENCE)
    lines = [json.loads(line) for line in out.getvalue().splitlines()]
    assert [line["path"] for line in lines[:-1]] == ["/first", *(f"/{number}" for number in range(MAX_LINES))]
    assert lines[-1]["dropped"] == 7


@pytest.mark.parametrize(("given", "share"), [([], 0.0), (["--access-log"], 1.0), (["--access-log", "0.01"], 0.01)])
def test_the_share_is_an_option(given: list[str], share: float) -> None:
    options = parse_options(["--name", "m", "--storage-uri", "file:///m.onnx", *given], {})
    assert options.observability.access_log == share


@pytest.mark.parametrize("given", ["0", "1.5", "-1", "nan", "all"])
def test_no_share_is_refused(given: str) -> None:
    with pytest.raises(BadOptions, match="--access-log"):
        parse_options(["--name", "m", "--storage-uri", "file:///m.onnx", "--access-log", given], {})
