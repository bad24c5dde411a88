"""Ports of a platform, and the options of `knodel up` for them."""

from __future__ import annotations

import itertools

import pytest

from serving.types.settings.ports import port_options
from serving.types.settings.settings import load_settings


@pytest.mark.parametrize(
    ("ports", "options"),
    [
        ((8080, 8081, 8443), ""),
        ((9380, 9381, 9382), " --port 9380"),
        ((9380, 9999, 9381), " --port 9380 --control-port 9999"),
        ((9380, 9381, 9443), " --port 9380 --control-tls-port 9443"),
        ((8080, 8081, 9443), " --control-tls-port 9443"),
        ((8080, 8081, 8082), " --control-tls-port 8082"),
    ],
)
def test_the_options_name_the_ports_that_do_not_follow(ports: tuple[int, int, int], options: str) -> None:
    assert port_options(*ports) == options


@pytest.mark.parametrize("ports", list(itertools.permutations((8080, 8081, 8082, 8443, 65_535), 3)), ids=str)
def test_the_options_lead_to_the_same_ports(ports: tuple[int, int, int]) -> None:
    words = port_options(*ports).split()
    given = {option: int(port) for option, port in zip(words[::2], words[1::2], strict=True)}

    settings = load_settings(
        None,
        {},
        gateway_port=given.get("--port"),
        control_port=given.get("--control-port"),
        control_tls_port=given.get("--control-tls-port"),
    )

    assert (settings.gateway.port, settings.control.port, settings.control.tls_port) == ports
