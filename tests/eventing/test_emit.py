"""Events of training scripts: accepted by the webhook, with one effect, however often they are sent."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from eventing.emit import Timing
from eventing.objects.ports import ModelChange
from knodel import NotEmitted, emit_training_completed
from tests.eventing.scripted_receiver import Receiver, receiver
from tests.eventing.webhook import SECRET, Webhook, ask, event_source
from tests.support.clock import SteppedClock


class Steps:
    """A clock that only advances by sleeping on it."""

    def __init__(self) -> None:
        self.slept: list[float] = []

    @property
    def timing(self) -> Timing:
        """Return attempts of five seconds at most, on this clock."""
        return Timing(timeout=5.0, monotonic=lambda: sum(self.slept), sleep=self.slept.append)


def emit(at: Receiver, steps: Steps | None = None, **given: Any) -> str:
    """Emit one event to the receiver."""
    known = {"url": at.url, "secret": SECRET, "wait": 600.0, "timing": (steps or Steps()).timing}
    return emit_training_completed("iris", "s3://models/iris/7/", **{**known, **given})


async def test_the_webhook_takes_it() -> None:
    with receiver(202) as door:
        told = emit(door, version="7", metrics={"accuracy": np.float32(0.5)}, id="run.7", sequence="0007")
    [(headers, body)] = door.sent
    clock = SteppedClock(datetime.now(UTC))
    webhook = Webhook(sources=[event_source(source="/training/iris")], clock=clock)

    for _ in range(2):
        reply = await ask(webhook.app, "POST", "/events", headers.items(), [body])
        assert reply.status == 202, reply.body

    [entry] = webhook.ledger.entries.values()
    assert (entry.event.id, entry.event.source) == (told, "/training/iris") == ("run.7", "/training/iris")
    assert entry.event.extensions == {"sequence": "0007", "sequencetype": "Integer"}
    assert entry.event.time is not None
    assert abs(entry.event.time - datetime.now(UTC)) < timedelta(minutes=1)
    assert entry.mapped.change == ModelChange("s3://models/iris/7/", version="7")
    assert entry.mapped.metrics == {"accuracy": 0.5}


def test_it_is_sent_again_under_the_same_id_until_it_is_taken() -> None:
    steps = Steps()
    with receiver(503, (429, {"Retry-After": "7"}), 500, 202) as door:
        emit(door, steps)
    ids = {(headers["webhook-id"], json.loads(body)["id"]) for headers, body in door.sent}
    assert len(door.sent) == 4
    assert len(ids) == 1
    assert steps.slept[1] == 7.0
    assert all(0 < pause <= 30 for pause in steps.slept)


@pytest.mark.parametrize("status", [301, 307, 400, 401, 403, 404, 413, 415])
def test_what_is_refused_is_not_sent_again(status: int) -> None:
    with receiver((status, {"Location": "http://127.0.0.1:9/"})) as door, pytest.raises(NotEmitted) as caught:
        emit(door)
    assert caught.value.status == status
    assert len(door.sent) == 1


def test_an_event_that_was_taken_before_and_has_failed_is_no_success() -> None:
    with (
        receiver(503, (202, {"Knodel-Event": "copy, failed"})) as door,
        pytest.raises(NotEmitted, match=r"`knodel events replay run\.7`") as caught,
    ):
        emit(door, id="run.7")
    assert caught.value.status == 202
    with receiver((202, {"Knodel-Event": "copy"})) as door:
        assert emit(door, id="run.7") == "run.7"


def test_after_ten_minutes_it_is_given_up_and_the_last_reason_told() -> None:
    steps = Steps()
    with receiver(503) as door, pytest.raises(NotEmitted, match=r"answered 503 .*\{\}"):
        emit(door, steps)
    assert 500 < sum(steps.slept) <= 600


def test_a_platform_that_is_away_is_waited_for_when_that_is_wanted() -> None:
    with receiver(202) as door:
        pass
    steps = Steps()
    with pytest.raises(NotEmitted, match="does not answer") as caught:
        emit(door, steps)
    assert caught.value.status is None
    assert len(steps.slept) > 10


def test_a_connection_that_loopback_refuses_is_an_error_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    with receiver(202) as door:
        pass
    for url in (door.url, door.url.replace("127.0.0.1", "localhost")):
        steps = Steps()
        with pytest.raises(
            NotEmitted, match=r"no platform listens at .*`knodel up --detach`, or set KNODEL_EVENTS_WAIT"
        ):
            emit(door, steps, url=url, wait=None)
        assert steps.slept == []

    monkeypatch.setenv("KNODEL_EVENTS_WAIT", "20")  # as the message advises
    with pytest.raises(NotEmitted, match="does not answer"):
        emit(door, steps, wait=None)
    assert 0 < sum(steps.slept) <= 20


def test_a_platform_that_is_overloaded_is_waited_for_without_being_asked() -> None:
    steps = Steps()
    with receiver(503) as door, pytest.raises(NotEmitted, match="answered 503"):
        emit(door, steps, wait=None)
    assert 200 < sum(steps.slept) <= 300


def test_each_failed_attempt_is_reported_with_the_deadline() -> None:
    with receiver(503, 202) as door:
        call = f"emit_training_completed('iris', 's3://m/7/', url={door.url!r}, secret={SECRET!r})"
        code = f"from knodel import emit_training_completed; {call}"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True,
                              cwd=Path(__file__).parents[2])  # fmt: skip
    assert re.fullmatch(
        rf"{door.url} answered 503 .*; waiting for the platform until \d\d:\d\d:\d\d \(KNODEL_EVENTS_WAIT=300\), "
        r"next attempt in 0\.\d s\n",
        done.stderr,
    )


@pytest.mark.parametrize(
    ("sequence", "sent"),
    [
        (10, {"sequence": "10", "sequencetype": "Integer"}),
        ("10", {"sequence": "10", "sequencetype": "Integer"}),
        ("-1", {"sequence": "-1", "sequencetype": "Integer"}),
        ("20261124123000", {"sequence": "20261124123000"}),
        ("2026-11-24", {"sequence": "2026-11-24"}),
        ("", {}),
    ],
)
def test_a_sequence_is_sent_with_its_type(sequence: str | int, sent: dict[str, str]) -> None:
    with receiver(202) as door:
        emit(door, sequence=sequence)
    [(_, body)] = door.sent
    assert {name: value for name, value in json.loads(body).items() if name.startswith("sequence")} == sent


def test_a_path_is_sent_as_an_address(tmp_path: Path) -> None:
    with receiver(202) as door:
        emit_training_completed("iris", tmp_path / "a b", url=door.url, secret=SECRET)
    [(_, body)] = door.sent
    assert json.loads(body)["data"]["storageUri"] == f"file://{tmp_path}/a%20b"


def test_a_text_that_is_no_address_is_not_taken_for_a_path() -> None:
    with pytest.raises(ValueError, match=r"'out/7' is not a URI .*pathlib\.Path"):
        emit_training_completed("iris", "out/7", url="http://127.0.0.1:9/events", secret=SECRET)


def test_what_is_not_said_is_not_sent() -> None:
    with receiver(202) as door:
        emit(door)
    [(_, body)] = door.sent
    sent = json.loads(body)
    assert sent["data"] == {"model": "iris", "storageUri": "s3://models/iris/7/"}
    assert set(sent) == {"specversion", "id", "source", "type", "time", "datacontenttype", "data"}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"url": ""}, "KNODEL_EVENTS_URL"),
        ({"url": "file:///etc/passwd"}, "not the URL of a webhook"),
        ({"secret": ""}, "KNODEL_EVENTS_SECRET"),
        ({"secret": "whsec_???"}, "KNODEL_EVENTS_SECRET"),
        ({"metrics": {"loss": float("nan")}}, "JSON"),
        ({"metrics": {"loss": object()}}, "JSON"),
        ({"sequence": 2**31}, "not a signed 32-bit integer"),
    ],
)
def test_what_cannot_be_an_event_is_told_before_anything_is_sent(given: dict[str, Any], message: str) -> None:
    with receiver(202) as door, pytest.raises(ValueError, match=message):
        emit(door, **given)
    assert door.sent == []


def test_without_a_key_the_advice_serves_new_and_known_sources() -> None:
    with receiver(202) as door, pytest.raises(ValueError) as refused:
        emit(door, secret="")

    assert "`knodel events allow SOURCE --models NAME --storage-prefix PREFIX`" in str(refused.value)
    assert "`knodel events allow SOURCE --rotate`" in str(refused.value)


@pytest.mark.parametrize("value", ["soon", "-1", "inf", "nan"])
def test_a_wait_that_is_no_number_of_seconds_is_refused(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KNODEL_EVENTS_WAIT", value)
    with receiver(202) as door, pytest.raises(ValueError, match=f"KNODEL_EVENTS_WAIT is '{value}': set it to a number"):
        emit(door, wait=None)
    assert door.sent == []


def test_the_environment_says_where_and_by_which_key(monkeypatch: pytest.MonkeyPatch) -> None:
    trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    with receiver(202) as door:
        for name, value in (("URL", door.url), ("SECRET", SECRET), ("SOURCE", "/ci/7")):
            monkeypatch.setenv(f"KNODEL_EVENTS_{name}", value)
        monkeypatch.setenv("TRACEPARENT", trace)
        emit_training_completed("iris", "s3://models/iris/7/")
    [(_, body)] = door.sent
    assert (json.loads(body)["source"], json.loads(body)["traceparent"]) == ("/ci/7", trace)


def test_training_scripts_need_the_standard_library_alone() -> None:
    code = (
        "import sys; from knodel import emit_training_completed;"
        "print({name.partition('.')[0] for name in sys.modules} - sys.stdlib_module_names - {'__main__'})"
    )
    done = subprocess.run([sys.executable, "-S", "-c", code], capture_output=True, text=True, check=True,
                          cwd=Path(__file__).parents[2])  # fmt: skip
    assert ast.literal_eval(done.stdout) == {"knodel", "clusters", "eventing"}
