"""The end of a process whose caller has not read all of its answer yet."""

from __future__ import annotations

import json
import socket
import threading
from contextlib import ExitStack
from pathlib import Path

import pytest

from serving.modelserver.base.limits import MEBIBYTE
from tests.long.served import ENDS_WITHIN, HOST, is_ready, served
from tests.serving.modelserver.client import request, tensor
from tests.support import models
from tests.testbed.waiting import becomes

NUMBERS = 10 * MEBIBYTE
SIZE = 4 * NUMBERS
STALL = 1.0  # s in which the caller takes nothing; a stop that nobody holds up takes half of it


def wide() -> bytes:
    """FP32 x [1] → y [NUMBERS], each of them x."""
    return models.model(
        [models.node("Expand", ["x", "sizes"], ["y"])],
        [models.value("x", models.FLOAT, [1])],
        [models.value("y", models.FLOAT, [NUMBERS])],
        [models.integers("sizes", [NUMBERS])],
    )


@pytest.mark.fault("M5")
def test_a_stop_loses_nothing_of_an_answer_that_is_on_its_way(tmp_path: Path) -> None:
    (tmp_path / "wide.onnx").write_bytes(wide())
    asked = {"inputs": [tensor([1.0])], "parameters": {"binary_data_output": True}}
    with ExitStack() as stack, socket.socket() as caller:
        running = stack.enter_context(served(tmp_path / "log", str(tmp_path / "wide.onnx"), "--name", "wide"))
        caller.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, MEBIBYTE)
        caller.connect((HOST, running.port))
        caller.sendall(request("POST", "/v2/models/wide/infer", json.dumps(asked).encode()))
        taken = len(caller.recv(1))
        stopping = threading.Thread(target=stack.close)  # SIGTERM, and the exit code is 0
        stopping.start()
        assert becomes(lambda: not is_ready(running.port), ENDS_WITHIN)
        assert not becomes(lambda: not stopping.is_alive(), STALL), "it did not wait for its caller"
        while piece := caller.recv(MEBIBYTE):
            taken += len(piece)
        stopping.join()
    assert taken > SIZE
