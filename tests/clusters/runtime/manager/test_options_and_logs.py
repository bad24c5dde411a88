"""Options and log formats of a control-plane process."""

from __future__ import annotations

import json
import logging
import sys
from pathlib import Path

import pytest

from clusters.runtime.manager.logs import JsonFormatter
from clusters.runtime.manager.options import InvalidOptions, parse_options


def test_a_pod_says_who_it_is_and_where_it_lives() -> None:
    environ = {"POD_NAME": "knodel-controller-x", "POD_UID": "7", "POD_NAMESPACE": "elsewhere", "HOST": "0.0.0.0"}

    options = parse_options("p", "", ["--config", "/etc/knodel/config.yaml"], environ)

    assert (options.identity, options.system_namespace, options.host) == (
        "knodel-controller-x_7",
        "elsewhere",
        "0.0.0.0",
    )
    assert options.config == Path("/etc/knodel/config.yaml")
    assert (options.probe_port, options.metrics_port, options.namespace) == (8081, 9090, None)


def test_outside_a_pod_every_process_is_a_candidate_of_its_own_and_listens_on_loopback() -> None:
    first, second = (parse_options("p", "", [], {}) for _ in range(2))

    assert first.identity != second.identity
    assert (first.host, first.system_namespace) == ("127.0.0.1", "knodel-system")


@pytest.mark.parametrize(
    "argv", [["--probe-port", "70000"], ["--metrics-port", "x"], ["--what"], ["--log-level", "no"]]
)
def test_a_wrong_argument_is_one_line(argv: list[str]) -> None:
    with pytest.raises(InvalidOptions, match="see --help"):
        parse_options("p", "", argv, {})


def test_a_log_line_is_one_json_object_with_its_exception() -> None:
    try:
        raise ValueError("no\nluck")
    except ValueError:
        record = logging.getLogger("a.b").makeRecord("a.b", logging.ERROR, "f", 1, "%s failed", ("it",), sys.exc_info())

    line = JsonFormatter().format(record)

    assert "\n" not in line
    said = json.loads(line)
    assert (said["level"], said["logger"], said["message"]) == ("error", "a.b", "it failed")
    assert "ValueError" in said["exception"]
