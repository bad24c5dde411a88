"""The commands of costs.md, gpus.md and releases.md print what the pages show, for the values that these tests set."""

from __future__ import annotations

import json
import re
import shlex
import textwrap
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from autoscaler.scaling.replay import INPUTS_ANNOTATION
from autoscaler.usage.meter import USAGE_ANNOTATION, Spent, Usage
from clusters.base.distribution import VERSION
from clusters.base.objects import POD, WARM_POOL
from clusters.devices import nvml
from clusters.devices.device_file import FileSource
from serving.loadtest.traces import read_arrivals
from serving.types.settings.prices import prices_to_dict
from serving.types.settings.settings import settings_from_text
from serving.types.settings.state import PLATFORM_FILE
from tests.serving.cli.conftest import Config, Done, Knodel, Served
from tests.serving.cli.kube import CONTEXT, FakeApi
from tests.serving.cli.test_gpus import PATHS, Nvml, replica, script
from tests.serving.cli.test_top import add_autoscaler, kept
from tests.serving.cli.test_version import cluster
from tests.support.guide import Step, sessions

DOCS = Path(__file__).parents[3] / "docs"
COSTS, GPUS, RELEASES, BENCH = (
    (DOCS / f"{name}.md").read_text(encoding="utf-8") for name in ("costs", "gpus", "releases", "bench")
)


VERSIONS = re.compile(r"\(Python [\d.]+\)|(?<=v1\.)[\d.]+")
"""Parts of versions that depend on the machine."""


def step_of(page: str, command: str) -> Step:
    """Return the step of a page whose command begins like this."""
    [found] = [step for one in sessions(page) for step in one.steps if f"{step.command} ".startswith(f"{command} ")]
    return found


def words(step: Step) -> list[str]:
    """Return the arguments of `knodel`."""
    return shlex.split(step.command, comments=True)[1:]


def check_printed(done: Done, step: Step) -> None:
    """Check that a command prints what its page shows."""
    assert (done.code, done.err) == (0, "")
    assert step.agrees(done.out), done.out


def seconds(euros: float) -> float:
    """Return the seconds of one core that cost so much by the prices of the page."""
    return euros / 0.031 * 3600.0


@pytest.fixture
def priced(served: Served, state: Path) -> Served:
    """Provide a platform with the prices of the page."""
    section = re.search(r"^    prices:\n(?:    .*\n)+", COSTS, re.MULTILINE)
    assert section is not None
    prices = settings_from_text(textwrap.dedent(section[0]), "the page").prices
    facts = json.loads((state / PLATFORM_FILE).read_text())
    (state / PLATFORM_FILE).write_text(json.dumps({**facts, "prices": prices_to_dict(prices)}))
    return served


async def test_top_splits_the_costs_of_the_day(priced: Served) -> None:
    await add_autoscaler(priced, "iris-00001", "iris", Spent(serving=seconds(1.0), idle=seconds(2.0)))
    spent = Spent(serving=seconds(4.0), canary=seconds(0.5), claims=2.0)
    await add_autoscaler(priced, "magika-00001", "magika", spent)
    usage = Usage(datetime.now(UTC))
    usage.meter({"cpu": 1.0}).add(Spent(idle=seconds(3.6)), datetime.now(UTC))
    metadata = {"name": "small", "namespace": "default", "annotations": {USAGE_ANNOTATION: usage.to_json()}}
    await priced.cluster.create(WARM_POOL, {"metadata": metadata, "spec": {"template": {}}}, manager="test")
    step = step_of(COSTS, "knodel top   ")
    check_printed(await priced.knodel(*words(step)), step)


async def test_top_shows_tokens_and_their_cost(priced: Served) -> None:
    await add_autoscaler(priced, "iris-00001", "iris", Spent(serving=seconds(1.0), idle=seconds(2.0)))
    spent = Spent(serving=seconds(30.25), idle=seconds(9.75), prompt_tokens=6e6, completion_tokens=2e6)
    await add_autoscaler(priced, "chat-00001", "chat", spent)
    step = step_of(COSTS, "knodel top --period month")
    check_printed(await priced.knodel(*words(step)), step)


