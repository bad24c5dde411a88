"""The parts of uvicorn that `clusters.net.server` extends and uses, which are not a public interface.

A failure after an update of uvicorn shows what changed. Compare the new source with our classes, then update the table
here and the upper bound in `pyproject.toml`.
"""

from __future__ import annotations

import inspect
import tomllib
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from uvicorn.config import Config
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from clusters.embedded.activator.proxy.caller import CallerConnection
from clusters.net.server.connection import HttpConnection
from clusters.net.server.protocol import ServerConnection

PROTOCOL = {
    "__init__": "(self, config, server_state, app_state, _loop=None)",
    "_start_asgi_task": "(self, cycle, app)",
    "_unsupported_upgrade_warning": "(self)",
    "connection_lost": "(self, exc)",
    "connection_made": "(self, transport)",
    "data_received": "(self, data)",
    "eof_received": "(self)",
    "on_body": "(self, body)",
    "on_headers_complete": "(self)",
    "on_message_begin": "(self)",
    "on_message_complete": "(self)",
    "pause_writing": "(self)",
    "resume_writing": "(self)",
    "send_400_response": "(self, msg)",
    "shutdown": "(self)",
}
"""Methods of HttpToolsProtocol that a connection overrides, with their parameters."""

CYCLE = (
    "(self, scope, transport, flow, logger, access_logger, access_log, default_headers, message_event, "
    "expect_100_continue, keep_alive, on_response)"
)
"""Parameters of RequestResponseCycle, which are attributes too."""

METHODS = {
    HttpToolsProtocol.timeout_keep_alive_handler: "(self)",
    RequestResponseCycle.run_asgi: "(self, app)",
    RequestResponseCycle.send: "(self, message)",
    RequestResponseCycle.receive: "(self)",
    FlowControl.pause_reading: "(self)",
    FlowControl.resume_reading: "(self)",
    FlowControl.pause_writing: "(self)",
    FlowControl.resume_writing: "(self)",
    Config.load: "(self)",
}
"""Methods that our code calls."""

ATTRIBUTES = {
    "protocol": (
        "config connections cycle flow headers loop parser pipeline scope server_state timeout_keep_alive "
        "timeout_keep_alive_task transport url"
    ),
    "cycle": (
        "chunked_encoding default_headers disconnected expected_content_length flow keep_alive message_event more_body "
        "on_response response_complete response_started scope transport waiting_for_100_continue"
    ),
    "flow": "read_paused write_paused",
    "state": "connections default_headers tasks",
    "config": "loaded_app ssl",
}
"""Attributes that our code reads or sets."""

OPTIONS = (
    "access_log app date_header interface lifespan log_config loop proxy_headers server_header ssl_certfile "
    "ssl_keyfile ssl_version timeout_keep_alive ws"
)
"""Parameters of Config that our server sets."""


def parameters(function: Any) -> str:
    """Return the parameters of a function without types."""
    found = inspect.signature(function).parameters.values()
    return str(inspect.Signature([one.replace(annotation=inspect.Parameter.empty) for one in found]))


@pytest.fixture
async def parts() -> dict[str, Any]:
    """Return an instance of each class, by its name in ATTRIBUTES."""
    config = Config(lambda: None, log_config=None)
    config.load()
    state = ServerState()
    protocol = HttpToolsProtocol(config, state, {})
    protocol.on_message_begin()
    arguments: dict[str, Any] = dict.fromkeys(list(inspect.signature(RequestResponseCycle).parameters))
    flow: Any = FlowControl(None)  # type: ignore[arg-type]
    cycle = RequestResponseCycle(**arguments | {"scope": {"method": "GET"}})
    return {"protocol": protocol, "cycle": cycle, "flow": flow, "state": state, "config": config}


@pytest.mark.parametrize("name", PROTOCOL)
def test_an_overridden_method_has_known_parameters(name: str) -> None:
    assert parameters(getattr(HttpToolsProtocol, name)) == PROTOCOL[name]


def test_all_overridden_methods_are_in_the_table() -> None:
    overridden = {
        name
        for kind in (ServerConnection, HttpConnection, CallerConnection)
        for name, value in vars(kind).items()
        if callable(value) and name in vars(HttpToolsProtocol)
    }

    assert overridden == set(PROTOCOL)


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.__qualname__)
def test_a_called_method_has_known_parameters(method: Any) -> None:
    assert parameters(method) == METHODS[method]


def test_a_request_has_known_parameters() -> None:
    assert parameters(RequestResponseCycle.__init__) == CYCLE


@pytest.mark.parametrize("part", ATTRIBUTES)
def test_the_used_attributes_exist(parts: dict[str, Any], part: str) -> None:
    missing = [name for name in ATTRIBUTES[part].split() if not hasattr(parts[part], name)]

    assert missing == []


def test_the_used_options_exist() -> None:
    assert set(OPTIONS.split()) <= set(inspect.signature(Config).parameters)


def test_status_lines_are_complete() -> None:
    assert STATUS_LINE[200] == b"HTTP/1.1 200 OK\r\n"


def test_the_installed_version_is_within_an_upper_bound() -> None:
    project = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())["project"]
    requirements = map(Requirement, project["optional-dependencies"]["server"])
    (requirement,) = [one for one in requirements if one.name == "uvicorn"]

    assert any(bound.operator == "<" for bound in requirement.specifier)
    assert version("uvicorn") in requirement.specifier
