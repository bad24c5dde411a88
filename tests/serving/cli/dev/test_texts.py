"""The lines of `knodel dev`."""

from __future__ import annotations

import ast
import json
import shlex

import pytest

from serving.cli.dev import texts
from serving.cli.dev.messages import Failure
from serving.cli.dev.reload import Ended, Gone, LoadFailed, Reload

BROKEN = Failure("broken")
LOADS_2 = Reload(serving=1, loading=2, last=2)
SERVER = "http://127.0.0.1:8080"
REQUEST = json.dumps({"inputs": [{"name": "it's", "datatype": "BOOL", "shape": [1], "data": [True]}]})
LONG = json.dumps({"inputs": [{"name": "x", "datatype": "FP32", "shape": [400], "data": [0.0] * 400}]})


@pytest.mark.parametrize(("request_text", "sent"), [(REQUEST, REQUEST), (LONG, "@/tmp/example.json")])
def test_the_example_is_a_command_and_a_line_of_python(request_text: str, sent: str) -> None:
    curl, python = texts.example_lines(SERVER, "m", request_text, "/tmp/example.json")
    url, header = f"{SERVER}/v2/models/m/infer", "Content-Type: application/json"

    assert shlex.split(curl) == ["curl", url, "-H", header, "-d", sent]
    ast.parse(python)
    assert len(curl) < 2 * texts.MAX_INLINE and len(python) < 2 * texts.MAX_INLINE


@pytest.mark.parametrize(
    ("request_value", "data"),
    [
        (
            {"inputs": [{"name": "x", "datatype": "FP32", "shape": [2, 2], "data": [1, 2, 3, 4]}]},
            {"x": [[1, 2], [3, 4]]},
        ),
        ({"inputs": [{"name": "x", "datatype": "BYTES", "shape": [1], "data": ["a"]}]}, {"x": ["a"]}),
        ({"inputs": [{"name": "x", "shape": [2, 0], "data": []}]}, None),
        ({"inputs": [], "parameters": {"k": 1}}, None),
        ({"inputs": [{"name": "x"}]}, None),
    ],
)
def test_python_gets_nested_lists_by_name_or_the_whole_request(request_value: object, data: object) -> None:
    python = texts.example_lines(SERVER, "m", json.dumps(request_value), "")[1]

    assert python == f"import knodel; knodel.Client('{SERVER}').predict('m', {data or request_value!r})"


def test_an_interface_has_a_line_for_each_tensor_and_a_difference() -> None:
    one = {"name": "x", "datatype": "FP32", "shape": [-1, 4]}
    before = texts.interface_lines({"inputs": [one], "outputs": [{**one, "name": "y"}]})
    after = texts.interface_lines({"inputs": [{**one, "shape": [-1]}], "outputs": [{**one, "name": "y"}]})

    assert before == ["input x FP32[-1,4]", "output y FP32[-1,4]"]
    assert texts.changed_interface(before, after) == ["- input x FP32[-1,4]", "+ input x FP32[-1]"]


def test_a_traceback_is_coloured_on_a_terminal_only_and_has_no_control_characters_of_the_code() -> None:
    lines = ['  File "/m/model.py", line 3, in load', "    print('\x1b[2J')", "NameError: x"]
    plain = texts.failure_lines(Failure("", lines), coloured=False)
    coloured = texts.failure_lines(Failure("", lines), coloured=True)

    assert plain == ['    File "/m/model.py", line 3, in load', "      print('\\x1b[2J')", "  NameError: x"]
    assert "\x1b[36m/m/model.py\x1b[0m" in coloured[0] and "\x1b[33m\x1b[1m3" in coloured[0]
    assert "\x1b[31m" in coloured[-1]


@pytest.mark.parametrize(
    ("before", "event", "line"),
    [
        (LOADS_2, LoadFailed(2, BROKEN), "version 2 cannot be loaded; version 1 still serves"),
        (LOADS_2, Ended(2, "by SIGKILL"), "version 2 cannot be loaded; version 1 still serves"),
        (Reload(loading=1, last=1), LoadFailed(1, BROKEN), "version 1 cannot be loaded; requests get 503"),
        (Reload(serving=1, last=1), Ended(1, "by SIGKILL"), "version 1 has ended; requests get 503"),
        (Reload(serving=1, last=1), Gone("/m"), "/m is gone; version 1 still serves"),
        (Reload(), Gone("/m"), "/m is gone; requests get 503"),
    ],
)
def test_a_failure_is_introduced_by_what_failed_and_what_serves(
    before: Reload, event: Gone | LoadFailed | Ended, line: str
) -> None:
    assert texts.failure_heading(before, event).startswith(line)


def test_a_failure_without_user_code_is_its_reason() -> None:
    assert texts.failure_lines(Failure("the folder has no model"), coloured=False) == ["  the folder has no model"]


def test_an_answer_is_shortened() -> None:
    assert texts.answer_line(200, 0.0123, '{"y": 1}') == 'answers 200 in 12 ms: {"y": 1}'
    assert len(texts.answer_line(500, 0.0, "x" * 1000)) < 300