async def test_a_dry_run_shows_the_costs_of_a_model(priced: Served) -> None:
    step = step_of(COSTS, "knodel deploy iris")
    check_printed(await priced.knodel(*words(step)), step)


async def test_a_dry_run_shows_the_prices_by_the_type_of_gpu(
    priced: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "chat.yaml").write_text(
        "apiVersion: knodel.dev/v1alpha1\nkind: Model\nmetadata: {name: chat}\n"
        "spec: {storageUri: 's3://models/chat/', resources: {gpu: 1}}\n"
    )
    monkeypatch.chdir(tmp_path)
    step = step_of(COSTS, "knodel deploy -f")
    check_printed(await priced.knodel(*words(step)), step)


async def test_a_decision_is_replayed_with_another_policy(served: Served) -> None:
    await served.deploy("iris")
    await add_autoscaler(served, "iris-00001", "iris", Spent(), **{INPUTS_ANNOTATION: kept()})
    step = step_of(COSTS, "knodel explain iris")
    check_printed(await served.knodel(*words(step)), step)


def test_gpus_shows_the_nodes_of_a_cluster(api: FakeApi, config: Config, knodel: Knodel) -> None:
    api.script = script(PATHS)
    step = step_of(GPUS, "knodel gpus -A")
    check_printed(knodel(*(CONTEXT if word == "NAME" else word for word in words(step))), step)


def test_version_shows_those_of_a_cluster(api: FakeApi, config: Config, knodel: Knodel) -> None:
    api.script = cluster("knodel.dev/controller:0.1.0")
    step = step_of(RELEASES, "knodel version")
    done = knodel(*(CONTEXT if word == "prod" else word for word in words(step)))
    assert (done.code, done.err) == (0, "")
    shown = done.out.replace(CONTEXT, "prod").replace(VERSION, "0.1.0")
    assert VERSIONS.sub("", shown) == VERSIONS.sub("", step.expected)


def test_the_trace_of_the_page_of_load_tests_is_read(tmp_path: Path) -> None:
    (tmp_path / "trace.csv").write_text(f"TIMESTAMP{BENCH.partition(chr(10) + 'TIMESTAMP')[2].partition('```')[0]}")
    first, second = read_arrivals(tmp_path / "trace.csv")
    assert second - first == pytest.approx(0.052)


def test_the_file_of_gpus_is_read(tmp_path: Path) -> None:
    (tmp_path / "gpus.json").write_text(GPUS.partition("```json\n")[2].partition("```")[0])
    source = FileSource(tmp_path / "gpus.json")
    assert [one.name for one in source.read().devices] == ["Tesla P4", "Tesla P4"]
    assert source.faults() == {}


class OneGpu(Nvml):
    """NVML with the GPU of the page."""

    def nvmlDeviceGetCount(self) -> int:
        return 1

    def nvmlDeviceGetMemoryInfo(self, handle: int) -> Any:
        return SimpleNamespace(total=80 * 2**30, used=31 * 2**30)

    def nvmlDeviceGetUtilizationRates(self, handle: int) -> Any:
        return SimpleNamespace(gpu=64, memory=10)

    def nvmlDeviceGetComputeRunningProcesses(self, handle: int) -> list[Any]:
        return [SimpleNamespace(pid=pid, usedGpuMemory=used) for pid, used in ((30, 30 * 2**30), (4711, 2**29))]


async def test_gpus_shows_those_of_this_machine(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvml, "load_nvml", OneGpu)
    made = replica("one", '{"pid": 30}')
    made["metadata"] |= {"namespace": "default"}
    await served.cluster.create(POD, made, manager="test")
    [step] = [step for session in sessions(GPUS) for step in session.steps if step.command == "knodel gpus"]
    check_printed(await served.knodel(*words(step)), step)
