"""The lines that `knodel dev` prints: versions, tracebacks, interfaces and example requests. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import click

from clusters.base.redact import escape_control
from serving.cli.addresses import curl
from serving.cli.dev.messages import Failure
from serving.cli.dev.reload import Ended, Gone, LoadFailed, Reload

MAX_INLINE: Final = 300  # characters of a request in a command line; a longer one is read from a file
MAX_ANSWER: Final = 200  # characters of the response to the example
INDENT: Final = "  "
_FRAME: Final = re.compile(r'^(\s*)File "(.+)", line (\d+)(.*)$')


def interface_lines(metadata: Mapping[str, Any]) -> list[str]:
    """Return a line for each input and output of a model's metadata.

    Example:
        interface_lines({"inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, 4]}]})  # ["input x FP32[-1,4]"]
    """
    return [
        f"{word} {one.get('name')} {one.get('datatype')}{json.dumps(one.get('shape', []), separators=(',', ':'))}"
        for word, field in (("input", "inputs"), ("output", "outputs"))
        for one in metadata.get(field) or ()
        if isinstance(one, dict)
    ]


def is_short(request: str) -> bool:
    """Return whether the request fits into a command line."""
    return len(request) <= MAX_INLINE


def example_lines(server: str, name: str, request: str, file: str) -> list[str]:
    """Return how to send the example: a command with curl, and a line of Python.

    `server` is the URL of the server, `name` that of the model, `request` the JSON, and `file` the path of a file with
    it, unless it is short.
    """
    inline = is_short(request)
    value = repr(_by_name(json.loads(request))) if inline else f"json.load(open({file!r}))"
    modules = "knodel" if inline else "json, knodel"
    return [
        curl(f"{server}/v2/models/{name}/infer", request if inline else f"@{file}"),
        f"import {modules}; knodel.Client({server!r}).predict({name!r}, {value})",
    ]


def _by_name(request: dict[str, Any]) -> dict[str, Any]:
    """Return the inputs of a request as nested lists by name; the request if it has more than inputs."""
    try:
        if set(request) != {"inputs"}:
            return request
        return {one["name"]: _nested(list(one["data"]), one["shape"]) for one in request["inputs"]}
    except (KeyError, TypeError, ValueError, ZeroDivisionError):
        return request


def _nested(values: list[Any], shape: Sequence[int]) -> list[Any]:
    """Return flat values as nested lists of this shape."""
    for size in reversed(shape[1:]):
        values = [values[start : start + size] for start in range(0, len(values), size)]
    return values


def answer_line(status: int, seconds: float, body: str) -> str:
    """Return a line about the response to the example, with the beginning of its body."""
    shown = escape_control(body if len(body) <= MAX_ANSWER else f"{body[:MAX_ANSWER]}…")
    return f"answers {status} in {seconds * 1000:.0f} ms: {shown}"


def failure_heading(before: Reload, event: Gone | LoadFailed | Ended) -> str:
    """Return the line above a failure: what failed in this event, and what serves after it."""
    crashed = isinstance(event, Ended) and event.version == before.serving
    serves = before.serving is not None and not crashed
    rest = f"version {before.serving} still serves" if serves else "requests get 503 until the next save"
    match event:
        case Gone(path):
            return f"{path} is gone; {rest}"
        case Ended(version) if crashed:
            return f"version {version} has ended; {rest}"
        case LoadFailed(version) | Ended(version):
            return f"version {version} cannot be loaded; {rest}"


def failure_lines(failure: Failure, *, coloured: bool) -> list[str]:
    """Return the traceback of a failure, or its reason, as indented lines without control characters.

    On a terminal with colours, files and line numbers of frames and the error itself are highlighted.
    """
    lines = [escape_control(line) for line in failure.traceback or [failure.reason]]
    if coloured:
        lines = [_colour(line, last=index == len(lines) - 1) for index, line in enumerate(lines)]
    return [INDENT + line for line in lines]


def heading(text: str, colour: str, *, coloured: bool) -> str:
    """Return the text in bold and in a colour, on a terminal with colours."""
    return click.style(text, fg=colour, bold=True) if coloured else text


def listed(lines: Iterable[str]) -> list[str]:
    """Return the lines indented."""
    return [INDENT + escape_control(line) for line in lines]


def changed_interface(before: Sequence[str], after: Sequence[str]) -> list[str]:
    """Return the lines of an interface that differ, with `-` and `+` as in a diff."""
    gone = [f"- {line}" for line in before if line not in after]
    return gone + [f"+ {line}" for line in after if line not in before]


def _colour(line: str, *, last: bool) -> str:
    if last:
        return click.style(line, fg="red", bold=True)
    frame = _FRAME.match(line)
    if frame is None:
        return line
    space, file, number, rest = frame.groups()
    return f'{space}File "{click.style(file, fg="cyan")}", line {click.style(number, fg="yellow", bold=True)}{rest}'
