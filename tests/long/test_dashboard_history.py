"""The last day of the dashboard from a real Prometheus: a day of samples that it loads, and a platform that it scrapes.

Debian's package `prometheus` has both programs. `.ci/run` installs it.
"""

from __future__ import annotations

import contextlib
import http.client
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from clusters.base.clock import SystemClock
from serving.dashboard.history import COARSE, FIELDS
from serving.dashboard.prometheus import Day, PrometheusHistory
from tests.platform.machine import Machine, machine
from tests.support.ports import free_ports

PROGRAM, TOOL = shutil.which("prometheus"), shutil.which("promtool")
pytestmark = pytest.mark.skipif(not PROGRAM or not TOOL, reason="needs Prometheus: apt-get install prometheus")

PATIENCE = 120.0  # s, on a busy machine
HOURS = 30
EVERY = 30  # s between two samples
BOUNDS = {"0.01": 0.0, "0.1": 0.9, "1": 1.0, "+Inf": 1.0}
"""Shares of the responses below each bound, so the median is near 60 ms and the 99th percentile near 0.91 s."""


@contextlib.contextmanager
def prometheus(config: Path, data: Path, port: int) -> Iterator[None]:
    """A Prometheus that answers queries."""
    assert PROGRAM is not None
    argv = [PROGRAM, f"--config.file={config}", f"--storage.tsdb.path={data}", "--log.level=warn",
            f"--web.listen-address=127.0.0.1:{port}", "--storage.tsdb.retention.time=90d"]  # fmt: skip
    with (
        (config.parent / "prometheus.log").open("wb") as log,
        subprocess.Popen(argv, stdout=log, stderr=log) as process,
    ):
        try:
            _becomes(lambda: _status(port), 200)
            yield
        finally:
            process.terminate()


def _status(port: int) -> int:
    """The status of the server's readiness; 0 while nothing listens."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    with contextlib.closing(connection), contextlib.suppress(OSError):
        connection.request("GET", "/-/ready")
        return connection.getresponse().status
    return 0


def _becomes(read: Any, wanted: Any) -> None:
    """Wait until a value has come."""
    deadline = time.monotonic() + PATIENCE
    while (found := read()) != wanted:
        assert time.monotonic() < deadline, f"{found!r} instead of {wanted!r}"
        time.sleep(0.2)


def openmetrics(until: int) -> str:
    """The samples of a day: two versions with 2 and 1 requests a second, a tenth of those of the second one failed."""
    times = range(until - 3600 * HOURS, until + 1, EVERY)
    kinds = {
        "knodel_requests": "counter",
        "knodel_request_duration_seconds": "histogram",
        "knodel_model_loaded": "gauge",
    }
    lines: dict[str, list[str]] = {name: [f"# TYPE {name} {kind}"] for name, kind in kinds.items()}

    def count(family: str, suffix: str, labels: str, rate: float) -> None:
        lines[family] += [f"{family}{suffix}{{{labels}}} {rate * (at - times[0])} {at}" for at in times]

    for revision, rate, failed in (("iris-00001", 2.0, 0.0), ("iris-00002", 1.0, 0.1)):
        about = f'namespace="default",model="iris",instance="{revision}-a",revision="{revision}"'
        for code, share in (("200", 1 - failed), ("500", failed), ("404", 7.0)):
            count("knodel_requests", "_total", f'{about},protocol="v2",code="{code}"', rate * share)
        for bound, share in BOUNDS.items():
            count("knodel_request_duration_seconds", "_bucket", f'{about},protocol="v2",le="{bound}"', rate * share)
        lines["knodel_model_loaded"] += [f"knodel_model_loaded{{{about}}} 1 {at}" for at in times]
    return "\n".join(line for family in lines.values() for line in family) + "\n# EOF\n"


async def test_a_day_of_samples(tmp_path: Path) -> None:
    assert TOOL is not None
    until = int(time.time())
    samples, config, data = tmp_path / "samples", tmp_path / "prometheus.yml", tmp_path / "data"
    samples.write_text(openmetrics(until))
    subprocess.run([TOOL, "tsdb", "create-blocks-from", "openmetrics", samples, data], check=True, capture_output=True)
    config.write_text("global: {scrape_interval: 1m}\n")
    (port,) = free_ports(1)
    with prometheus(config, data, port):
        history = PrometheusHistory(f"http://127.0.0.1:{port}", SystemClock())
        day = await history.day("default", "iris")
        other = await history.day("other", "iris")
    assert day.fault == ""
    assert list(day.columns) == ["", "iris-00001", "iris-00002"]
    _check(day, "", requests=3.0, errors=0.1, p50=0.06, p99=0.91, replicas=2)
    _check(day, "iris-00001", requests=2.0, errors=0.0, p50=0.06, p99=0.91, replicas=1)
    _check(day, "iris-00002", requests=1.0, errors=0.1, p50=0.06, p99=0.91, replicas=1)
    assert not other.columns and "no metrics of this model" in other.fault


def _check(day: Day, revision: str, **wanted: float) -> None:
    """Compare all values of a version's day."""
    columns = day.columns[revision]
    assert len(columns["at"]) >= COARSE.places - 2
    for field in FIELDS:
        found = [value for value in columns[field] if value is not None]
        assert len(found) >= COARSE.places - 2
        assert found == pytest.approx([wanted[field]] * len(found), rel=0.05), field


@pytest.fixture
def platform(tmp_path: Path) -> Iterator[Machine]:
    """A platform with two models and a Prometheus in its settings, which does not run yet."""
    with machine(tmp_path) as made:
        (port,) = free_ports(1)
        made.environment |= {"KNODEL_DASHBOARD_PROMETHEUS_URL": f"http://127.0.0.1:{port}"}
        made.up()
        for name in ("iris", "rose"):
            made.run("deploy", name, "--uri", made.artifact("double"), "--min", "1")
        yield made


def test_a_platform_that_prometheus_scrapes(platform: Machine, tmp_path: Path) -> None:
    port = int(platform.environment["KNODEL_DASHBOARD_PROMETHEUS_URL"].rpartition(":")[2])
    with httpx.Client(base_url=f"http://127.0.0.1:{platform.control}/dashboard") as browser:
        assert browser.get(platform.run("dashboard", "--no-browser").strip()).status_code == 200

        def day(name: str) -> Any:
            return browser.get(f"/models/default/{name}/series?window=day", timeout=PATIENCE).json()

        with prometheus(platform.state / "prometheus.yml", tmp_path / "data", port):
            _becomes(lambda: _asked(platform, port), True)
            found = day("iris")
            assert found["note"] == ""
            (series,) = found["series"]
            assert max(value or 0 for value in series["requests"]) > 0
            assert series["replicas"][-1] == 1
        assert f"Prometheus at http://127.0.0.1:{port} has no history: the server did not answer" in day("rose")["note"]


def _asked(platform: Machine, port: int) -> bool:
    """Send a request, and return whether Prometheus knows a rate of requests."""
    platform.ask("iris")
    query = {"query": 'sum(rate(knodel_requests_total{model="iris",code="200"}[5m])) > 0'}
    answer = httpx.get(f"http://127.0.0.1:{port}/api/v1/query", params=query).json()
    return bool(answer["data"]["result"])
