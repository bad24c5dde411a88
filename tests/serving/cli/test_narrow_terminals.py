"""Test the output of every verb on narrow terminals: no line is too long, and nothing that users copy is cut."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import pytest

from autoscaler.usage.meter import Spent
from clusters.base.objects import EVENT_SOURCE, MODEL_EVENT, WARM_POOL, Kind, Object
from eventing.objects.model_event import event_name
from serving.cli.base.tables import display_width
from serving.reconciler.rollout.judging.verdict import Verdict
from serving.reconciler.rollout.state import Judgement, Passed, RolloutState
from tests.serving.cli.conftest import Served
from tests.serving.cli.test_tables import make_terminal
from tests.serving.cli.test_top import add_autoscaler
from tests.support.terminal import SEQUENCE, Shown, run_on_terminal

NAME = "recommendations-of-the-home-page-europe"
OLD, NEW = f"{NAME}-00001", f"{NAME}-00002"
URI = "s3://a-bucket-of-the-team/models/recommendations/europe/2026-11-25T10:00:00/model.onnx"
SOURCE = "https://mlflow.tracking.europe.example.com/experiments/42/registered-models"
EVENT = "training-of-2026-11-25T10:00:00Z-7f3a9c52-1b1e-4c1b-9c53-2f5f6f0a7e11"
REMEDY = f"`knodel rollback {NAME} --to {OLD} --namespace default`"
MESSAGE = f"the first replica did not start: its files could not be read (模型文件损坏，无法读取): {REMEDY} goes back"
COPIED = (NAME, OLD, NEW, EVENT, REMEDY, SOURCE, "2026-11-25T10:00:01.000Z")
WORD = re.compile(r"curl .*|(?:`[^`]*`|\S)+")

VERBS = (
    ("list",),
    ("list", "-A"),
    ("get", NAME),
    ("describe", NAME),
    ("history", NAME),
    ("explain", NAME),
    ("top", "-A"),
    ("pool", "list", "-A"),
    ("events", "list", "--direction", "all"),
    ("events", "show", EVENT),
    ("events", "trace", EVENT),
    ("events", "sources"),
    ("doctor",),
    ("status",),
    ("rollout", "status", NAME),
    ("env", "list"),
    ("config", "--describe"),
    ("namespace", "default", "--label", "team.example.com/cost-center=recommendations-and-search-of-europe"),
)


def rollout() -> Object:
    """Return `status.rollout` in the second step, with a verdict of many numbers."""
    numbers = {"candidate.requests": 512.0, "candidate.errors": 0.013, "stable.errors": 0.011, "errors.upper": 0.0421}
    numbers |= {"errors.lower": -0.02, "errors.harm": 0.1, "needed": 450.0, "metric.drift-of-the-embedding": 0.123456}
    reason = "error rate is from 2 points lower to 4.21 points higher than stable (limit 10) at 99 % confidence"
    judgement = Judgement(Verdict("wait", (reason, reason), numbers), "2026-11-25T10:00:01.000Z")
    times = ("2026-11-25T10:00:00.000Z", "2026-11-25T10:00:01.000Z")
    passed = (Passed(10, *times, judgement),)
    return RolloutState(
        "Progressing", NEW, OLD, *times, step=1, percent=50, seen_at=times[1], judgement=judgement, passed=passed
    ).to_json()


def event_object() -> Object:
    """Return a ModelEvent that failed."""
    spec = {
        "eventSource": "mlflow",
        "source": SOURCE,
        "id": EVENT,
        "type": "dev.knodel.training.completed.v1",
        "time": "2026-11-25T10:00:00Z",
        "receivedAt": "2026-11-25T10:00:00.200000Z",
        "model": {"namespace": "default", "name": NAME},
        "change": {"storageUri": URI, "version": "7"},
    }
    metadata = {"name": event_name(SOURCE, EVENT), "namespace": "default", "labels": {"knodel.dev/model": NAME}}
    return {"apiVersion": MODEL_EVENT.api_version, "kind": MODEL_EVENT.kind, "metadata": metadata, "spec": spec}


async def set_status(served: Served, kind: Kind, name: str, **status: Any) -> None:
    await served.cluster.patch(kind, name, {"status": status}, "default", manager="test", subresource="status")


@pytest.fixture
async def crowded(served: Served) -> Served:
    """Provide a platform whose objects have long names, URIs and messages."""
    failed = {"type": "Ready", "status": "False", "reason": "RevisionFailed", "message": MESSAGE}
    shares = [{"revision": OLD, "percent": 50, "tag": "stable", "version": "nightly-2026-11-24", "url": "http://a.b"},
              {"revision": NEW, "percent": 50, "tag": "candidate", "version": "版本七"}]  # fmt: skip
    records = [
        {"revision": one, "version": "nightly-2026-11-24", "outcome": "rolledback", "cause": {"by": "event"},
         "at": "2026-11-25T10:00:00Z", "digest": "sha256:" + "0" * 64, "storageUri": URI}
        for one in (OLD, NEW)
    ]  # fmt: skip
    reasons = [{"rule": "Waiting", "message": "30 requests wait, and one replica processes 4 at the same time"}]
    decisions = [{"at": "2026-11-25T10:00:01.000Z", "revision": NEW, "from": 1, "to": 8, "reasons": reasons}]
    steps = [{"name": name, "milliseconds": 1234} for name in ("scheduled", "forked", "downloaded", "loaded", "warmed")]
    starts = [{"at": "2026-11-25T10:00:01.000Z", "pod": f"{NEW}-deployment-7d4b9c8f6-x2x8q", "kind": "cold",
               "milliseconds": 6170, "steps": steps, "server": {"load": 900, "warmup": 40}}]  # fmt: skip
    await served.deploy_two_versions(
        NAME,
        {"conditions": [failed, {**failed, "type": "ConfigurationsReady"}], "traffic": shares, "history": records,
         "url": f"http://{NAME}.default.localhost:8080", "replicas": {"desired": 8, "ready": 1}, "rollout": rollout(),
         "decisions": decisions, "starts": starts},
    )  # fmt: skip
    await served.deploy("iris")
    await add_autoscaler(served, NEW, NAME, Spent(serving=123_456_789.0, idle=2_000_000.0))
    template = {"modelFormat": "onnx", "resources": {"cpu": "2"}}
    pool = {"metadata": {"name": "pool-for-recommendations-of-europe", "namespace": "default"}}
    await served.cluster.create(WARM_POOL, {**pool, "spec": {"size": 2, "template": template}}, manager="test")
    await set_status(
        served, WARM_POOL, pool["metadata"]["name"], size=2, ready=1, starting=1, seed={"message": MESSAGE}
    )
    source = {
        "source": SOURCE,
        "auth": {"hmac": {"secretRef": {"name": "key"}}},
        "models": [NAME],
        "storagePrefixes": [URI],
    }
    await served.cluster.create(
        EVENT_SOURCE, {"metadata": {"name": "mlflow", "namespace": "default"}, "spec": source}, manager="test"
    )
    await set_status(served, EVENT_SOURCE, "mlflow", conditions=[{**failed, "reason": "SecretMissing"}])
    event = await served.cluster.create(MODEL_EVENT, event_object(), manager="test")
    await set_status(
        served, MODEL_EVENT, event["metadata"]["name"], phase="Failed", at="2026-11-25T10:00:01Z", message=MESSAGE
    )
    return served


def too_long(lines: list[str], columns: int) -> list[str]:
    """Return the lines that the terminal would wrap. A line that has one word only, with its label, may be longer."""
    return [line for line in lines if display_width(line) > columns and not is_one_word(line)]


def is_one_word(line: str) -> bool:
    text = re.sub(r"^\s*(?:[A-Z][\w ()]*:?\s\s+)?", "", line)
    return len(WORD.findall(text)) == 1


def lost(verb: tuple[str, ...], shown: str, whole: str) -> list[str]:
    """Return the texts that users copy which the terminal does not show whole; `list` drops its column with shares."""
    dropped = (OLD, NEW) if verb[0] == "list" else ()
    return [text for text in COPIED if text in whole and text not in shown and text not in dropped]


@pytest.mark.parametrize("verb", VERBS, ids=" ".join)
async def test_no_line_wraps_at_80_columns_and_nothing_is_lost(crowded: Served, verb: tuple[str, ...]) -> None:
    shown, piped = await asyncio.to_thread(run_on_terminal, *verb), await crowded.knodel(*verb)

    assert shown.code == piped.code
    assert shown.lines
    assert too_long(shown.lines, 80) == []
    assert lost(verb, "\n".join(shown.lines), piped.out) == []


@pytest.mark.parametrize("columns", [40, 200])
async def test_no_line_wraps_on_other_terminals(crowded: Served, monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
    for verb in VERBS:
        terminal = make_terminal(monkeypatch)
        monkeypatch.setenv("COLUMNS", str(columns))
        await crowded.knodel(*verb)
        lines = SEQUENCE.sub("", terminal.getvalue()).splitlines()

        assert lines, verb
        assert too_long(lines, columns) == [], verb


@pytest.mark.parametrize("variables", [{"NO_COLOR": "1"}, {"TERM": "dumb"}], ids=str)
async def test_output_without_colour_has_no_control_characters(crowded: Served, variables: dict[str, str]) -> None:
    def run(*arguments: str) -> Shown:
        return run_on_terminal(*arguments, columns=80, timeout=60.0, **variables)

    shown = await asyncio.to_thread(run, "wait", "iris", "--timeout", "1s")
    listed = await asyncio.to_thread(run, "list")

    assert (shown.code, listed.code) == (4, 0)
    assert "\x1b[" not in listed.raw
    assert ("\x1b[" in shown.raw) is ("TERM" not in variables)  # the progress line is redrawn in place


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
async def test_a_terminal_without_unicode_gets_other_characters_of_the_same_width(
    crowded: Served, encoding: str
) -> None:
    for verb in (("describe", NAME), ("events", "list"), ("explain", NAME)):
        shown = await asyncio.to_thread(run_on_terminal, *verb, PYTHONIOENCODING=encoding, PYTHONUTF8="0")

        assert shown.raw.isascii()
        assert too_long(shown.lines, 80) == [], verb
        assert REMEDY in "\n".join(shown.lines)
