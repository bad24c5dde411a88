"""Test the addresses and example requests that the command builds."""

from __future__ import annotations

import shlex

import pytest

from serving.cli.addresses import curl
from serving.client.inference.addresses import path_address
from serving.client.inference.example import MAX_ELEMENTS, zeros


@pytest.mark.parametrize(
    ("gateway", "authority"),
    [
        (("127.0.0.1", 8080), "127.0.0.1:8080"),
        (("0.0.0.0", 8080), "127.0.0.1:8080"),
        (("::", 1), "[::1]:1"),
        (("::1", 1), "[::1]:1"),
        (("10.0.0.7", 80), "10.0.0.7:80"),
        (("gateway.example.org", 80), "gateway.example.org:80"),
    ],
)
def test_a_path_address_names_what_a_client_of_the_gateway_can_reach(gateway: tuple[str, int], authority: str) -> None:
    assert path_address(gateway, "team", "iris") == f"http://{authority}/namespaces/team/models/iris"
    assert path_address(gateway, "team", "iris", "blue") == f"http://{authority}/namespaces/team/models/iris@blue"


def test_a_shell_reads_the_body_as_it_is() -> None:
    body = """{"a": "it's $HOME `x` \\\\ !"}"""
    assert shlex.split(curl("http://127.0.0.1:1/x", body))[-1] == body


def test_an_example_without_one_in_the_document_is_zeros_of_the_metadata() -> None:
    inputs = [
        {"name": "x", "datatype": "FP32", "shape": [-1, 2]},
        {"name": "n", "datatype": "INT64", "shape": [1]},
        {"name": "t", "datatype": "BYTES", "shape": [1]},
        {"name": "b", "datatype": "BOOL", "shape": [1]},
    ]
    assert zeros({"inputs": inputs}) == {
        "inputs": [
            {"name": "x", "datatype": "FP32", "shape": [1, 2], "data": [0.0, 0.0]},
            {"name": "n", "datatype": "INT64", "shape": [1], "data": [0]},
            {"name": "t", "datatype": "BYTES", "shape": [1], "data": [""]},
            {"name": "b", "datatype": "BOOL", "shape": [1], "data": [False]},
        ]
    }


@pytest.mark.parametrize(
    "metadata",
    [
        None,
        {},
        {"inputs": 1},
        {"inputs": [{"name": "x"}]},
        {"inputs": [{"name": "x", "datatype": "FP32", "shape": ["a"]}]},
        {"inputs": [{"name": "x", "datatype": "FP32", "shape": [MAX_ELEMENTS, 2]}]},
    ],
)
def test_metadata_without_an_example_gives_none(metadata: object) -> None:
    assert zeros(metadata) is None
