"""Figures of the model server with their aims. The aims are relative to a peer in the same run."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from loadtests.bench.figure import Figure
from loadtests.bench.servers import artifacts, contest, starts, subjects
from loadtests.bench.servers.artifacts import Iris
from loadtests.bench.servers.contest import Plan, Results
from loadtests.bench.servers.load import Load, as_binary, as_grpc, as_json
from loadtests.bench.servers.pressure import Generator, h2load, wrk
from loadtests.bench.servers.subjects import (
    BATCHED_LABEL,
    ECHO_LABEL,
    KNODEL_LABEL,
    KSERVE_LABEL,
    MLSERVER_LABEL,
    SILENT_LABEL,
    Subject,
)

SKLEARN_RATE, SKLEARN_P50 = 4.0, 0.4  # to KServe
ONNX_RATE = 8.0  # to KServe
GRPC_RATE = 2.0  # to KServe
IMAGE_RATE = 1.3  # as JSON, to MLServer
BINARY_RATE = 50.0  # as binary data, to KServe, which makes numbers of it as of JSON
BATCHED_RATE = 3.0  # to the same server without batches
MEMORY = 1.0  # to KServe
LONGER = 2  # times as long as other loads: some servers answer ten images a second


def plan(rounds: int, seconds: float) -> Plan:
    """Return the plan with the first and the last core of this process. Raises SystemExit without two cores or without
    a generator.
    """
    wrk()
    h2load()
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        raise SystemExit("this benchmark needs two cores: one for the server, one for the load generator")
    return Plan(rounds, seconds, cores[0], Generator(cores[-1]))


def figures(how: Plan, folder: Path) -> Iterator[Figure]:
    """Yield all figures."""
    flowers = artifacts.iris(folder)
    yield from sklearn(flowers, how, folder)
    yield from onnx(flowers, how, folder)
    yield from images(how, folder)
    yield from batches(how, folder)
    yield from starting(flowers, how, folder)


def sklearn(flowers: Iris, how: Plan, folder: Path) -> list[Figure]:
    """Yield the figures of a scikit-learn classifier, whose own work is most of a request."""
    title = "sklearn"
    load = as_json(title, flowers.flower, flowers.label)
    pickled = artifacts.train(subjects.KSERVE.python(), folder / "kserve")
    entrants = [
        subjects.knodel(flowers.skops),
        subjects.kserve(pickled),
        subjects.kserve(pickled, silent=True),
        subjects.mlserver(artifacts.train(subjects.MLSERVER.python(), folder / "mlserver")),
        subjects.echo(),
    ]
    found = contest.hold(entrants, [load], how, folder)
    return [
        *_values(found, [load], entrants),
        _times(found, title, KSERVE_LABEL, SKLEARN_RATE),
        _times(found, title, SILENT_LABEL),
        _times(found, title, MLSERVER_LABEL),
        _times(found, title, ECHO_LABEL),
        _alone(found, title, KSERVE_LABEL, SKLEARN_P50),
        _memory(found, title),
    ]


def onnx(flowers: Iris, how: Plan, folder: Path) -> list[Figure]:
    """Yield the figures of the same classifier as ONNX, in which the server is most of a request."""
    title, call = "ONNX", "ONNX by gRPC"
    loads = [
        as_json(title, flowers.flower, flowers.probabilities),
        as_grpc(call, flowers.flower, flowers.probabilities),
    ]
    entrants = [
        subjects.knodel(flowers.onnx, grpc=True),
        subjects.kserve(flowers.onnx),
        subjects.kserve(flowers.onnx, silent=True),
        subjects.mlserver(flowers.onnx),
        subjects.echo(),
    ]
    found = contest.hold(entrants, loads, how, folder)
    return [
        *_values(found, loads, entrants),
        _times(found, title, KSERVE_LABEL, ONNX_RATE),
        _times(found, title, SILENT_LABEL),
        _times(found, title, MLSERVER_LABEL),
        _times(found, title, ECHO_LABEL),
        _times(found, call, KSERVE_LABEL, GRPC_RATE),
        _times(found, call, MLSERVER_LABEL),
        _memory(found, title),
    ]


def images(how: Plan, folder: Path) -> list[Figure]:
    """Yield the figures of an image, in which decoding is most of a request."""
    text, binary = "image as JSON", "image as bytes"
    tensor, means = artifacts.image()
    loads = [as_json(text, tensor, means), as_binary(binary, tensor, means)]
    model = artifacts.image_model(folder)
    entrants = [subjects.knodel(model), subjects.kserve(model), subjects.mlserver(model)]
    found = contest.hold(entrants, loads, replace(how, seconds=how.seconds * LONGER), folder)
    to_text = found.ratio(KNODEL_LABEL, contest.rate(binary), KSERVE_LABEL, contest.rate(text))
    return [
        *_values(found, loads, entrants),
        _times(found, text, MLSERVER_LABEL, IMAGE_RATE),
        _times(found, text, KSERVE_LABEL),
        _times(found, binary, KSERVE_LABEL, BINARY_RATE),
        Figure(f"  {binary}: {KNODEL_LABEL} to {KSERVE_LABEL}'s JSON, rate", to_text, "x"),
        _memory(found, text),
    ]


def batches(how: Plan, folder: Path) -> list[Figure]:
    """Yield the figures of a model that reads many weights, which 16 callers can share."""
    title = "weights"
    model, request, answer = artifacts.perceptron(folder)
    load = as_json(title, request, answer)
    entrants = [subjects.knodel(model), subjects.knodel(model, batch=contest.CONNECTIONS)]
    found = contest.hold(entrants, [load], how, folder)
    rate, alone = contest.rate(title), contest.alone(title)
    gain = found.ratio(BATCHED_LABEL, rate, KNODEL_LABEL, rate)
    cost = found.ratio(BATCHED_LABEL, alone, KNODEL_LABEL, alone)
    return [
        *_values(found, [load], entrants),
        Figure(f"  {title}: in batches to one by one, rate", gain, "x", BATCHED_RATE, least=True),
        Figure(f"  {title}: in batches to one by one, p50 of one connection", cost, "x"),
    ]


def starting(flowers: Iris, how: Plan, folder: Path) -> list[Figure]:
    """Yield the figures of starts with the ONNX classifier."""
    load = as_json("start", flowers.flower, flowers.probabilities)
    makers = (subjects.knodel, subjects.bare, subjects.kserve, subjects.mlserver)
    return starts.figures(flowers.onnx, load, [make(flowers.onnx) for make in makers], how, folder)


def _values(found: Results, loads: Sequence[Load], entrants: Sequence[Subject]) -> Iterator[Figure]:
    for load in loads:
        for one in entrants:
            if load.kind in one.speaks:
                what = f"{load.label}: {one.label}"
                yield Figure(f"{what}, 16 connections", found.median(one.label, contest.rate(load.label)), "1/s")
                yield Figure(f"{what}, 1 connection, p50", found.median(one.label, contest.alone(load.label)), "ms")
    for one in entrants:
        yield Figure(f"{loads[0].label}: {one.label}, PSS", found.median(one.label, contest.memory), "MB")


def _times(found: Results, load: str, peer: str, aim: float | None = None) -> Figure:
    ratio = found.ratio(KNODEL_LABEL, contest.rate(load), peer, contest.rate(load))
    return Figure(f"  {load}: {KNODEL_LABEL} to {peer}, rate", ratio, "x", aim, least=True)


def _alone(found: Results, load: str, peer: str, aim: float) -> Figure:
    ratio = found.ratio(KNODEL_LABEL, contest.alone(load), peer, contest.alone(load))
    return Figure(f"  {load}: {KNODEL_LABEL} to {peer}, p50 of one connection", ratio, "x", aim)


def _memory(found: Results, load: str) -> Figure:
    ratio = found.ratio(KNODEL_LABEL, contest.memory, KSERVE_LABEL, contest.memory)
    return Figure(f"  {load}: {KNODEL_LABEL} to {KSERVE_LABEL}, PSS", ratio, "x", MEMORY)
