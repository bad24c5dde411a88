"""Through the gateway and past it, in turn: what a thousand requests a second of 100 ms each pay for it.

Sent by wrk, which costs a tenth of what locust does: with both of them and the platform on a few cores, locust would be
what is measured. Each connection sends its next request when it has its answer, so that the rate is that of
`connections` handlers that are always busy.
"""

from __future__ import annotations

import json
import os
import statistics

from loadtests.bench.figure import Figure
from loadtests.bench.servers.load import JSON_TYPE, Kind, Load
from loadtests.bench.servers.pressure import Generator, Pressure
from loadtests.bench.servers.server import Ports
from loadtests.load.scene import Scene
from loadtests.load.stage import BODY, HANDLER, Stage

RATE = 1000.0
"""Requests a second (Knative's `rollout-probe` and the last step but one of its `load-test`)."""
ROUNDS = 3
SETTLE = 2.0  # s of load before each way that do not count
SLOWER = 1.1
"""p95 through the gateway, times that past it, at most."""
ROOM = 1.1
"""Times the connections that the rate would need if answers took 100 ms and nothing else."""


def gateway(stage: Stage, seconds: float, rate: float = RATE) -> Scene:
    """Rounds of `seconds` each way; the medians of the rounds."""
    stage.deploy("bench")  # the name that wrk asks for
    generator = Generator(max(os.sched_getaffinity(0)))
    headers = {"Host": "bench.default.localhost", "Content-Type": JSON_TYPE}
    load, connections = Load("gateway", Kind.JSON, BODY.encode(), headers, (2.0,)), round(rate * HANDLER * ROOM)
    ways: dict[str, list[Pressure]] = {"past": [], "through": []}
    ports = {"past": _port(stage), "through": stage.platform.port}
    for _ in range(ROUNDS):
        for way, port in ports.items():
            generator.press(load, Ports(port, 0, 0), connections, SETTLE)
            ways[way].append(generator.press(load, Ports(port, 0, 0), connections, seconds))
    stage.delete("bench")
    return Scene("gateway", _story(connections, rate), _figures(ways, rate))


def _figures(ways: dict[str, list[Pressure]], rate: float) -> list[Figure]:
    ratio = statistics.median(
        through.p95 / past.p95 for past, through in zip(ways["past"], ways["through"], strict=True)
    )
    of = {way: (_median(found, "rate"), _median(found, "p95")) for way, found in ways.items()}
    reached = min(rate, 0.95 * of["past"][0])  # what the machine allows is what it does without a gateway
    return [
        Figure("answered a second, past the gateway", of["past"][0], "1/s"),
        Figure("answered a second, through the gateway", of["through"][0], "1/s", reached, least=True),
        Figure("an answer past the gateway, p95", of["past"][1], "ms"),
        Figure("an answer through the gateway, p95", of["through"][1], "ms"),
        Figure("  times as much", ratio, "x", SLOWER),
    ]


def _median(found: list[Pressure], what: str) -> float:
    return float(statistics.median(getattr(one, what) for one in found))


def _port(stage: Stage) -> int:
    (pod,) = stage.platform.pods("bench")
    return int(json.loads(pod["metadata"]["annotations"]["embedded.knodel.dev/ports"])["8080"])


def _story(connections: int, rate: float) -> str:
    return (
        f"A handler of {1000 * HANDLER:g} ms on one replica, asked by wrk over {connections} connections, in turn past "
        f"the gateway and through it: {rate:g} requests a second, or what the replica alone does on this machine."
    )
