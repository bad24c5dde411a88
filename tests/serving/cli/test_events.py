"""Test `knodel events` on a running control API with its webhook."""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime
from typing import Any

import pytest

from clusters.base.objects import EVENT_SOURCE, MODEL_EVENT, SECRET, Key, Object
from eventing.auth.hmac_keys import keys_of
from eventing.objects.model_event import event_name
from eventing.objects.outbox import PROGRESSED, PROMOTED, STARTED, OutboxEntry
from eventing.objects.outgoing import make_outgoing
from tests.serving.cli.conftest import Done, Served, check
from tests.support.wait import eventually

SOURCE = "/train/magika"
DIGEST = "sha256:" + "0" * 64


async def allow(served: Served, *options: str) -> Done:
    given = options or ("--models", "*", "--storage-prefix", "s3://models/")
    done = await served.knodel("events", "allow", SOURCE, *given)
    assert done.code == 0, done.err
    return done


async def send(served: Served, id: str = "42", *options: str) -> Done:
    """Send an event as soon as the webhook has received the EventSource."""

    async def taken() -> Done:
        done = await served.knodel(
            "events", "send", "magika", "--uri", "s3://models/magika/7", "--version", "7", "--id", id, *options
        )  # fmt: skip
        assert done.code == 0, done.err
        return done

    return await eventually(taken)


async def event(served: Served, id: str = "42") -> Object:
    return await served.cluster.get(MODEL_EVENT, event_name(SOURCE, id), "default")


async def settle(served: Served, id: str, **status: Any) -> None:
    patch = {"status": {"at": "2026-01-01T00:00:02Z", **status}}
    await served.cluster.patch(
        MODEL_EVENT, event_name(SOURCE, id), patch, "default", manager="test", subresource="status"
    )


async def tell(served: Served, number: int, type: str, **data: Any) -> None:
    """Return an outgoing event, caused by event 42."""
    known = {"namespace": "default", "model": "magika", "revision": "magika-00002"}
    cause = {"by": "event", "id": "42", "source": SOURCE}
    entry = OutboxEntry(
        f"o{number}", type, f"2026-01-01T00:00:1{number}.000Z", f"{number:020d}", "magika-00002",
        {**known, "cause": cause, **data}, "42", SOURCE,
    )  # fmt: skip
    made = make_outgoing(Key("default", "magika"), entry, None, datetime(2026, 1, 1, tzinfo=UTC))
    await served.cluster.create(MODEL_EVENT, made, manager="test")


async def test_allow_makes_an_event_source_and_shows_its_key_once(served: Served) -> None:
    done = await allow(served)
    made = await served.cluster.get(EVENT_SOURCE, "train-magika", "default")
    secret = await served.cluster.get(SECRET, "train-magika-key", "default")
    assert made["spec"] == {
        "source": SOURCE,
        "auth": {"hmac": {"secretRef": {"name": "train-magika-key"}}},
        "models": ["*"],
        "storagePrefixes": ["s3://models/"],
    }
    [key] = keys_of(secret)
    assert key.startswith("whsec_")
    assert key in done.out
    assert secret["metadata"]["ownerReferences"][0]["name"] == "train-magika"
    assert key not in (await allow(served, "--models", "team/*,iris")).out


async def test_allow_changes_what_is_named_and_nothing_else(served: Served) -> None:
    await allow(served)
    await allow(served, "--models", "team/*,iris", "--create-models")
    spec = (await served.cluster.get(EVENT_SOURCE, "train-magika", "default"))["spec"]
    assert (spec["models"], spec["storagePrefixes"], spec["createModels"]) == (
        ["team/*", "iris"], ["s3://models/"], True,
    )  # fmt: skip


async def test_a_rotated_key_leaves_the_former_valid(served: Served) -> None:
    await allow(served)
    [first] = keys_of(await served.cluster.get(SECRET, "train-magika-key", "default"))
    done = await allow(served, "--rotate")
    current, previous = keys_of(await served.cluster.get(SECRET, "train-magika-key", "default"))
    assert (previous, current in done.out, current != first) == (first, True, True)


async def test_a_script_reads_the_key_alone_and_only_a_new_one(served: Served) -> None:
    made = await allow(served, "--models", "*", "--storage-prefix", "s3://models/", "--key-only")
    [key] = keys_of(await served.cluster.get(SECRET, "train-magika-key", "default"))
    again = await served.knodel("events", "allow", SOURCE, "--key-only")
    assert (made.out, again.code, again.out) == (f"{key}\n", 2, "")
    assert "add --rotate" in again.err
    assert (await allow(served, "--key-only", "--rotate")).out.startswith("whsec_")


