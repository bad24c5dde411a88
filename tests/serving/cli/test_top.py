"""Test `knodel top`, `deploy --dry-run` with prices, and `explain --replay`, on a running control API."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from autoscaler.config import DecisionSettings
from autoscaler.metrics.signals import Signals
from autoscaler.scaling.replay import INPUTS_ANNOTATION, inputs_of
from autoscaler.scaling.table import DeciderState, Observations, Specs
from autoscaler.usage.meter import USAGE_ANNOTATION, Spent, Usage
from autoscaler.usage.signals import SIGNALS_ANNOTATION, to_annotation
from clusters.base.objects import ANNOTATION_DEVICES, POD, POD_AUTOSCALER, WARM_POOL
from serving.types.settings.state import PLATFORM_FILE
from tests.serving.cli.conftest import ARTIFACT, Served, check

PRICES = {"currency": "EUR", "cpu": 3.6, "memory": 0.0, "gpu": {}}
"""A core costs 0.001 a second."""


def set_prices(state: Path) -> None:
    """Write the prices as the platform does when it starts with such settings."""
    facts = json.loads((state / PLATFORM_FILE).read_text())
    (state / PLATFORM_FILE).write_text(json.dumps({**facts, "prices": PRICES}))


async def add_autoscaler(served: Served, name: str, model: str, spent: Spent, **annotations: str) -> None:
    """Create the PodAutoscaler of a revision with this bill."""
    usage = Usage(datetime.now(UTC))
    usage.meter({"cpu": 1.0}).add(spent, datetime.now(UTC))
    made = {USAGE_ANNOTATION: usage.to_json(), **annotations}
    metadata = {"name": name, "namespace": "default", "labels": {"knodel.dev/model": model}, "annotations": made}
    await served.cluster.create(POD_AUTOSCALER, {"metadata": metadata, "spec": {}}, manager="test")
    status = {"status": {"actualScale": 1, "desiredScale": 2}}
    await served.cluster.patch(POD_AUTOSCALER, name, status, "default", manager="test", subresource="status")


@pytest.fixture
async def two(served: Served) -> Served:
    """Deploy two models with bills, and a pool of which the second has claimed members."""
    await add_autoscaler(served, "iris-00001", "iris", Spent(serving=1_000.0, idle=2_000.0))
    await add_autoscaler(served, "magika-00001", "magika", Spent(serving=4_000.0, canary=500.0, claims=2.0))
    usage = Usage(datetime.now(UTC))
    usage.meter({"cpu": 1.0}).add(Spent(idle=3_600.0), datetime.now(UTC))
    metadata = {"name": "small", "namespace": "default", "annotations": {USAGE_ANNOTATION: usage.to_json()}}
    await served.cluster.create(WARM_POOL, {"metadata": metadata, "spec": {"template": {}}}, manager="test")
    return served


async def test_the_dearest_model_comes_first_with_its_split(two: Served, state: Path) -> None:
    set_prices(state)
    done = await two.knodel("top", "--period", "month")
    assert (done.code, done.err) == (0, "")
    rows = [line.split() for line in done.out.splitlines()]
    assert rows[0][-2:] == ["TOTAL", "(EUR)"]
    assert rows[1] == ["magika", "1/2", "4.00", "0.00", "0.00", "0.50", "3.60", "8.10"]
    assert rows[2] == ["iris", "1/2", "1.00", "2.00", "0.00", "0.00", "0.00", "3.00"]


async def test_without_prices_top_prints_pod_hours_and_how_to_set_prices(two: Served) -> None:
    done = await two.knodel("top")
    assert "TOTAL (POD-HOURS)" in done.out
    assert "no prices are set" in done.out
    assert [line.split()[-1] for line in done.out.splitlines()[1:3]] == ["2.25", "0.83"]


async def test_an_amount_below_two_decimals_is_written_as_such(served: Served) -> None:
    await add_autoscaler(served, "iris-00001", "iris", Spent(serving=0.01))
    row = (await served.knodel("top")).out.splitlines()[1].split()
    assert row == ["iris", "1/2", "<0.01", "0.00", "0.00", "0.00", "0.00", "<0.01"]


async def test_a_language_model_has_tokens_and_their_cost(two: Served, state: Path) -> None:
    counted = Spent(serving=1_000.0, prompt_tokens=3_000_000.0, completion_tokens=1_000_000.0)
    await add_autoscaler(two, "chat-00001", "chat", counted)
    bare = [line.split() for line in (await two.knodel("top")).out.splitlines()]
    assert bare[0][-2:] == ["(POD-HOURS)", "TOKENS"]
    assert [row[-1] for row in bare[1:4]] == ["-", "-", "4000000"]
    bare_value = json.loads((await two.knodel("top", "-o", "json")).out)["models"][-1]
    set_prices(state)
    rows = [line.split() for line in (await two.knodel("top")).out.splitlines()]
    assert rows[0][-3:] == ["(EUR)", "TOKENS", "COST/1K"]
    assert [row[-3:] for row in rows[1:]] == [["8.10", "-", "-"], ["3.00", "-", "-"], ["1.00", "4000000", "0.00025"]]
    magika, _, chat = json.loads((await two.knodel("top", "-o", "json")).out)["models"]
    assert chat["tokens"] == {"prompt": 3_000_000, "completion": 1_000_000, "total": 4_000_000} == bare_value["tokens"]
    assert chat["costPer1000Tokens"] == pytest.approx(0.00025)
    assert "costPer1000Tokens" not in bare_value
    assert magika.keys() == {"namespace", "model", "replicas", "podSeconds", "cost"}


async def test_structured_output_has_seconds_and_money(two: Served, state: Path) -> None:
    bare = json.loads((await two.knodel("top", "-A", "-o", "json")).out)
    set_prices(state)
    found = json.loads((await two.knodel("top", "-A", "-o", "json")).out)
    assert all("cost" not in one for one in bare["models"])
    assert (found["period"], found["currency"]) == ("day", "EUR")
    magika, iris = found["models"]
    assert (magika["model"], magika["replicas"]) == ("magika", {"ready": 1, "desired": 2})
    assert iris["podSeconds"] == {"serving": 1000.0, "idle": 2000.0, "starting": 0.0, "canary": 0.0, "pool": 0.0,
                                  "total": 3000.0}  # fmt: skip
    assert iris["cost"]["total"] == pytest.approx(3.0)


async def test_a_dry_run_prints_the_cost_of_a_model(served: Served, state: Path) -> None:
    bare = await served.knodel("deploy", "iris", "--uri", ARTIFACT, "--max", "2", "--dry-run")
    set_prices(state)
    done = await served.knodel("deploy", "iris", "--uri", ARTIFACT, "--max", "2", "--dry-run")
    machine = await served.knodel("deploy", "iris", "--uri", ARTIFACT, "--dry-run", "-o", "json")
    assert "costs" not in bare.out
    assert "model iris costs from 0.00 to 7.20 EUR an hour (0.00 to 5256.00 EUR a month)" in done.out
    assert json.loads(machine.out)["kind"] == "Model"


def kept(**row: Any) -> str:
    seen = Observations.of(current=1, ready=1, queued=30.0, panic=4.0)
    inputs = inputs_of(Specs.of(max=8, target=4.0), seen, DeciderState.empty(1), 0, 100.0, DecisionSettings())
    entry = {"at": "2026-01-01T00:00:00Z", "from": 1, "to": 8, **inputs, **row}
    return json.dumps([entry])


@pytest.fixture
async def decided(served: Served) -> Served:
    """Deploy a model with a recorded decision."""
    await served.deploy("iris")
    await add_autoscaler(served, "iris-00001", "iris", Spent(), **{INPUTS_ANNOTATION: kept()})
    return served


async def test_a_decision_is_replayed_with_all_its_stages(decided: Served) -> None:
    done = await decided.knodel("explain", "iris", "--replay")
    assert (done.code, done.err) == (0, "")
    assert "iris-00001  1 → 8, replayed with the same result" in done.out
    assert "Waiting" in done.out and "30 requests wait" in done.out
    assert "ProgressDeadlineExceeded" in done.out  # the last stage, which changed nothing


async def test_another_policy_shows_what_it_would_have_done(decided: Served) -> None:
    done = await decided.knodel("explain", "iris", "--replay", "--with", "maxReplicas=3", "-o", "json")
    (made,) = json.loads(done.out)
    assert (made["to"], made["replayed"], made["revision"]) == (8, 3, "iris-00001")
    assert "replayed: 3" in (await decided.knodel("explain", "iris", "--replay", "--with", "maxReplicas=3")).out


async def test_a_decision_of_other_rules_is_marked(served: Served) -> None:
    await served.deploy("iris")
    await add_autoscaler(served, "iris-00001", "iris", Spent(), **{INPUTS_ANNOTATION: kept(to=5)})
    assert "→ 5, replayed: 8, since the rules have changed" in (await served.knodel("explain", "iris", "--replay")).out


async def test_a_model_without_decisions_has_nothing_to_replay(served: Served) -> None:
    await served.deploy("iris")
    assert "no recorded decision to replay" in (await served.knodel("explain", "iris", "--replay")).out


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--with", "maxReplicas=3"], ["--with requires --replay"]),
        (["--replay", "--with", "stableWindow=5s"], ["stableWindow=5s", "scaleTarget"]),
        (["--replay", "--with", "maxReplicas"], ["FIELD=VALUE"]),
        (["--replay", "--with", "maxReplicas=many"], ["maxReplicas=many", "a number"]),
        (["--replay", "--with", "scaleToZeroAfter=5"], ["a duration"]),
        (["--replay", "--with", "targetUtilization=7"], ["targetUtilization", "from 0.01 to 1"]),
    ],
)
async def test_an_invalid_policy_value_is_refused_by_its_name(
    decided: Served, options: list[str], words: list[str]
) -> None:
    check(await decided.knodel("explain", "iris", *options), 2, words)


async def test_models_on_gpus_have_the_use_of_them_as_last_read(two: Served) -> None:
    assert "GPU" not in (await two.knodel("top")).out.splitlines()[0]
    signals = to_annotation(Signals(0.43, 0.6), datetime.now(UTC))
    await add_autoscaler(two, "chat-00001", "chat", Spent(serving=9_000.0), **{SIGNALS_ANNOTATION: signals})
    rows = [line.split() for line in (await two.knodel("top")).out.splitlines()]
    assert rows[0][-3:] == ["GPU", "GPU", "MEM"]
    assert rows[1][-2:] == ["43%", "60%"]
    assert rows[2][-2:] == ["-", "-"]
    models = json.loads((await two.knodel("top", "-o", "json")).out)["models"]
    assert models[0]["signals"] == {"gpu": 0.43, "memory": 0.6}
    assert "signals" not in models[1]


async def test_explain_has_the_use_of_gpus_and_of_the_kv_cache(served: Served) -> None:
    await served.deploy("iris")
    signals = to_annotation(Signals(0.43, 0.6, 0.05), datetime.now(UTC))
    await add_autoscaler(served, "iris-00001", "iris", Spent(), **{SIGNALS_ANNOTATION: signals})
    explained = (await served.knodel("explain", "iris")).out
    assert "in use by iris-00001: GPU 43%, its memory 60%, KV cache 5%" in explained


async def test_explain_tells_that_nothing_isolates_the_parts_of_a_gpu(served: Served) -> None:
    await served.deploy("iris")
    pod = {
        "metadata": {
            "name": "iris-1", "namespace": "default", "labels": {"knodel.dev/model": "iris"},
            "annotations": {ANNOTATION_DEVICES: '{"uuids": ["GPU-0"], "share": 300, "isolated": false}'},
        },
        "spec": {"containers": [{"name": "server", "image": "server:1"}]},
    }  # fmt: skip
    await served.cluster.create(POD, pod, manager="test")
    explained = (await served.knodel("explain", "iris")).out
    assert "nothing isolates iris-1 from others on the same GPU: nvidia-cuda-mps-control" in explained
