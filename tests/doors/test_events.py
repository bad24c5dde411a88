"""The event webhook at the platform's own address, by a known sender: refused in one line, and nothing is kept."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from time import time
from typing import Any

import pytest

from tests.doors.inputs import NO_JSON_TYPES, NO_OBJECTS
from tests.doors.platform import Doors
from tests.eventing.webhook import BATCH, SECRET, SOURCE, STRUCTURED, changed, event, signature
from tests.serving.modelserver.client import Answer
from tests.support.wait import eventually

EVENT_SOURCE = {
    "metadata": {"name": "training"},
    "spec": {
        "source": SOURCE,
        "auth": {"hmac": {"secretRef": {"name": "training-key"}}},
        "models": ["magika"],
        "storagePrefixes": ["s3://models/"],
    },
}
KEYS = {"metadata": {"name": "training-key"}, "stringData": {"current": SECRET}}
LONGEST_REASON = 1200  # characters

BAD_EVENTS: Mapping[str, tuple[Any, int]] = {
    "no id": (event(id=None), 400),
    "no specversion": (event(specversion=None), 400),
    "specversion 9": (event(specversion="9"), 400),
    "an id with a line's end": (event(id="a\r\nb"), 400),
    "an id of 1 MB": (event(id="x" * 1_000_000), 400),
    "a source that is no URI, and so nobody's": (event(source="a b"), 401),
    "an upper-case extension": (event(Upper="x"), 400),
    "a bad time": (event(time="yesterday"), 400),
    "base64 that is none": (event(data=None, data_base64="%%"), 400),
    "another tenant's model": (changed(namespace="other"), 403),
    "another model": (changed(model="other"), 403),
    "a model that is none": (changed(model="../magika"), 400),
    "a digest that is none": (changed(digest="md5:1"), 400),
    "a version of two lines": (changed(version="a\nb"), 400),
    "no change": (event(data=[]), 400),
    **{f"the address {uri}": (changed(storageUri=uri), 403) for uri in (
        "http://169.254.169.254/latest/meta-data", "file:///etc/passwd", "http://localhost.evil/m", "s3://models.evil/m",
        "s3://models/../../m", "s3://models@evil/m", "http://2130706433/m", "http://[::1]/m",
        "s3://model/s/m", "gs://models/m", "s3://models", "s3://evil/?x=s3://models/", "s3://evil/#s3://models/",
    )},
}  # fmt: skip


@asynccontextmanager
async def unchanged(doors: Doors, caplog: pytest.LogCaptureFixture) -> AsyncIterator[None]:
    """A known sender, and everything after it as before."""
    for path, obj in (("/api/v1/namespaces/default/secrets", KEYS),
                      ("/apis/knodel.dev/v1alpha1/namespaces/default/eventsources", EVENT_SOURCE)):  # fmt: skip
        assert (await doors.send("POST", path, json.dumps(obj).encode())).status == 201

    async def known() -> bool:
        return (await send(doors, b"{}")).status == 400  # a stranger is 401

    await eventually(known)
    before = await doors.everything()
    yield
    assert await doors.everything() == before
    assert not [record for record in caplog.records if record.levelname in ("ERROR", "CRITICAL")]
    assert all("\n" not in record.getMessage() and "\r" not in record.getMessage() for record in caplog.records)


async def send(
    doors: Doors,
    body: bytes,
    content_type: str = STRUCTURED,
    signed: Mapping[str, str] | None = None,
    method: str = "POST",
) -> Answer:
    """One request to the webhook; `signed` stands for its own signature."""
    proof = signature(body, time()) if signed is None else signed
    headers = {name.replace("-", "_"): value for name, value in proof.items()}
    return await doors.send(method, "/events", body, {"authorization": "", "content_type": content_type, **headers})


def refused(answer: Answer, *statuses: int) -> None:
    """Why, on one line that tells nothing of this machine."""
    assert answer.status in statuses, (answer.status, answer.body[:300])
    assert answer.error.isprintable() and 0 < len(answer.error) < LONGEST_REASON
    assert not any(word in answer.error for word in ("Traceback", ".py", SECRET)), answer.error


@pytest.mark.bad_input("event-missing", "event-attributes", "event-address", "event-tenant", "event-meaning")
async def test_a_bad_event_of_a_known_sender_is_refused_alone_and_in_a_batch(
    doors: Doors, caplog: pytest.LogCaptureFixture
) -> None:
    async with unchanged(doors, caplog):
        for body, status in BAD_EVENTS.values():
            refused(await send(doors, json.dumps(body).encode()), status)
            batch = await send(doors, json.dumps([body]).encode(), BATCH)
            assert 400 <= batch.status < 500, batch.body


@pytest.mark.bad_input("event-unreadable", "event-ambiguous", "event-protocol")
async def test_what_is_no_event_at_all_is_refused(doors: Doors, caplog: pytest.LogCaptureFixture) -> None:
    async with unchanged(doors, caplog):
        for body in NO_OBJECTS.values():
            for content_type in (STRUCTURED, BATCH, "application/json"):
                refused(await send(doors, body, content_type), 400)
        for content_type in (*NO_JSON_TYPES, "application/cloudevents+xml", "application/cloudevents+avro"):
            refused(await send(doors, b"{}", content_type), 400, 415)
        for method in ("GET", "PUT", "DELETE", "PATCH"):
            answer = await send(doors, b"", method=method)
            refused(answer, 405)
            assert answer.headers["allow"] == "POST, OPTIONS"


@pytest.mark.bad_input("event-size")
async def test_a_body_without_end_is_413(doors: Doors, caplog: pytest.LogCaptureFixture) -> None:
    async with unchanged(doors, caplog):
        refused(await send(doors, b" " * (2**20 + 1)), 413)
        refused(await send(doors, b"[" + b"{}," * 1000 + b"{}]", BATCH), 400, 413)


@pytest.mark.bad_input("event-signature")
async def test_who_does_not_sign_as_agreed_is_401_whatever_is_sent(
    doors: Doors, caplog: pytest.LogCaptureFixture
) -> None:
    body = json.dumps(event()).encode()
    now = time()
    good = signature(body, now)
    bad: tuple[Mapping[str, str], ...] = (
        {}, signature(body, now - 301), signature(body, now + 301), signature(body + b" ", now),
        signature(body, now, key=b"another key of thirty-two bytes!"), {**good, "webhook-id": "msg.1"},
        {**good, "webhook-id": f"msg-1.{int(now)}"}, {**good, "webhook-timestamp": "soon"},
        {**good, "webhook-timestamp": "9" * 5000}, {**good, "webhook-timestamp": "-1"},
        *({**good, "webhook-signature": given} for given in
          ("v1", "v1,", "v1,x", "sha1=AAAA", "v0,AAAA", "v1," + "A" * 8000, good["webhook-signature"][:-4])),
    )  # fmt: skip
    async with unchanged(doors, caplog):
        for signed in bad:
            refused(await send(doors, body, signed=signed), 401)
            refused(await send(doors, b"[" * 100_000, signed=signed), 400, 401)
