"""Fixtures of all tests."""

from __future__ import annotations

import gc
import logging
import os
import signal
import sys
from collections.abc import AsyncIterator, Generator, Iterator
from pathlib import Path

import hypothesis
import pytest

from clusters.embedded.cluster import EmbeddedCluster
from tests.support import own_home
from tests.support.clusters import embedded_cluster

LONG = Path(__file__).parent / "long"
FAULTS = Path(__file__).parent / "faults"
FIRST = tuple(Path(__file__).parent / name for name in ("platform", "scenarios"))
"""Folders with long files. They come first, so that the short ones fill the time until all workers are done. The
files of the second one follow each other, because they share a platform in each worker."""

os.environ["ORT_DISABLE_TELEMETRY"] = "1"  # before anything imports ONNX Runtime: it would report to its makers
own_home.enter()
# Each worker and each process that a test starts would compile all modules anew, 300 in half a second or more.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # of a background job; commands that a test interrupts inherit it
    signal.signal(signal.SIGINT, signal.default_int_handler)
hypothesis.settings.register_profile(  # no test depends on how fast the machine is
    "knodel", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("knodel")
IN_HOME = own_home.entries()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Which cluster the scenarios, the contract and `tests/cluster` run on; whether the long tests run."""
    choices = ["embedded", "kubernetes"]
    parser.addoption("--cluster", choices=choices, default="embedded", help="what the scenarios run on")
    parser.addoption("--kubeconfig", default="", help="of `--cluster kubernetes`; default KUBECONFIG, the testbed's")
    parser.addoption("--kube-context", default="", help="of `--cluster kubernetes`; default the current one")
    parser.addoption("--long", action="store_true", help="run `tests/long` and the long scenarios, too: minutes")
    parser.addoption("--faults", action="store_true", help="run `tests/faults`, too: minutes")
    parser.addoption("--full", action="store_true", help="wait in full length where a test of a fault shortens it")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """The everyday tests leave `tests/long` and `tests/faults` out."""
    left_out = {LONG: "--long", FAULTS: "--faults"}
    return True if collection_path in left_out and not config.getoption(left_out[collection_path]) else None


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect the tests without garbage collections, and exempt what they imported from later ones.

    All of it stays alive, and 10 000 tests with their libraries are millions of objects to traverse.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the folders of `FIRST` first."""
    items.sort(key=lambda item: FIRST.index(item.path.parent) if item.path.parent in FIRST else len(FIRST))


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail the run when it left something in the user's home folder."""
    left = own_home.entries() - IN_HOME
    if left and not hasattr(session.config, "workerinput"):  # once, in the process that has the result
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
        print(f"\nthe tests left in {os.environ[own_home.REAL_HOME]}: {', '.join(sorted(left))}")


@pytest.fixture(autouse=True)
def own_logs() -> Iterator[None]:
    """What a process under test, run within this one, makes of the log is over with the test."""
    root = logging.getLogger()
    level, handlers = root.level, root.handlers[:]
    yield
    root.setLevel(level)
    root.handlers[:] = handlers


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[EmbeddedCluster]:
    """A real embedded cluster over a fresh file, its background tasks running, without validators."""
    async with embedded_cluster(tmp_path / "cluster.db") as running:
        yield running
