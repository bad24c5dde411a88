"""Test that `knodel up` refuses invalid input before it creates anything."""

from __future__ import annotations

import os
import re
import socket
from pathlib import Path

import pytest

from eventing import emit
from serving.cli.doctor.ports import listen_addresses
from serving.types.settings.settings import Settings, load_settings
from tests.serving.cli.conftest import Knodel, check
from tests.support.ports import free_ports

NOT_HERE = "192.0.2.1"  # an address of no machine (RFC 5737)
WRONG = [
    ("KNODEL_KEPT_LIMIT", "1k", "not a number of bytes"),
    ("KNODEL_KEPT_LIMIT", "-1", "not a number of bytes"),
    ("KNODEL_KEPT_LIMIT", "9" * 5000, "not a number of bytes"),
    ("KNODEL_GATEWAY_PORT", "http", "not a whole number"),
    ("KNODEL_CONTROL_TLS_PORT", "70000", "out of bounds"),
    ("KNODEL_GATEWAY_HEADER_TIMEOUT", "5", "must be a duration"),
    ("KNODEL_GATEWAY_ADDRESS", NOT_HERE, "not an address of this machine"),
    ("KNODEL_GATEWAY_ADDRESS", "a b", "not an address of this machine"),
    ("KNODEL_CONTROL_ADDRESS", f"{'a' * 70}.invalid", "not an address of this machine"),
    ("KNODEL_GATEWAY_DOMAIN", "a b", "not a domain"),
    ("KNODEL_GATEWAY_HOSTS", "http://a", "not a host name"),
    ("KNODEL_EVENTS_SINK", "somewhere", "not a URL"),
    ("KNODEL_EVENTS_FORMAT", "xml", "unknown"),
    ("KNODEL_NO_SUCH_THING", "1", "unknown setting"),
    ("KNODEL_STATE", __file__, "not a directory"),
    ("KNODEL_STATE", f"{__file__}/state", "not a directory"),
]
DETACHED = pytest.mark.parametrize("detach", [[], ["--detach"]], ids=["here", "detached"])


@DETACHED
@pytest.mark.parametrize(("name", "value", "word"), WRONG)
def test_a_wrong_variable_is_exit_code_2_and_leaves_no_state_folder(
    knodel: Knodel,
    state: Path,
    monkeypatch: pytest.MonkeyPatch,
    detach: list[str],
    name: str,
    value: str,
    word: str,
) -> None:
    monkeypatch.setenv(name, value)

    check(knodel("up", *detach), 2, [word])

    assert not state.exists()


@DETACHED
@pytest.mark.parametrize("place", range(3))
def test_a_taken_port_leaves_nothing(
    knodel: Knodel, state: Path, monkeypatch: pytest.MonkeyPatch, detach: list[str], place: int
) -> None:
    variables = ("KNODEL_GATEWAY_PORT", "KNODEL_CONTROL_PORT", "KNODEL_CONTROL_TLS_PORT")
    for variable, port in zip(variables, free_ports(3), strict=True):
        monkeypatch.setenv(variable, str(port))
    taken = listen_addresses(load_settings(environ=os.environ))[place]
    with socket.create_server(taken):
        check(knodel("up", *detach), 1, [f"cannot listen on {taken[0]}:{taken[1]}"])
        assert not state.exists()

        state.mkdir(mode=0o700)
        check(knodel("up", *detach), 1, [f"cannot listen on {taken[0]}:{taken[1]}"])
        assert list(state.iterdir()) == []


def test_variables_of_training_scripts_are_no_unknown_settings() -> None:
    named = set(re.findall(r"KNODEL_EVENTS_\w+", Path(emit.__file__).read_text()))

    assert len(named) > 3
    assert load_settings(environ=dict.fromkeys(named, "5s")) == Settings()