async def test_allow_as_json_is_the_objects(served: Served) -> None:
    done = await allow(served, "--models", "*", "--storage-prefix", "s3://models/", "-o", "json")
    source, secret = json.loads(done.out)["items"]
    assert (source["kind"], secret["kind"]) == ("EventSource", "Secret")
    assert secret["stringData"]["current"].startswith("whsec_")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ((SOURCE,), ["--models"]),
        ((SOURCE, "--models", "*"), ["--storage-prefix"]),
        ((SOURCE, "--models", "UPPER", "--storage-prefix", "s3://models/"), ["spec.models[0]"]),
        ((SOURCE, "--models", "*", "--storage-prefix", "models/"), ["spec.storagePrefixes[0]"]),
        (("two words", "--models", "*", "--storage-prefix", "s3://models/"), ["spec.source"]),
    ],
)
async def test_allow_refuses(served: Served, options: tuple[str, ...], words: list[str]) -> None:
    check(await served.knodel("events", "allow", *options), 2, words)
    assert not (await served.cluster.list(SECRET)).items


async def test_a_name_that_is_taken_by_another_source_is_refused(served: Served) -> None:
    await allow(served)
    other = ("--models", "*", "--storage-prefix", "s3://other/")
    check(await served.knodel("events", "allow", "/train/MAGIKA", *other), 2, ["train-magika", "--name"])


async def test_a_sent_event_is_kept_signed_and_once(served: Served) -> None:
    await allow(served)
    given = ("--metric", "accuracy=0.99", "--digest", DIGEST)
    assert "42 of /train/magika: taken" in (await send(served, "42", *given)).out
    assert ": copy" in (await send(served, "42", *given)).out
    other = await served.knodel("events", "send", "magika", "--uri", "s3://models/magika/8", "--id", "42")
    assert other.code == 2 and "another model or change" in other.err
    kept = (await event(served))["spec"]
    assert kept["change"] == {"storageUri": "s3://models/magika/7", "version": "7", "digest": DIGEST}
    assert kept["metrics"] == {"accuracy": 0.99}


async def test_a_prefix_is_followed_by_a_name_of_ours(served: Served) -> None:
    given = ("--models", "*", "--storage-prefix", "s3://models/")
    assert (await served.knodel("events", "allow", "/train/*", *given)).code == 0
    assert "42 of /train/knodel: taken" in (await send(served)).out
    assert "43 of /train/iris: taken" in (await send(served, "43", "--source", "/train/iris")).out


async def test_other_data_of_another_type(served: Served) -> None:
    await allow(served)
    await send(served, "1")
    given = ("--type", "org.example.other", "-d", '{"a": 1}', "--id", "9")
    done = await served.knodel("events", "send", *given)
    assert "ignored" in done.out
    assert (await event(served, "9"))["spec"]["data"] == {"a": 1}


@pytest.mark.parametrize(
    ("options", "code", "words"),
    [
        (("magika", "--uri", "s3://elsewhere/7"), 2, ["403", "storagePrefixes"]),
        (("magika",), 2, ["--uri"]),
        (("magika", "--uri", "s3://models/7", "-d", "{}"), 2, ["-d", "storageUri"]),
        (("-d", "{",), 2, ["not JSON"]),
        (("magika", "--uri", "s3://models/7", "--metric", "accuracy=high"), 2, ["NAME=NUMBER"]),
        (("magika", "--uri", "s3://models/7", "--source", "/other"), 2, ["/other", "events allow"]),
        (("magika", "--uri", "s3://models/7", "--url", "ftp://x"), 2, ["--url"]),
        (("magika", "--uri", "s3://models/7", "--url", "http://127.0.0.1:9"), 1, ["does not respond"]),
    ],
)  # fmt: skip
async def test_send_refuses(
    served: Served, options: tuple[str, ...], code: int, words: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger("eventing.webhook.app"), "disabled", True)  # its stderr is the command's here
    await allow(served)
    await send(served, "1")
    check(await served.knodel("events", "send", *options), code, words)


async def test_an_event_without_an_event_source_is_refused(served: Served) -> None:
    done = await served.knodel("events", "send", "magika", "--uri", "s3://models/7")
    check(done, 2, ["knodel events allow"])


async def test_list_shows_what_came_by_model_and_phase(served: Served) -> None:
    await allow(served)
    await send(served, "42")
    await send(served, "43")
    await settle(served, "43", phase="Failed", message="there is no Model default/magika")
    await tell(served, 1, STARTED)
    done = await served.knodel("events", "list")
    heads, *rows = [line.split() for line in done.out.splitlines()]
    assert heads == ["AGE", "MODEL", "TYPE", "ID", "SOURCE", "PHASE", "MESSAGE"]
    assert [(row[3], row[5]) for row in rows] == [("42", "Accepted"), ("43", "Failed")]
    assert len((await served.knodel("events", "list", "--phase", "Failed")).out.splitlines()) == 2
    assert len((await served.knodel("events", "list", "--model", "iris")).out.splitlines()) == 1
    out = json.loads((await served.knodel("events", "list", "--direction", "out", "-o", "json")).out)
    assert [one["spec"]["id"] for one in out["items"]] == ["o1"]


