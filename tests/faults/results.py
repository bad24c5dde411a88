"""A pytest plugin: what became of the tests of each fault, as lines of JSON. Load it by `-p tests.faults.results`."""

from __future__ import annotations

import json
from collections.abc import Generator, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

import pytest

from tests.faults.catalogue import IDS


@dataclass(frozen=True)
class Result:
    """One test of a fault. `outcome` is `passed`, `failed` or `skipped`; `seconds` with its fixtures."""

    id: str
    test: str
    outcome: str
    seconds: float
    shortened: str = ""
    reason: str = ""


def read(path: Path) -> list[Result]:
    """What a run wrote; nothing where it wrote nothing."""
    return [Result(**json.loads(line)) for line in path.read_text().splitlines()] if path.exists() else []


def write(path: Path, results: Iterable[Result]) -> None:
    """The inverse of `read`; it adds to what is there."""
    with path.open("a") as lines:
        for result in results:
            lines.write(json.dumps(asdict(result)) + "\n")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Where to write."""
    parser.addoption("--fault-results", type=Path, help="write what became of the tests of each fault to this file")
    parser.addoption("--fault-rows", nargs="*", default=[], help="run the tests of these faults alone")


def pytest_configure(config: pytest.Config) -> None:
    """Collect while there is a file to write to."""
    path = config.getoption("--fault-results")
    if path is not None:
        config.pluginmanager.register(Collector(path))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what proves other rows than those that are asked for."""
    rows = set(config.getoption("--fault-rows"))
    if rows:
        config.hook.pytest_deselected(items=[item for item in items if not rows & ids_of(item)])
        items[:] = [item for item in items if rows & ids_of(item)]


def merged(before: list[Result], now: list[Result]) -> list[Result]:
    """What a former run found, where this one did not look again."""
    again = {result.test for result in now}
    return [*(result for result in before if result.test not in again), *now]


class Collector:
    """Adds up the phases of a test and writes them when it ends."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._phases: list[pytest.TestReport] = []
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """One phase is over."""
        report = yield
        self._phases.append(report)
        if report.when == "teardown":
            self._write(item, self._phases)
            self._phases = []
        return report

    def _write(self, item: pytest.Item, phases: list[pytest.TestReport]) -> None:
        worst = next((it for it in phases if it.failed), next((it for it in phases if it.skipped), phases[-1]))
        shortened = [mark.kwargs.get("shortened", "") for mark in item.iter_markers("fault")]
        seconds = round(sum(phase.duration for phase in phases), 2)
        reason = worst.longrepr[2] if worst.skipped and isinstance(worst.longrepr, tuple) else ""
        words = "; ".join(filter(None, shortened))
        rows = sorted(ids_of(item))
        write(self._path, [Result(row, item.nodeid, worst.outcome, seconds, words, reason) for row in rows])


def ids_of(item: pytest.Item) -> set[str]:
    """The faults that a test is marked with.

    Raises:
        pytest.UsageError: there is no such row.
    """
    found = {row for mark in item.iter_markers("fault") for row in mark.args}
    if unknown := found - IDS:
        raise pytest.UsageError(f"{item.nodeid}: no fault {', '.join(sorted(unknown))} in tests/faults/catalogue.py")
    return found
