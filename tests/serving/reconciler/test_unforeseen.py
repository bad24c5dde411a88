"""A pass that fails by a bug: the Model reports it, and continues when the bug is fixed."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any

import pytest

from clusters.base.objects import MODEL, SERVICE, Kind, Object, condition_of, version_of
from clusters.embedded.cluster import EmbeddedCluster
from serving.makers.knative_flags import Flag
from serving.reconciler.apply import FIELD_MANAGER
from tests.serving.models import model_object
from tests.serving.reconciler.conftest import ModelStage, platform
from tests.support.wait import eventually


class Faulty:
    """Flags of Knative whose reading fails by something that nobody foresaw, until it is mended."""

    parts_of_gpus = False

    def __init__(self) -> None:
        self.error: Exception | None = KeyError("a field that\nnobody thought of" * 100)

    async def missing(self, needed: Iterable[Flag]) -> tuple[Flag, ...]:
        """None, or the error."""
        if self.error is not None:
            raise self.error
        return ()


@pytest.mark.fault("K11")
async def test_what_the_platform_fails_at_is_told_on_the_model_until_it_is_mended(guarded: EmbeddedCluster) -> None:
    flags = Faulty()
    async with platform(guarded, flags) as stage:
        await stage.deploy(model_object())
        model = await stage.model_is("False", reason="ReconcileFailed")
        message = (condition_of(model, "Ready") or {})["message"]
        assert "KeyError" in message and "log" in message
        assert "\n" not in message and len(message) < 400
        await stage.quiet()  # to say it again is no write
        flags.error = None
        await stage.comes_up("magika-00001")
        await stage.traffic_is({"magika-00001": 100})
        await stage.model_is("True")


class Varying(Faulty):
    """Fails with another text each time."""

    passes = 0

    async def missing(self, needed: Iterable[Flag]) -> tuple[Flag, ...]:
        """None, or the error."""
        self.passes += 1
        if self.error is not None:
            self.error = type(self.error)(f"at 0x{self.passes:08x}")
        return await super().missing(needed)

    def is_past(self, passes: int) -> bool:
        """Whether there was one more pass than these."""
        return self.passes > passes


@pytest.mark.fault("K11")
async def test_an_error_that_reads_differently_each_time_is_told_once_of_each_kind(guarded: EmbeddedCluster) -> None:
    """Else each pass would write, and be woken by what it wrote, past the back-off."""
    flags = Varying()
    async with platform(guarded, flags) as stage:
        await stage.deploy(model_object())
        first = await stage.model_is("False", reason="ReconcileFailed")
        await _passes(stage, flags)
        assert (await stage.model())["status"] == first["status"]
        flags.error = ValueError()
        await _passes(stage, flags)
        second = await stage.becomes(MODEL, "magika", lambda model: "(ValueError: at" in _message(model))
        await _passes(stage, flags)
        assert (await stage.model())["status"] == second["status"]
        await stage.edit({"spec": {"storageUri": "file:///models/newer"}})
        third = await stage.model_is("False", reason="ReconcileFailed")
        assert _message(third) != _message(second)  # what fails at another spec may be another fault


async def _passes(stage: ModelStage, flags: Varying) -> None:
    """Some passes over the Model, and what they write, without the back-off."""
    for number in range(3):
        before = flags.passes
        await stage.edit({"metadata": {"labels": {"wake": f"{before}-{number}"}}})
        await eventually(partial(flags.is_past, before))
    await stage.quiet()


def _message(model: Object) -> str:
    return str((condition_of(model, "Ready") or {}).get("message"))


@pytest.mark.fault("K11")
async def test_a_model_that_serves_serves_on(guarded: EmbeddedCluster) -> None:
    flags = Faulty()
    flags.error = None
    async with platform(guarded, flags) as stage:
        await stage.deploy(model_object())
        await stage.comes_up("magika-00001")
        await stage.traffic_is({"magika-00001": 100})
        await stage.model_is("True")
        before = version_of(await stage.get(SERVICE, "magika"))
        flags.error = ZeroDivisionError()
        await stage.edit({"spec": {"storageUri": "file:///models/newer"}})
        model = await stage.model_is("False", reason="ReconcileFailed")
        assert [one["percent"] for one in model["status"]["traffic"]] == [100]
        assert await stage.host_gets() == {"magika-00001": 100}
        assert version_of(await stage.get(SERVICE, "magika")) == before


GARBAGE: dict[str, Any] = {
    "history is no list": {"history": 5},
    "a line of it is no map": {"history": ["x"]},
    "a line of it has no revision": {"history": [{"at": "x"}]},
    "conditions are no list": {"conditions": "Ready"},
    "a condition is no map": {"conditions": ["Ready"]},
    "a condition has no type": {"conditions": [{"status": "True"}]},
    "traffic is a number": {"traffic": 7},
    "the rollout is a text": {"rollout": "soon"},
    "the rollout has a strange time": {
        "rollout": {"phase": "Progressing", "candidate": "a", "stable": "b", "startedAt": "x", "since": "when?"}
    },
    "the outbox is a map": {"outbox": {"a": 1}},
}


@pytest.mark.fault("K11")
@pytest.mark.parametrize("garbage", GARBAGE)
async def test_a_status_that_somebody_spoilt_costs_nobody_the_model(cluster: EmbeddedCluster, garbage: str) -> None:
    """Either it is written anew, or the Model says that the platform fails at it; others are not concerned."""
    await cluster.create(MODEL, model_object(), manager="tests")
    await spoil(cluster, MODEL, "magika", GARBAGE[garbage])
    async with platform(cluster) as stage:
        await stage.deploy(model_object("other"))
        await stage.comes_up("other-00001")
        await stage.traffic_is({"other-00001": 100}, "other")
        await stage.becomes(MODEL, "magika", _speaks)


def _speaks(model: Object) -> bool:
    """Whether a condition that we wrote says how it is."""
    return "lastTransitionTime" in (condition_of(model, "Ready") or {})


async def spoil(cluster: EmbeddedCluster, kind: Kind, name: str, status: Object) -> None:
    """Somebody with the right to writes a status that we never would."""
    await cluster.patch(kind, name, {"status": status}, "default", manager=FIELD_MANAGER, subresource="status")
