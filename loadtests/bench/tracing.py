"""The cost of traces and metrics by OTLP: the same model server without a collector and with one, by turns.

The load is the worst case: a model that doubles a number, so that the server itself is all the work. The collector
receives and drops everything in a process on the core of the load generator.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from types import MappingProxyType
from typing import Final

from loadtests.bench.figure import Figure
from loadtests.bench.servers.load import Load, Tensor, as_json
from loadtests.bench.servers.pressure import Generator
from loadtests.bench.servers.server import HOST, Launch, Ports, Server
from loadtests.bench.servers.subjects import knodel_arguments, knodel_environment
from tests.serving.modelserver.collector import collecting
from tests.support import models
from tests.support.ports import free_ports

ROUNDS: Final = 7
SECONDS: Final = 2.0  # of one load
CONNECTIONS: Final = 16
OF_SERVER, OF_LOAD = 0, 1
"""Cores."""
SAMPLED: Final = {"OTEL_TRACES_SAMPLER": "parentbased_traceidratio"}
OFF: Final = "no collector"
WAYS: Final[Mapping[str, Mapping[str, str]]] = MappingProxyType(
    {
        OFF: {},
        "metrics only": {"OTEL_TRACES_EXPORTER": "none"},
        "1 % of requests traced": {
            "OTEL_TRACES_SAMPLER": "parentbased_traceidratio",
            "OTEL_TRACES_SAMPLER_ARG": "0.01",
        },
        "every request traced": SAMPLED | {"OTEL_TRACES_SAMPLER_ARG": "1"},
    }
)
"""Variables of the server by the name of its figure."""


def tracing(folder: Path) -> Iterator[Figure]:
    """Yield requests a second with a collector, in percent of those without one."""
    model = models.write(folder, "double")
    load = as_json("double", Tensor("x", (1,), (1.0,), b"\x00\x00\x80\x3f"), (2.0,))
    with ExitStack() as servers:
        collector = servers.enter_context(collecting())
        known = {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url}
        ports = {
            way: _started(servers, folder, model, load, {**known, **given} if given else {})
            for way, given in WAYS.items()
        }
        rates: dict[str, list[float]] = {way: [] for way in WAYS}
        generator = Generator(OF_LOAD)
        for _ in range(ROUNDS):
            for way, place in ports.items():
                rates[way].append(generator.press(load, place, CONNECTIONS, SECONDS).rate)
            collector.posts.clear()
    for way in WAYS:
        if way != OFF:
            left = statistics.median(with_it / without for with_it, without in zip(rates[way], rates[OFF], strict=True))
            yield Figure(f"{way}, requests/s in parts of those without", 100 * left, "%", None)


def _started(servers: ExitStack, folder: Path, model: Path, load: Load, environ: Mapping[str, str]) -> Ports:
    """Start a server until the end of the stack, and return its ports when it answers."""
    ports = Ports(*free_ports(3))
    launch = Launch([sys.executable, *knodel_arguments(model)], {**knodel_environment(ports), "HOST": HOST, **environ})
    server = Server("knodel", launch, ports.http, folder / f"{ports.http}.log", OF_SERVER)
    servers.enter_context(server)
    load.check(server.first_answer(load)[1])
    return ports
