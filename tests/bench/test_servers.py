"""Test the comparison with other model servers: requests, results, and the start and end of a server."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import onnxruntime
import pytest

from loadtests.bench.processes import members_of
from loadtests.bench.servers import artifacts, subjects
from loadtests.bench.servers.contest import Measured, Results, Turn, alone, rate, start
from loadtests.bench.servers.environments import cache
from loadtests.bench.servers.load import Load, Tensor, as_binary, as_json
from loadtests.bench.servers.pressure import Generator, Pressure, parse
from loadtests.bench.servers.server import Launch, Ports, Server
from loadtests.bench.servers.starts import by_fork
from serving.engines.base.engine import Signature, TensorSpec
from serving.modelserver.base.limits import ServerLimits
from serving.modelserver.codec.protocol_v2 import V2Codec
from tests.support.ports import free_port, free_ports

CORE = min(os.sched_getaffinity(0))
ROWS, INTERCEPTS = [[1.0, 2.0, -1.0, 0.5], [0.0, -2.0, 1.0, 1.0], [0.5, 0.5, 0.5, 0.5]], [0.1, -0.2, 0.0]
GOOD = (
    '{"requests": 300, "microseconds": 2000000, "p50": 1500.0, "p95": 3000.0, "p99": 4000.0, "refused": 0, "broken": 0}'
)


def turn(requests: float, milliseconds: float) -> Turn:
    return Turn({"a": Measured(Pressure(requests, 1.0, 2.0, 2.0), Pressure(1.0, milliseconds, 1.0, 1.0))}, 100.0, 1.0)


def test_ratios_are_taken_within_a_round_so_that_a_slow_round_slows_both_sides() -> None:
    results = Results(
        {"ours": [turn(100, 1), turn(10, 10), turn(120, 2)], "theirs": [turn(50, 4), turn(5, 40), turn(40, 8)]}
    )

    assert results.ratio("ours", rate("a"), "theirs", rate("a")) == 2
    assert results.ratio("ours", alone("a"), "theirs", alone("a")) == 0.25
    assert results.median("theirs", rate("a")) == 40


def test_the_output_of_a_generator_is_parsed() -> None:
    assert parse(f"Running 2s test\nBENCH {GOOD}\n", "x") == Pressure(150, 1.5, 3, 4)


@pytest.mark.parametrize("fault", ["refused", "broken"])
def test_results_with_failed_requests_are_rejected(fault: str) -> None:
    with pytest.raises(SystemExit, match="image: some requests failed"):
        parse("BENCH " + GOOD.replace(f'"{fault}": 0', f'"{fault}": 1'), "image")


def test_a_generator_without_results_is_an_error() -> None:
    with pytest.raises(SystemExit, match="printed no results"):
        parse("Running 2s test\n", "image")


def test_text_and_bytes_carry_the_same_image() -> None:
    tensor, means = artifacts.image()
    spec = TensorSpec(tensor.name, "FP32", (-1, *tensor.shape[1:]))
    codec = V2Codec("bench", "1", Signature("", (spec,), (TensorSpec("means", "FP32", None),)), ServerLimits())
    text, binary = as_json("t", tensor, means), as_binary("b", tensor, means)

    one = codec.decode(text.body).inputs[tensor.name]
    other = codec.decode(binary.body, int(binary.headers["Inference-Header-Content-Length"])).inputs[tensor.name]

    assert one.shape == (1, 3, 224, 224)
    assert (one == other).all()


def test_the_models_return_the_expected_outputs(tmp_path: Path) -> None:
    tensor, means = artifacts.image()
    session = onnxruntime.InferenceSession(artifacts.image_model(tmp_path))
    (found,) = session.run(None, {"image": _array(tensor)})
    as_json("image", tensor, means).compare(found.ravel().tolist())

    model, row, numbers = artifacts.perceptron(tmp_path, width=32)
    (found,) = onnxruntime.InferenceSession(model).run(None, {"x": _array(row)})
    assert any(numbers)
    as_json("weights", row, numbers).compare(found.ravel().tolist())

    flower = Tensor("input-0", (1, 4), [1.0, 2.0, 3.0, 4.0], b"")
    classifier = onnxruntime.InferenceSession(artifacts.linear(ROWS, INTERCEPTS))
    (chances,) = classifier.run(None, {"input-0": _array(flower)})
    scores = [sum(a * b for a, b in zip(flower.numbers, row, strict=True)) for row in ROWS]
    expected = artifacts.softmax([score + bias for score, bias in zip(scores, INTERCEPTS, strict=True)])
    as_json("flower", flower, expected).compare(chances.ravel().tolist())


@pytest.mark.parametrize("data", ["[0.5, 0.5]", "[[0.5, 0.25]]", "[0.5, 0.5, 0.0]"])
def test_a_wrong_output_is_rejected(data: str) -> None:
    with pytest.raises(SystemExit, match="flower: output"):
        _load("flower", 0.5, 0.25, 0.25).check(f'{{"outputs": [{{"data": {data}}}]}}'.encode())


def test_nested_outputs_are_flattened() -> None:
    _load("flower", 0.5, 0.25).check(b'{"outputs": [{"data": [[0.5], [0.25]]}]}')


def test_a_server_is_started_alone_on_its_core_and_leaves_nothing(tmp_path: Path) -> None:
    ports = Ports(*free_ports(3))
    load = _load("any", 1.0)

    with start(subjects.echo(), ports, tmp_path, CORE) as server:
        seconds, body = server.first_answer(load)
        (pid,) = members_of(server.pid)
        cores, memory = os.sched_getaffinity(pid), server.memory()

    assert body == load.body
    assert 0 < seconds < 60
    assert cores == {CORE}
    assert memory > 1_000_000
    assert not list(members_of(pid))


def test_the_error_of_a_failed_server_contains_its_log(tmp_path: Path) -> None:
    broken = Launch([sys.executable, "-c", "raise ValueError('no such model')"])
    with (
        Server("theirs", broken, free_port(), tmp_path / "log", CORE) as server,
        pytest.raises(SystemExit, match=r"theirs gave no 200(.|\n)*no such model"),
    ):
        server.first_answer(_load("any", 1.0))


def test_a_forked_server_serves_its_model(tmp_path: Path) -> None:
    path = tmp_path / "iris.onnx"
    path.write_bytes(artifacts.linear(ROWS, INTERCEPTS))
    flower = Tensor("input-0", (1, 4), [1.0, 2.0, 3.0, 4.0], b"")

    took = by_fork(path, as_json("start", flower, []), 2, CORE, tmp_path)

    assert len(took) == 2
    assert all(0 < seconds < 60 for seconds in took)


@pytest.mark.skipif(shutil.which("wrk") is None, reason="wrk is not installed")
def test_wrk_measures_a_server(tmp_path: Path) -> None:
    ports = Ports(*free_ports(3))
    with start(subjects.echo(), ports, tmp_path, CORE) as server:
        server.first_answer(_load("any", 1.0))
        found = Generator(max(os.sched_getaffinity(0))).press(_load("any", 1.0), ports, connections=2, seconds=1)

    assert found.rate > 100
    assert 0 < found.p50 <= found.p99


def test_environments_of_peers_are_in_the_users_cache() -> None:
    assert cache({"XDG_CACHE_HOME": "/c"}) == Path("/c/knodel/peers")
    assert cache({}) == Path.home() / ".cache" / "knodel" / "peers"


def _load(label: str, *answer: float) -> Load:
    return as_json(label, Tensor("x", (1,), [1.0], b""), answer)


def _array(tensor: Tensor) -> object:
    import numpy as np

    return np.array(tensor.numbers, np.float32).reshape(tensor.shape)
