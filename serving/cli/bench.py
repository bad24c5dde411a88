"""Run locust in a process of its own, and show the report of the load test."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import serving.loadtest
from clusters.base.redact import one_line
from serving.cli.base.output import Output, ProgressLine
from serving.client.errors import ClientError
from serving.loadtest.report import Report, Row

LOCUSTFILE: Final = Path(serving.loadtest.__file__).with_name("locust") / "locustfile.py"
GRACE: Final = 10.0
"""s that locust may take to end after an interruption."""
NOT_REACHED: Final = 0.9
"""Share of the due rate below which the report mentions it."""
MOST_ERRORS: Final = 5
"""Distinct errors that are shown."""


def run_locust(arguments: Sequence[str], body: bytes, about: str) -> tuple[Report, bool]:
    """Run a load test with these arguments of the locust file and the `body` of its requests.

    Return the report, and whether Ctrl-C ended the test. `about` is shown on a terminal meanwhile. Raises ClientError
    if locust ends without a report.
    """
    with tempfile.TemporaryDirectory(prefix="knodel-bench-") as name:
        folder = Path(name)
        report, log, request = folder / "report.json", folder / "locust.log", folder / "body.json"
        request.write_bytes(body)
        command = [
            sys.executable, "-m", "locust", "--locustfile", str(LOCUSTFILE), "--headless", "--only-summary",
            "--loglevel", "ERROR", "--end-with-stdin", "--report", str(report), "--body", str(request), *arguments,
        ]  # fmt: skip
        environ = {name: value for name, value in os.environ.items() if not name.startswith("LOCUST_")}
        was_interrupted, progress = False, ProgressLine()
        # In a session of its own, so that Ctrl-C does not reach it. It ends with its stdin, so with this process.
        with log.open("wb") as output, subprocess.Popen(
            command, cwd=folder, env=environ, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=output,
            start_new_session=True,
        ) as process:  # fmt: skip
            try:
                progress.show(about)
                process.wait()
            except KeyboardInterrupt:
                was_interrupted = True
                _end(process)
            finally:
                progress.clear()
                process.kill()
        if report.exists():
            return Report.from_json(json.loads(report.read_text())), was_interrupted
        if was_interrupted:
            raise KeyboardInterrupt
        lines = log.read_text(errors="replace").strip().splitlines() or ["no output"]
        raise ClientError(f"locust failed with exit code {process.returncode}: {one_line(lines[-1])}")


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.stdin is not None:
        process.stdin.close()
    try:
        process.wait(GRACE)
    except (subprocess.TimeoutExpired, KeyboardInterrupt):  # Ctrl-C again
        process.kill()


def show_report(output: Output, report: Report) -> None:
    """Print the percentiles by version, the rate and the most frequent errors."""
    heads = ["version", "kind", "requests", "errors", "p50 (ms)", "p95 (ms)", "p99 (ms)", "max (ms)"]
    output.table(heads, [_cells(row) for row in report.rows])
    line = f"{report.reached:.1f} requests per second for {report.seconds:.0f} s; the load was {report.due:.1f}"
    if report.reached < NOT_REACHED * report.due:
        line += ", which was not reached: its users wait for responses, and locust sends from one core"
    output.text(line)
    for error, count in list(report.errors.items())[:MOST_ERRORS]:
        output.text(f"{count} times: {error}")


def _cells(row: Row) -> list[object]:
    return [
        row.version,
        row.kind,
        row.requests,
        row.errors,
        *(f"{ms:g}" for ms in (row.p50, row.p95, row.p99, row.max)),
    ]
