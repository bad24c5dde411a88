"""The package `knodel`: its names, and what an import of it loads."""

from __future__ import annotations

import inspect
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import assert_type

import pytest

import knodel

ROOT = Path(__file__).parents[2]
LOADED = "import sys; {}; print(*sorted({{name.partition('.')[0] for name in sys.modules}}))"


def loaded_by(statement: str) -> set[str]:
    """Return the top-level packages that a new interpreter has after `statement`."""
    done = subprocess.run(
        [sys.executable, "-c", LOADED.format(statement)], capture_output=True, text=True, check=True, cwd=ROOT
    )
    return set(done.stdout.split())


def test_every_public_name_is_there_and_documented() -> None:
    for name in knodel.__all__:
        assert getattr(knodel, name).__doc__, name


def test_every_error_of_the_package_is_a_knodel_error() -> None:
    assert issubclass(knodel.NotEmitted, knodel.KnodelError)


def test_an_unknown_name_is_refused_with_the_names_that_exist() -> None:
    with pytest.raises(AttributeError, match="'knodel' has no attribute 'depoly': it has AsyncClient"):
        knodel.depoly  # noqa: B018  the access is what is tested


def test_an_import_loads_nothing_but_the_standard_library() -> None:
    ours = {"clusters", "eventing", "serving", "autoscaler"}
    slow = {"numpy", "pandas", "httpx2", "httpcore2", "aiohttp", "msgspec", "anyio", "click", "yaml", "asyncio", "ssl"}

    assert not loaded_by("import knodel") & (ours | slow)


def test_a_client_loads_neither_arrays_nor_the_server() -> None:
    """The first request pays for NumPy, and only if its data is not a list."""
    loaded = loaded_by("import knodel; knodel.Client(state='/nonexistent')")

    assert not loaded & {"numpy", "pandas", "aiohttp", "msgspec", "click", "yaml", "IPython"}


def test_both_clients_have_the_same_methods_and_signatures() -> None:
    def public(made: type) -> set[str]:
        return {name for name in vars(made) if not name.startswith("_")} - {"close", "aclose"}

    assert public(knodel.Client) == public(knodel.AsyncClient)
    for name in public(knodel.Client):
        one, other = (inspect.signature(getattr(made, name)) for made in (knodel.Client, knodel.AsyncClient))
        assert one.parameters == other.parameters
        assert getattr(knodel.Client, name).__doc__ == getattr(knodel.AsyncClient, name).__doc__ != None  # noqa: E711
    assert str(inspect.signature(knodel.Client.get).return_annotation) == "Model"
    assert str(inspect.signature(knodel.AsyncClient.get).return_annotation) == "Coroutine[Any, Any, Model]"
    assert str(inspect.signature(knodel.Client.rollout).return_annotation) == "Iterator[RolloutStep]"
    assert str(inspect.signature(knodel.AsyncClient.rollout).return_annotation) == "AsyncIterator[RolloutStep]"
    bound = inspect.signature(knodel.Client(state="/nonexistent").predict)
    assert list(bound.parameters)[:3] == ["name", "data", "tag"]


async def types_of_both_clients(client: knodel.Client, other: knodel.AsyncClient) -> None:
    """Never called: `make lint` checks the types that editors show."""
    assert_type(client.predict("m", [1]), knodel.Prediction)
    assert_type(await other.predict("m", [1]), knodel.Prediction)
    assert_type(client.deploy("m.onnx", "m", version="1"), knodel.Model)
    assert_type(await other.deploy("m.onnx", "m", version="1"), knodel.Model)
    assert_type(client.rollout("m"), Iterator[knodel.RolloutStep])
    assert_type(other.rollout("m"), AsyncIterator[knodel.RolloutStep])
    assert_type(client.traffic("m", {"latest": 100}), knodel.TrafficSplit)
    assert_type(client.chat("m", "Hello", max_tokens=9), knodel.Chat)
    assert_type(await other.chat("m", "Hello"), knodel.Chat)
    assert_type(client.chat("m", "Hello", stream=True), Iterator[str])
    assert_type(other.chat("m", "Hello", stream=True), AsyncIterator[str])
    client.predict("m")  # type: ignore[call-arg]
    client.deploy("m.onnx", "m", canari=1)  # type: ignore[call-arg]
