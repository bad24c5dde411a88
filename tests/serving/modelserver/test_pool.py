"""A pool member: its responses before a claim, the claim, and refusal of a second one."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from autoscaler.warmpool.claims.marks import ENV_TOKEN
from clusters.base.errors import KnodelError
from serving.modelserver.base.limits import ServerLimits
from serving.modelserver.base.options import LOAD_TOKEN, parse_options
from serving.modelserver.connections.sockets import Sockets, bind
from serving.modelserver.execution.workers import Workers
from serving.modelserver.model_host import MIN_THREADS
from serving.modelserver.pool.assignment_file import FILE_NAME
from serving.modelserver.server import ModelServer
from serving.storage.base.digest import of_bytes
from tests.serving.modelserver.client import HOST, Answer, ask, request, tensor
from tests.serving.modelserver.inside import ASYNC, INSIDE, PLAIN, PYTHON, SLOTS
from tests.serving.modelserver.pool import REVISION, TOKEN, TOKEN_SHA256, Member, Store, infer_of, load_path, store_of
from tests.support import models
from tests.support.halves import in_halves
from tests.support.wait import eventually

StartMember = Callable[..., Awaitable[Member]]


@pytest.fixture
async def start(tmp_path: Path) -> AsyncIterator[StartMember]:
    """Start a pool member with further options, and environment variables as keywords."""
    running: list[Member] = []

    async def run(*options: str, limits: ServerLimits | None = None, **environ: str) -> Member:
        environment = {"HOST": HOST, "TMPDIR": str(tmp_path), LOAD_TOKEN: TOKEN_SHA256, "KNODEL_ALLOW_HOSTS": HOST}
        sockets = Sockets(bind(HOST, 0, "PORT"), bind(HOST, 0, "MANAGEMENT_PORT"))
        server = ModelServer(
            parse_options(["--pool", *options], environment | environ), sockets, limits or ServerLimits()
        )
        await server.start()
        running.append(Member(server, sockets))
        return running[-1]

    yield run
    for member in running:
        async with asyncio.timeout(5):
            await member.end()
            await member.server.close()


@pytest.fixture
async def member(start: StartMember) -> Member:
    return await start()


@pytest.fixture
async def store() -> AsyncIterator[Store]:
    """Return a store of `double` that does not deliver yet."""
    async with store_of(models.double()) as made:
        yield made


async def held(member: Member, number: int) -> None:
    """Wait until `number` requests wait for the model."""
    await eventually(lambda: member.server.waiting_requests == number)


async def test_a_free_member_is_ready_on_both_ports_and_reports_nothing(member: Member) -> None:
    for port in (member.port, member.management_port):
        for path in ("/v2/health/live", "/v2/health/ready"):
            answer = await ask(port, request("GET", path))
            assert (answer.status, "knodel-revision" in answer.headers) == (200, False)
    assert await member.stats() == {
        "revision": "", "digest": None,
        "slots": 0, "active": 0, "queued": 0, "requests": 0, "busySeconds": 0.0, "memory": 0,
        "startup": {"imports": 0.0, "fetch": 0.0, "load": 0.0, "warmup": 0.0, "claimed": False, "readyFor": None},
        "download": None, "format": None,
    }  # fmt: skip


async def test_what_comes_before_the_model_is_answered_by_it_and_by_nothing_else(member: Member, store: Store) -> None:
    early = [asyncio.create_task(ask(member.port, infer_of("m", 1.0, 2.0)))]
    await held(member, 1)
    answer = await member.load(store.uri, slots=2)
    assert (answer.status, answer.json) == (200, {"name": "m", "state": "LOADING"})
    calls = (infer_of("m", 3.0), infer_of("other", 1.0), request("GET", "/v2/models/m"),
             request("GET", "/v2/models/m/versions/7/ready"), request("GET", "/v2/models/m/versions/8"),
             request("GET", "/nothing"))  # fmt: skip
    early += [asyncio.create_task(ask(member.port, call)) for call in calls]
    await held(member, 7)
    assert (await member.get("/v2/health/ready")).status == 200
    waiting = await member.stats()
    assert (waiting["queued"], waiting["busySeconds"] > 0) == (3, True)  # the inferences: the others are no work
    store.open.set()

    answers = await asyncio.gather(*early)
    assert [answer.status for answer in answers] == [200, 200, 404, 200, 200, 404, 404]
    assert [answers[at].json["outputs"][0]["data"] for at in (0, 1)] == [[2.0, 4.0], [6.0]]
    assert answers[0].json["model_version"] == REVISION
    assert answers[3].json["versions"] == [REVISION]
    assert {answer.headers["knodel-revision"] for answer in answers} == {REVISION}
    stats = await member.stats()
    assert (stats["revision"], stats["slots"], stats["queued"], stats["requests"]) == (REVISION, 2, 0, 2)
    assert (stats["startup"]["claimed"], stats["startup"]["imports"]) == (True, 0.0)
    assert stats["startup"]["load"] > 0 and stats["startup"]["readyFor"] >= 0
    assert stats["format"] == "onnx"


async def test_the_revision_is_that_of_the_load_call_not_that_of_the_pool(start: StartMember, store: Store) -> None:
    member = await start(K_REVISION="knodel-pool-small-00001")
    store.open.set()
    await member.load(store.uri)
    assert (await member.infer(tensor([1.0]))).headers["knodel-revision"] == REVISION
    assert (await ask(member.management_port, request("GET", "/v2/health/ready"))).headers[
        "knodel-revision"
    ] == REVISION


async def test_a_hundred_held_at_once_are_all_answered(member: Member, store: Store) -> None:
    calls = [asyncio.create_task(ask(member.port, infer_of("m", float(number)))) for number in range(100)]
    await held(member, 100)
    await member.load(store.uri)
    store.open.set()
    answers = await asyncio.gather(*calls)
    assert [answer.json["outputs"][0]["data"] for answer in answers] == [[2.0 * number] for number in range(100)]


async def test_a_claimed_model_is_not_warmed_up_and_shows_its_pace_by_its_first_requests(
    member: Member, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = asyncio.create_task(ask(member.port, infer_of("m", 1.0)))
    await held(member, 1)
    store.open.set()
    await member.load(store.uri)
    assert (await first).status == 200
    assert (await member.stats())["startup"]["warmup"] < 1
    submitted: list[object] = []
    submit = Workers.submit

    def counted(self: Workers, job: Any, *more: Any) -> Any:
        submitted.append(job)
        return submit(self, job, *more)

    monkeypatch.setattr(Workers, "submit", counted)

    async def in_the_loop() -> bool:
        submitted.clear()
        assert (await member.infer(tensor([1.0]))).status == 200
        return not submitted

    await eventually(in_the_loop)


@pytest.mark.parametrize(("code", "most"), [(ASYNC, SLOTS), (PLAIN, MIN_THREADS)])
async def test_a_claimed_model_has_as_many_inside_as_suits_it(
    start: StartMember, tmp_path: Path, code: str, most: int
) -> None:
    (tmp_path / "model.py").write_text(code)
    member = await start(*PYTHON, "--slots", "1")
    await member.load((tmp_path / "model.py").as_uri(), modelFormat="python", slots=SLOTS)
    await member.loading
    assert await INSIDE.most_of(member, partial(member.infer, tensor([1.0])), most) == most


async def test_connections_from_before_the_claim_are_served_after_it(member: Member, store: Store) -> None:
    kept, held_one = await member.connect(), await member.connect()
    await kept.send(request("GET", "/v2/health/ready"))
    assert (await kept.answer()).status == 200
    await held_one.send(infer_of("m", 1.0) + infer_of("m", 2.0))  # the second behind the first, in one packet
    await held(member, 1)
    store.open.set()
    await member.load(store.uri)
    assert [(await held_one.answer()).json["outputs"][0]["data"] for _ in range(2)] == [[2.0], [4.0]]
    await kept.send(infer_of("m", 3.0))
    assert (await kept.answer()).json["outputs"][0]["data"] == [6.0]


async def test_a_body_that_comes_in_pieces_is_held_and_answered(member: Member, store: Store) -> None:
    values = [float(number) for number in range(40_000)]
    whole = infer_of("m", *values)
    caller = await member.connect()
    await caller.send(whole[:100])
    await held(member, 1)
    await caller.send(whole[100:])
    store.open.set()
    await member.load(store.uri)
    assert (await caller.answer()).json["outputs"][0]["data"] == [2 * value for value in values]


async def test_more_than_slots_and_queue_is_429_and_more_than_the_budget_too(start: StartMember) -> None:
    member = await start("--slots", "1", "--queue", "1", limits=ServerLimits(body_memory=200_000))
    waiting = [await member.connect() for _ in range(2)]
    for number, caller in enumerate(waiting):
        await caller.send(infer_of("m", 1.0))
        await held(member, number + 1)
    assert (await ask(member.port, infer_of("m", 1.0))).status == 429
    waiting[0].reset()
    await held(member, 1)
    large = await member.connect()
    await large.send(request("POST", "/v2/models/m/infer", b"x" * 400_000))
    assert (await large.answer()).status == 429
    await held(member, 1)


async def test_who_waits_too_long_gets_503_and_who_leaves_is_forgotten(start: StartMember) -> None:
    member = await start("--timeout", "0.2")
    slow, gone = await member.connect(), await member.connect()
    await slow.send(infer_of("m", 1.0)[:-5])  # its body never ends
    await gone.send(infer_of("m", 1.0))
    gone.reset()
    waited = await ask(member.port, infer_of("m", 1.0))
    for answer in (waited, await slow.answer()):
        assert (answer.status, answer.headers["retry-after"]) == (503, "1")
    await held(member, 0)


@pytest.mark.parametrize("authorization", ["", "Bearer", "Bearer wrong", f"Basic {TOKEN}", "Bearer \xff", TOKEN])
async def test_a_load_without_the_token_is_refused(member: Member, authorization: str, tmp_path: Path) -> None:
    answer = await member.send_load(b"{}", **({"authorization": authorization} if authorization else {}))
    assert (answer.status, answer.headers["www-authenticate"]) == (401, "Bearer")
    assert "token" in answer.error and TOKEN not in answer.error
    assert not (tmp_path / FILE_NAME).exists()


@pytest.mark.parametrize("known", ["", TOKEN, "0" * 64])
async def test_without_the_right_variable_every_load_is_refused(start: StartMember, known: str) -> None:
    member = await start(**{LOAD_TOKEN: known})
    assert (await member.load("file:///m.onnx")).status == 401
    assert (await member.load("file:///m.onnx", token="")).status == 401


def test_the_variable_is_the_one_that_the_pool_sets() -> None:
    assert LOAD_TOKEN == ENV_TOKEN


@pytest.mark.parametrize(
    ("body", "word"),
    [(b"", "JSON|truncated"), (b"[]", "object"), (b"{}", "parameters"), (b"\xff\xfe", "JSON"),
     (b'{"parameters": {}}', "storageUri"), (b"[" * 10_000, "JSON|deep|object")],
)  # fmt: skip
async def test_a_body_that_is_none_is_refused(member: Member, body: bytes, word: str) -> None:
    answer = await member.send_load(body, authorization=f"Bearer {TOKEN}")
    assert answer.status == 400, answer.error
    assert any(one in answer.error for one in word.split("|")), answer.error


@pytest.mark.parametrize(
    "parameters",
    [{"storageUri": ""}, {"storageUri": "x" * 9000}, {"revision": "A B"}, {"revision": ""},
     {"digest": "md5:1"}, {"modelFormat": "tarot"}, {"slots": -1}, {"slots": 1.5}, {"slots": "many"}, {"timeout": -1},
     {"timeout": "nan"}, {"cpu": "inf"}, {"cpu": [1]}, {"unknown": 1}, {"storageUri": None}, {"slots": 10**30}],
)  # fmt: skip
async def test_parameters_that_make_no_sense_are_refused_and_named(
    member: Member, parameters: dict[str, Any], tmp_path: Path
) -> None:
    answer = await member.load(**{"uri": "file:///m.onnx"} | parameters)
    (name,) = parameters
    assert (answer.status, name in answer.error) == (400, True), answer.error
    assert not (tmp_path / FILE_NAME).exists()


async def test_a_body_that_is_too_large_is_413_and_a_get_405(member: Member) -> None:
    assert (await member.send_load(b"x" * 100_000, authorization=f"Bearer {TOKEN}")).status == 413
    assert (await ask(member.management_port, request("GET", load_path("m")))).status == 405
    data_port = asyncio.create_task(ask(member.port, request("POST", load_path("m"), b"{}")))
    await held(member, 1)  # on the data port it is a path like any other
    data_port.cancel()


async def test_the_index_of_a_member_needs_the_token_and_tells_what_it_was_told(member: Member, store: Store) -> None:
    async def index(**headers: str) -> Answer:
        return await ask(member.management_port, request("GET", "/v2/repository/index", b"", **headers))

    token = {"authorization": f"Bearer {TOKEN}"}
    assert ((await index()).status, (await index(**token)).json) == (401, [])
    await member.load(store.uri)
    entry = {"name": "m", "version": REVISION, "state": "LOADING", "reason": ""}
    await eventually(lambda: member.server.stats.revision == REVISION)
    assert (await index(**token)).json == [entry]
    unload = await ask(member.management_port, request("POST", "/v2/repository/models/m/unload", b"", **token))
    assert unload.status == 409
    store.open.set()
    await member.loading
    assert (await index(**token)).json == [{**entry, "state": "READY"}]


@pytest.mark.fault("W4")
async def test_the_same_assignment_again_is_200_and_another_409(member: Member, store: Store, tmp_path: Path) -> None:
    await member.load(store.uri)
    written = json.loads((tmp_path / FILE_NAME).read_text())
    assert (written["name"], written["parameters"]["revision"]) == ("m", REVISION)
    assert (await member.load(store.uri)).json == {"name": "m", "state": "LOADING"}
    others = [await member.load(store.uri, name="other"), await member.load(store.uri + "?2"),
              await member.load(store.uri, revision="m-00008"), await member.load(store.uri, slots=9)]  # fmt: skip
    assert [(answer.status, REVISION in answer.error) for answer in others] == [(409, True)] * 4
    store.open.set()
    await member.loading
    assert (await member.load(store.uri)).json == {"name": "m", "state": "READY"}
    assert json.loads((tmp_path / FILE_NAME).read_text()) == written


async def test_numbers_may_be_texts_and_nothing_is_the_servers_own(start: StartMember, store: Store) -> None:
    member = await start("--slots", "3")
    store.open.set()
    assert (
        await member.load(store.uri, cpu="0.05", timeout="300", digest="", modelFormat="onnx", slots=0)
    ).status == 200
    await member.loading
    assert (await member.stats())["slots"] == 3


async def test_an_assignment_that_cannot_be_kept_is_not_taken(start: StartMember, tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).mkdir()
    member = await start()
    answer = await member.load("file:///m.onnx")
    assert (answer.status, FILE_NAME in answer.error) == (503, True)
    assert (await member.stats())["revision"] == ""


async def test_a_failed_load_tells_who_waits_to_try_again(member: Member, tmp_path: Path) -> None:
    waiting = asyncio.create_task(ask(member.port, infer_of("m", 1.0)))
    slow = await member.connect()
    await slow.send(infer_of("m", 1.0)[:-5])
    await held(member, 2)
    await member.load(models.write(tmp_path, "truncated").as_uri())
    with pytest.raises(KnodelError, match=r"truncated\.onnx"):
        await member.loading
    for answer in (await waiting, await slow.answer(), await ask(member.port, infer_of("m", 1.0))):
        assert (answer.status, answer.headers["retry-after"]) == (503, "1")
        assert "onnx" not in answer.error


async def test_a_member_whose_files_are_not_those_of_its_claim_serves_none_of_them_and_names_both_digests(
    member: Member, store: Store
) -> None:
    recorded = of_bytes(models.triple())
    waiting = asyncio.create_task(ask(member.port, infer_of("m", 1.0)))
    await held(member, 1)
    store.open.set()
    assert (await member.load(store.uri, digest=recorded)).status == 200
    with pytest.raises(KnodelError, match=recorded) as raised:
        await member.loading
    assert of_bytes(store.content) in str(raised.value)
    for answer in (await waiting, await ask(member.port, infer_of("m", 1.0))):
        assert (answer.status, answer.headers["retry-after"]) == (503, "1")


async def test_a_member_reports_the_digest_of_what_it_loaded(member: Member, store: Store) -> None:
    store.open.set()
    await member.load(store.uri, digest=of_bytes(store.content))
    await member.loading
    assert (await member.stats())["digest"] == of_bytes(store.content)


async def test_how_far_a_download_is_can_be_seen(member: Member) -> None:
    content, rest = models.double(), asyncio.Event()
    half = len(content) // 2

    async def seen(received: int) -> bool:
        return bool((await member.stats())["download"] == {"bytes": received, "total": len(content)})

    store = await asyncio.start_server(in_halves(content, rest), HOST, 0)
    async with store:
        port = store.sockets[0].getsockname()[1]
        await member.load(f"http://{HOST}:{port}/model.onnx")
        await eventually(lambda: seen(half))
        rest.set()
        await member.loading
        assert await seen(len(content))


async def test_a_draining_member_takes_no_model(member: Member, store: Store) -> None:
    waiting = asyncio.create_task(ask(member.port, infer_of("m", 1.0)))
    await held(member, 1)
    await member.server.drain()
    assert (await waiting).status == 503
    assert (await member.get("/v2/health/ready")).status == 503
    assert (await member.load(store.uri)).status == 503


async def test_a_free_member_drains_without_waiting_for_anything(member: Member) -> None:
    with pytest.raises(StopIteration):
        member.server.drain().send(None)