async def test_show_prints_the_event_and_its_outcome(served: Served) -> None:
    await allow(served)
    await send(served)
    await settle(served, "42", phase="Failed", message="no such \x1b[31mmodel", attempts=8)
    out = (await served.knodel("events", "show", "42")).out
    for words in (
        "Source:    /train/magika",
        "storageUri s3://models/magika/7",
        "after 8 failed attempts",
        "\\x1b",
    ):
        assert words in out
    assert json.loads((await served.knodel("events", "show", event_name(SOURCE, "42"), "-o", "json")).out)["spec"]
    check(await served.knodel("events", "show", "nobody"), 3, ["nobody", "knodel events list"])


async def test_an_id_of_two_sources_is_refused(served: Served) -> None:
    await served.knodel("events", "allow", "/train/*", "--models", "*", "--storage-prefix", "s3://models/")
    await send(served, "42", "--source", "/train/magika")
    await send(served, "42", "--source", "/train/iris")
    check(await served.knodel("events", "show", "42"), 2, ["/train/magika", "/train/iris", "--source"])
    assert (await served.knodel("events", "show", "42", "--source", "/train/iris")).code == 0


async def test_replay_asks_for_another_try_later_than_the_last(served: Served) -> None:
    await allow(served)
    await send(served)
    await settle(served, "42", phase="Failed", at="2999-01-01T00:00:00.5Z")
    assert (await served.knodel("events", "replay", "42")).out == "event 42 is processed again\n"
    annotations = (await event(served))["metadata"]["annotations"]
    assert annotations["knodel.dev/replay"] == "2999-01-01T00:00:00.500001Z"
    assert (await served.knodel("events", "replay", "--failed")).out == "event 42 is processed again\n"
    assert (await served.knodel("events", "replay", "--failed", "--model", "iris")).out == "no event has failed\n"
    check(await served.knodel("events", "replay"), 2, ["--failed"])


async def test_trace_goes_from_the_training_to_the_outcome(served: Served) -> None:
    await allow(served)
    await served.deploy("magika")
    await send(served)
    await settle(served, "42", phase="Applied", message="default/magika has generation 2 with it")
    verdict = {"decision": "pass", "at": "2026-01-01T00:00:11Z", "reasons": ["no worse"], "numbers": {"requests": 900}}
    passed = [{"percent": 10, "since": "2026-01-01T00:00:10Z", "until": "2026-01-01T00:00:11Z", "verdict": verdict}]
    await tell(served, 0, STARTED, percent=10, reasons=["magika-00002 is ready"])
    await tell(served, 2, PROGRESSED, percent=100, reasons=["step 1 (10 %) passed"])
    await tell(served, 3, PROMOTED, percent=100, reasons=["step 2 (100 %) passed"], passed=passed)
    cause = {"by": "event", "id": "42", "source": SOURCE}
    line = {"revision": "magika-00002", "version": "7", "cause": cause, "outcome": "promoted"}
    await served.set_status("magika", {"history": [{**line, "at": "2026-01-01T00:00:04Z"}]})

    done = await served.knodel("events", "trace", "42")
    rows = [line.split(maxsplit=2) for line in done.out.splitlines()[1:]]
    assert [row[1] for row in rows if row[0] < "2026-01-02"] == [
        "applied", "revision", "started", "step", "progressed", "promoted",
    ]  # fmt: skip
    assert {"sent", "received"} <= {row[1] for row in rows}
    [step] = [row[2] for row in rows if row[1] == "step"]
    assert step == "10 % since 2026-01-01T00:00:10Z: pass: no worse [requests 900]"
    assert (await served.knodel("events", "trace", "o3")).out == done.out
    items = json.loads((await served.knodel("events", "trace", "42", "-o", "json")).out)["items"]
    assert [one["kind"] for one in items] == ["ModelEvent", "Model", "ModelEvent", "ModelEvent", "ModelEvent"]


async def test_trace_of_an_event_whose_model_is_not_there(served: Served) -> None:
    await allow(served)
    await send(served)
    await settle(served, "42", phase="Failed", message="there is no Model default/magika")
    out = (await served.knodel("events", "trace", "42")).out
    assert "failed" in out
    assert "there is no Model default/magika" in out
