"""What the dashboard costs: CPU and memory of a platform without it, with it, and with one viewer.

    python -m loadtests.dashboard --models 100 --seconds 120

Each case is a platform of its own with the same models. Most of them are at zero, and some have a replica. The viewer
reads the stream of the list, as a browser does. Writes a table to stdout.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from tests.support import models
from tests.support.ports import free_ports

TICKS: Final = os.sysconf("SC_CLK_TCK")
WITHOUT: Final = """
import asyncio, sys
from serving.dashboard.sampler import Sampler
async def rest(self):
    await asyncio.Event().wait()
Sampler.run = rest
from serving.cli.main import main
sys.exit(main())
"""
"""The command with a platform that takes no samples."""
SETTLE: Final = 60.0  # s until the models are at rest


class Case(NamedTuple):
    """One row of the table."""

    name: str
    cpu: float
    memory: float


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", type=int, default=100)
    parser.add_argument("--replicas", type=int, default=8, help="models with a replica; the others are at zero")
    parser.add_argument("--seconds", type=float, default=120.0, help="of each measurement")
    given = parser.parse_args()
    rows = []
    for name, is_without in (("without the dashboard", True), ("with it, nobody looks", False)):
        with platform(given.models, given.replicas, is_without) as (state, pid):
            rows.append(Case(name, *measure(pid, given.seconds)))
            if not is_without:
                with viewer(state) as sent:
                    time.sleep(10)
                    rows.append(Case("with one viewer of the list", *measure(pid, given.seconds)))
                    print(f"the stream sent {sum(sent) / 1024:.0f} KiB", file=sys.stderr)
    base = rows[0]
    print("| platform | CPU, % of a core | more | memory, MiB (PSS) | more |\n|---|---|---|---|---|")
    for row in rows:
        more = f"{row.cpu - base.cpu:+.2f} | {row.memory:.1f} | {row.memory - base.memory:+.1f}"
        print(f"| {row.name} | {row.cpu:.2f} | {more} |")
    return 0


@contextlib.contextmanager
def platform(count: int, replicas: int, is_without: bool) -> Iterator[tuple[Path, int]]:
    """A platform with its models at rest: the state folder and the process id."""
    command = [sys.executable, "-c", WITHOUT] if is_without else [sys.executable, "-m", "serving.cli.main"]
    with tempfile.TemporaryDirectory() as folder:
        state = Path(folder, "state")
        ports = free_ports(3)
        environment = os.environ | {"KNODEL_STATE": str(state), "KNODEL_CONTROL_TLS_PORT": str(ports[2])}

        def run(*words: str, stdin: str = "") -> None:
            subprocess.run([*command, *words], env=environment, input=stdin, text=True, check=True,
                           stdout=subprocess.DEVNULL)  # fmt: skip

        uri = f"file://{models.write(Path(folder), 'double')}"
        words = [*command, "up", "--port", str(ports[0]), "--control-port", str(ports[1])]
        started = subprocess.Popen(words, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            while not (state / "platform.json").exists():
                time.sleep(0.2)
            documents = [json.dumps(one) for one in _models(uri, count, replicas)]
            run("deploy", "-f", "-", "--no-wait", stdin="\n---\n".join(documents))
            _wait_until_ready(command, environment)
            time.sleep(SETTLE)
            yield state, started.pid
        finally:
            run("down", "--force")
            started.wait()


def _models(uri: str, count: int, replicas: int) -> Iterator[dict[str, object]]:
    """Yield Models; the first `replicas` of them keep a replica."""
    for index in range(count):
        least = 1 if index < replicas else 0
        spec = {"storageUri": uri, "version": "1", "minReplicas": least, "maxReplicas": 1, "scaleToZeroAfter": "5s"}
        named = {"name": f"m{index}", "namespace": "default"}
        yield {"apiVersion": "knodel.dev/v1alpha1", "kind": "Model", "metadata": named, "spec": spec}


def _wait_until_ready(command: list[str], environment: dict[str, str]) -> None:
    while True:
        found = subprocess.run([*command, "list", "-o", "json"], env=environment, capture_output=True, check=True)
        conditions = [
            one
            for model in json.loads(found.stdout)["items"]
            for one in (model.get("status") or {}).get("conditions", ())
        ]
        if all(one["status"] == "True" for one in conditions if one["type"] == "Ready"):
            return
        time.sleep(5)


def measure(pid: int, seconds: float) -> tuple[float, float]:
    """Return the CPU in percent of a core during `seconds`, and the memory in MiB at the end."""
    before, began = _ticks(pid), time.monotonic()
    time.sleep(seconds)
    cpu = 100 * (_ticks(pid) - before) / TICKS / (time.monotonic() - began)
    rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
    pss = next(int(line.split()[1]) for line in rollup.splitlines() if line.startswith("Pss:"))
    return cpu, pss / 1024


@contextlib.contextmanager
def viewer(state: Path) -> Iterator[list[int]]:
    """Read the stream of the list: yields the sizes of what came."""
    words = [sys.executable, "-m", "serving.cli.main", "dashboard", "--no-browser", "--state", str(state)]
    link = urlsplit(subprocess.run(words, check=True, capture_output=True, text=True).stdout.strip())
    connection = http.client.HTTPConnection(link.hostname or "", link.port or 0)
    connection.request("GET", f"{link.path}?{link.query}")
    answer = connection.getresponse()
    cookie = (answer.getheader("set-cookie") or "").partition(";")[0]
    answer.read()
    connection.request("GET", "/dashboard/", headers={"Cookie": cookie})
    connection.getresponse().read()
    connection.request("GET", "/dashboard/live?q=", headers={"Cookie": cookie})
    stream, sizes, ending = connection.getresponse(), list[int](), threading.Event()

    def read() -> None:
        with contextlib.suppress(OSError, ValueError, AttributeError):  # the connection was closed meanwhile
            while not ending.is_set() and (line := stream.readline()):
                sizes.append(len(line))

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    try:
        yield sizes
    finally:
        ending.set()
        connection.close()


def _ticks(pid: int) -> int:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


if __name__ == "__main__":
    sys.exit(main())
