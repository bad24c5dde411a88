"""`knodel dev` with a Python class, from a broken start to the end of its processes."""

from __future__ import annotations

import http.client
import json
import signal
import socket
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from tests.serving.cli.conftest import Knodel, check
from tests.support.dev import WITHIN, Dev
from tests.testbed.waiting import becomes

MODEL = """\
import pathlib
import subprocess
import time

HELPER = subprocess.Popen(["sleep", "600"])


class Model:
    inputs = [{{"name": "x", "datatype": "INT64", "shape": [1]}}]
    outputs = [{{"name": "y", "datatype": "INT64", "shape": [1]}}]
    thread_safe = True

    def predict(self, x):
        print("predict", x[0], "in version", {number})
        while x[0] > 1 and not pathlib.Path({gate!r}).exists():
            time.sleep(0.005)
        return x * 0 + {number}
"""


def test_the_last_good_version_serves_while_the_code_is_broken_and_requests_are_never_dropped(tmp_path: Path) -> None:
    folder, gate = tmp_path / "m", tmp_path / "gate"
    folder.mkdir()

    def save(number: int) -> None:
        later = folder / "later"
        later.write_text(MODEL.format(number=number, gate=str(gate)))
        later.replace(folder / "model.py")  # as editors do

    (folder / "model.py").write_text("import json\n\nclass Model:\n    x = json.dump(")
    with Dev(folder) as dev, ThreadPoolExecutor() as threads, ExitStack() as opened:
        dev.wait_for("version 1 cannot be loaded; requests get 503")
        dev.wait_for(f'File "{folder}/model.py", line 4')
        dev.wait_for("SyntaxError: '(' was never closed")
        status, body = dev.post({"x": [1]})
        assert status == 503 and "(model.py, line 4)" in body["error"]

        save(2)
        dev.wait_for("model.py changed: loading version 2")
        dev.wait_for("version 2 serves on", f"http://127.0.0.1:{dev.port}/v2/models/m")
        dev.wait_for("curl ", f":{dev.port}/v2/models/m/infer", '"name": "x"')
        dev.wait_for("import knodel; knodel.Client(", f":{dev.port}').predict('m', {{'x': [0]}})")
        dev.wait_for("answers 200 in")
        kept = opened.enter_context(closing(http.client.HTTPConnection("127.0.0.1", dev.port, timeout=WITHIN)))
        assert version_over(kept) == "m-00002"

        pending = threads.submit(dev.post, {"x": [7]})
        dev.wait_for("predict 7 in version 2")
        save(3)
        dev.wait_for("version 3 serves")
        assert version_over(kept) == "m-00003"  # the same connection, another version
        gate.touch()
        assert pending.result(WITHIN)[1]["y"] == 2

        (folder / "model.py").write_text("raise RuntimeError('not yet')")
        dev.wait_for("version 4 cannot be loaded; version 3 still serves")
        dev.wait_for("RuntimeError: not yet")
        assert (version_over(kept), dev.post({"x": [1]})[1]["y"]) == ("m-00003", 3)

        helpers = dev.helpers()
        assert helpers
        dev.process.send_signal(signal.SIGKILL)
        dev.process.wait(WITHIN)
        assert becomes(lambda: not dev.servers() and not dev.helpers(), WITHIN)


def version_over(connection: http.client.HTTPConnection) -> str:
    """Return the version that answers on this connection."""
    connection.request("GET", "/namespaces/default/models/m/v2/models/m")
    answer = connection.getresponse()
    assert answer.status == 200
    return str(json.load(answer)["versions"][0])


def test_a_page_of_another_machine_gets_nothing_even_while_nothing_is_served(tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text("secret")
    with Dev(tmp_path) as dev:
        dev.wait_for("cannot be loaded")
        with closing(http.client.HTTPConnection("127.0.0.1", dev.port, timeout=WITHIN)) as connection:
            connection.request("GET", "/", headers={"Host": "evil.example"})
            answer = connection.getresponse()
            assert (answer.status, b"secret" in answer.read()) == (403, False)


def test_a_port_in_use_is_one_line_with_the_option_that_changes_it(knodel: Knodel, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = str(other.getsockname()[1])
        done = knodel("dev", str(tmp_path), "--port", port)

    check(done, 1, [f"cannot listen on 127.0.0.1:{port}", "choose another port with --port"])


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("absent",), ["absent does not exist: give"]),
        (("hf://acme/iris",), ["hf://acme/iris cannot be watched: give a local file or folder"]),
        ((".", "--format", "h5"), ["unknown modelFormat 'h5': use one of onnx"]),
        ((".", "--name", "No Name"), ["--name 'No Name' is not a name"]),
        ((".", "--memory-limit", "4 GB"), ["--memory-limit 4 GB"]),
        ((".", "--max-batch-latency", "1"), ["--max-batch-latency needs --max-batch-size"]),
        ((".", "--allowed-host", "http://x"), ["--allowed-host 'http://x' is not a host name"]),
    ],
)
def test_wrong_options_are_refused(
    knodel: Knodel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], words: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)

    check(knodel("dev", *arguments), 2, words)
