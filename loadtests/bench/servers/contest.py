"""Alternating measurement of servers: each round starts every server alone, applies all loads, and stops it."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from loadtests.bench.servers.load import Kind, Load
from loadtests.bench.servers.pressure import Generator, Pressure
from loadtests.bench.servers.server import Ports, Server
from loadtests.bench.servers.subjects import Subject
from tests.support.ports import free_ports

CONNECTIONS = 16
WARM_UP = 1.0  # s
ALONE_SHARE = 0.5  # share of the time at 16 connections that is spent at one
MEGABYTE = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Plan:
    """The plan: `seconds` at 16 connections, and the cores of server and generator."""

    rounds: int
    seconds: float
    server_core: int
    generator: Generator


@dataclass(frozen=True, slots=True)
class Measured:
    """The results of one load in one round: with 16 connections, and with one."""

    crowd: Pressure
    alone: Pressure


@dataclass(frozen=True, slots=True)
class Turn:
    """The results of one server in one round: by load, its PSS in MB, and seconds from exec to the first 200."""

    loads: Mapping[str, Measured]
    memory: float
    start: float


@dataclass(frozen=True, slots=True)
class Results:
    """Rounds in order, by subject."""

    turns: Mapping[str, Sequence[Turn]]

    def median(self, subject: str, value: Callable[[Turn], float]) -> float:
        """Return the median of all rounds."""
        return statistics.median(map(value, self.turns[subject]))

    def ratio(self, above: str, over: Callable[[Turn], float], below: str, under: Callable[[Turn], float]) -> float:
        """Return the median of the rounds' ratios. A disturbance of a round affects both sides."""
        pairs = zip(self.turns[above], self.turns[below], strict=True)
        return statistics.median(over(upper) / under(lower) for upper, lower in pairs)


def rate(load: str) -> Callable[[Turn], float]:
    """Responses per second with 16 connections."""
    return lambda turn: turn.loads[load].crowd.rate


def alone(load: str) -> Callable[[Turn], float]:
    """p50 latency with one connection in ms."""
    return lambda turn: turn.loads[load].alone.p50


def memory(turn: Turn) -> float:
    """PSS in MB."""
    return turn.memory


def hold(subjects: Sequence[Subject], loads: Sequence[Load], plan: Plan, folder: Path) -> Results:
    """Run all rounds. Raises SystemExit if a server fails or gives a wrong response."""
    turns: dict[str, list[Turn]] = {subject.label: [] for subject in subjects}
    for _ in range(plan.rounds):
        for subject in subjects:
            turns[subject.label].append(_turn(subject, loads, plan, folder))
    return Results(turns)


def _turn(subject: Subject, loads: Sequence[Load], plan: Plan, folder: Path) -> Turn:
    ports = Ports(*free_ports(3))
    taken = [load for load in loads if load.kind in subject.speaks]
    with start(subject, ports, folder, plan.server_core) as server:
        seconds, _ = server.first_answer(next(load for load in taken if load.kind is not Kind.GRPC))
        measured = {load.label: _measure(subject, server, load, ports, plan) for load in taken}
        return Turn(measured, server.memory() / MEGABYTE, seconds)


def start(subject: Subject, ports: Ports, folder: Path, core: int) -> Server:
    """Start it."""
    log = folder / f"{subject.label.replace(' ', '-')}.log"
    return Server(subject.label, subject.launch(ports, folder), ports.http, log, core)


def _measure(subject: Subject, server: Server, load: Load, ports: Ports, plan: Plan) -> Measured:
    if subject.answers and load.kind is not Kind.GRPC:  # the gRPC client checks responses itself
        load.check(server.first_answer(load)[1])
    press = plan.generator.press
    press(load, ports, 1, WARM_UP)
    crowd = press(load, ports, CONNECTIONS, plan.seconds)
    return Measured(crowd, press(load, ports, 1, plan.seconds * ALONE_SHARE))
