"""Test `knodel predict` of an unknown model, and request bodies without an end."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from serving.cli import data
from serving.cli.data import read_data
from serving.client.errors import UsageError
from serving.types.settings.state import Facts
from tests.serving.cli.conftest import Served, check
from tests.serving.cli.kube import FakeApi, Reply, fake_api

UNKNOWN = "no model answers at this host"
FAILED = {"type": "Ready", "status": "False", "reason": "ExitCode1", "message": "/models/iris cannot be opened"}


@pytest.fixture
def gateway() -> Iterator[FakeApi]:
    """Run a gateway without models."""
    with fake_api(lambda _: Reply(404, {"error": UNKNOWN}), None) as running:
        yield running


@pytest.fixture
def with_gateway(served: Served, gateway: FakeApi, state: Path) -> Served:
    """Run a platform with this gateway."""
    facts = Facts.read(state)
    assert facts is not None
    replace(facts, gateway=urlsplit(gateway.url).netloc).write()
    return served


async def test_a_model_that_failed_is_not_ready_and_the_reason_is_shown(with_gateway: Served) -> None:
    await with_gateway.deploy("iris")
    await with_gateway.set_status("iris", {"conditions": [FAILED]})

    done = await with_gateway.knodel("predict", "iris", "-d", "{}")

    check(done, 4, ["iris is not ready", "ExitCode1: /models/iris cannot be opened", "`knodel describe iris`"])


async def test_a_model_that_does_not_exist_is_not_found(with_gateway: Served) -> None:
    done = await with_gateway.knodel("predict", "nobody", "-d", "{}")

    check(done, 3, ["model nobody not found in namespace default", "`knodel list -A`"])


async def test_what_a_ready_model_answers_stays_as_it_is(with_gateway: Served) -> None:
    await with_gateway.deploy("iris")
    await with_gateway.set_status("iris", {"conditions": [{"type": "Ready", "status": "True"}]})

    check(await with_gateway.knodel("predict", "iris", "-d", "{}"), 3, ["404", UNKNOWN])


@pytest.mark.parametrize("request_of", [("-d", "{}"), ("--example",)])
async def test_a_tag_that_no_version_has_is_refused_with_those_that_there_are(
    with_gateway: Served, request_of: tuple[str, ...]
) -> None:
    await with_gateway.deploy("iris")
    await with_gateway.set_status("iris", {"traffic": [{"revision": "iris-00001", "percent": 100, "tag": "stable"}]})

    done = await with_gateway.knodel("predict", "iris", "--tag", "nope", *request_of)

    check(done, 3, ["model iris has no version with the tag nope", "its tags are stable"])


@pytest.mark.parametrize("options", [("--example",), ("-d", "{}", "--tag", "a"), ("--example", "--tag", "a")])
async def test_an_absent_model_is_not_found_whatever_is_sent(with_gateway: Served, options: tuple[str, ...]) -> None:
    done = await with_gateway.knodel("predict", "nobody", *options)

    check(done, 3, ["model nobody not found in namespace default", "`knodel list -A`"])


@pytest.mark.parametrize("source", ["/dev/zero", "-"])
def test_a_request_without_an_end_is_refused_within_its_bound(monkeypatch: pytest.MonkeyPatch, source: str) -> None:
    monkeypatch.setattr(data, "LARGEST", 1 << 20)
    with Path("/dev/zero").open("rb") as endless:
        monkeypatch.setattr("sys.stdin", type("Stdin", (), {"buffer": endless})())
        with pytest.raises(UsageError, match="is larger than 1 MiB"):
            read_data(f"@{source}")
