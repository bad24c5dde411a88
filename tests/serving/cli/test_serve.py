"""Test `knodel serve`: invalid input is refused before the server starts, and only a running server is announced."""

from __future__ import annotations

import http.client
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.serving.cli.conftest import Knodel, check
from tests.support.models import double
from tests.support.ports import free_port, free_ports

HOST = "127.0.0.1"
ENDS_WITHIN = 20.0  # s
KNODEL = (sys.executable, "-m", "serving.cli.main", "serve")


@pytest.fixture
def model(tmp_path: Path) -> str:
    """Return the path of a model that can be served."""
    path = tmp_path / "double.onnx"
    path.write_bytes(double())
    return str(path)


@pytest.fixture
def taken() -> Iterator[str]:
    """Provide a port that is in use."""
    with socket.create_server((HOST, 0)) as other:
        yield str(other.getsockname()[1])


@pytest.mark.parametrize("option", ["--port", "--management-port"])
def test_a_taken_port_is_one_line_with_the_option_that_changes_it(
    knodel: Knodel, model: str, taken: str, option: str
) -> None:
    ports = {"--port": str(free_port()), option: taken}
    done = knodel("serve", model, *(word for pair in ports.items() for word in pair))

    check(done, 1, [f"cannot listen on {HOST}:{taken}", f"choose another port with {option}"])


def test_a_taken_port_of_grpc_is_not_announced(model: str, taken: str) -> None:
    ports = ("--port", str(free_port()), "--grpc-port", taken)
    done = subprocess.run([*KNODEL, model, *ports], capture_output=True, text=True, timeout=ENDS_WITHIN)

    assert done.returncode == 1
    own = [line for line in done.stderr.splitlines() if line.startswith(("knodel:", "serving "))]
    assert len(own) == 1 and f"cannot listen on {HOST}:{taken} for gRPC" in own[0]
    assert own[0].endswith("choose another port with --grpc-port")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--host", "192.0.2.1"), ["'192.0.2.1' is not an address of this machine", "set --host to"]),
        (("--host", "2001:db8::1"), ["'2001:db8::1' is not an address of this machine", "set --host to"]),
        (("--host", "a..b"), ["'a..b' is not an address of this machine", "set --host to"]),
        (("--host", ""), ["--host is empty"]),
        (("--allowed-host", "http://x"), ["--allowed-host 'http://x' is not a host name: write NAME"]),
        (("--grpc-port", "9000", "--port", "9000"), ["--grpc-port 9000: --port already has this port"]),
        (("--cpu", "0"), ["--cpu"]),
        (("--adapter", "a=ftp://h/a"), ["--adapter a=ftp://h/a: must be a URI"]),
        (("--adapter", "a"), ["--adapter: adapter 'a' has no URI"]),
        (("--engine-arg", "seed"), ["--engine-arg: engine argument 'seed' has no value"]),
        (("--context-length", "16", "--models"), ["--context-length cannot be used with --models"]),
        (("--load-timeout", "nan", "--models"), ["argument --load-timeout: nan is not a positive number"]),
    ],
)
def test_wrong_options_are_refused(knodel: Knodel, model: str, options: tuple[str, ...], words: list[str]) -> None:
    given = options if "--port" in options else (*options, "--port", str(free_port()))

    check(knodel("serve", model, *given), 2, words)


@pytest.mark.parametrize("uri", ["hf://../../x", "hf://org/name@../..", "ftp://host/m", "HTTP:x", "s3://models/../x"])
def test_a_uri_that_no_model_can_have_is_refused(knodel: Knodel, uri: str) -> None:
    check(knodel("serve", uri, "--port", str(free_port())), 2, [uri, "must "])


def test_a_model_that_cannot_be_loaded_is_not_announced(tmp_path: Path) -> None:
    path = tmp_path / "broken.onnx"
    path.write_bytes(b"no model")
    arguments = [str(path), "--port", str(free_port())]
    done = subprocess.run([*KNODEL, *arguments], capture_output=True, text=True, timeout=ENDS_WITHIN)

    assert done.returncode == 1
    own = [line for line in done.stderr.splitlines() if line.startswith(("knodel:", "serving "))]
    assert len(own) == 1 and own[0].startswith("knodel: ")


def test_the_announced_address_answers_at_once(model: str) -> None:
    port, grpc_port = free_ports(2)
    arguments = [model, "--port", str(port), "--grpc-port", str(grpc_port), "--host", "0.0.0.0"]
    process = subprocess.Popen([*KNODEL, *arguments], stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        announced = next(line.strip() for line in process.stderr if line.startswith("serving "))
        connection = http.client.HTTPConnection(HOST, port, timeout=ENDS_WITHIN)
        connection.request("GET", "/v2/models/double/ready")
        assert connection.getresponse().status == http.client.OK
        connection.close()
        assert announced == f"serving double on http://{HOST}:{port}/v2/models/double, gRPC on {HOST}:{grpc_port}"
        process.send_signal(signal.SIGINT)
        assert process.wait(ENDS_WITHIN) == 0
    finally:
        process.kill()
        process.communicate()
