"""Test the verbs that show, delete and split Models, on a running control API."""

from __future__ import annotations

import asyncio
import copy
import json

import pytest
import yaml

from clusters.base.errors import NotFound
from clusters.base.objects import EVENT, MODEL, NAMESPACE, POD, REVISION, Object
from tests.serving.cli.conftest import Served, check

READY = [{"type": "Ready", "status": "True"}, {"type": "RoutesReady", "status": "True"}]
STATUS: Object = {
    "conditions": READY,
    "url": "http://magika.default.localhost:8080",
    "replicas": {"desired": 2, "ready": 1, "starting": 1},
    "latestCreatedRevision": "magika-00002",
    "traffic": [
        {"revision": "magika-00001", "percent": 90, "version": "1"},
        {"revision": "magika-00002", "percent": 10, "version": "2", "tag": "blue"},
    ],
    "decisions": [
        {"at": "2026-01-01T00:00:00Z", "revision": "magika-00001", "from": 1, "to": 2,
         "reasons": [{"message": "8 requests at once, one replica holds 4"}]}
    ],
    "starts": [
        {"at": "2026-01-01T00:00:00Z", "revision": "magika-00001", "pod": "warm-x", "kind": "warm",
         "milliseconds": 28.5,
         "steps": [{"name": "reserve", "milliseconds": 4.5}], "server": {"load": 20.5}},
        {"at": "2026-01-01T00:00:01Z", "revision": "magika-00001", "pod": "found", "kind": "cold", "steps": []},
    ],
    "history": [
        {"revision": "magika-00001", "version": "1", "outcome": "serving", "cause": {"by": "user"},
         "at": "2026-01-01T00:00:00Z", "storageUri": "https://models.test/magika", "digest": ""}
    ],
}  # fmt: skip
ADDRESSES = [
    "http://127.0.0.1:9/namespaces/default/models/magika",
    "http://magika.default.localhost:8080 (where names below localhost resolve",
    "curl http://127.0.0.1:9/namespaces/default/models/magika/v2/models/magika",
]


@pytest.fixture
async def magika(served: Served) -> Served:
    """Deploy a Model with two versions."""
    await served.deploy_two_versions("magika", STATUS)
    return served


@pytest.mark.parametrize("verb", ["get", "describe"])
async def test_the_address_of_a_tag_names_its_revision_and_its_share(magika: Served, verb: str) -> None:
    shares: list[Object] = [{"revision": "magika-00001", "percent": 90, "tag": "stable"},
              {"revision": "magika-00002", "percent": 10, "tag": "candidate"},
              {"revision": "magika-00003", "tag": "blue"}]  # fmt: skip
    traffic = [share | {"url": f"http://{share['tag']}-magika.default.localhost:8080"} for share in shares]
    await magika.set_status("magika", {"traffic": traffic})

    lines = (await magika.knodel(verb, "magika")).out.splitlines()

    base = "http://127.0.0.1:9/namespaces/default/models/magika"
    first = next(index for index, line in enumerate(lines) if line.startswith("URL:"))
    assert lines[first : first + 4] == [
        f"URL:            {base}",
        f"Tag stable:     {base}@stable (magika-00001, 90 % of the traffic)",
        f"Tag candidate:  {base}@candidate (magika-00002, 10 % of the traffic)",
        f"Tag blue:       {base}@blue (magika-00003, 0 % of the traffic)",
    ]


@pytest.mark.parametrize(
    ("verb", "words"),
    [
        (
            "list",
            [
                "NAME",
                "magika",
                "True",
                "1/2",
                "magika-00001=90,magika-00002=10",
                "http://127.0.0.1:9/namespaces/default/models/magika",
            ],
        ),
        ("get magika", ["FIELD", "Ready", "1/2", "https://models.test/magika", *ADDRESSES]),
        (
            "describe magika",
            ["Conditions:", "Ready", "Traffic:", "10 %", "blue", "Versions:", "Events:", "none", *ADDRESSES],
        ),
        ("history magika", ["magika-00001", "serving", "user", "https://models.test/magika"]),
        (
            "explain magika",
            [
                "the latest ready version",
                "90 %",
                "1 → 2",
                "8 requests at once",
                "warm 28.5: reserve 4.5",
                "cold (duration unknown)",
            ],
        ),
        ("wait magika", ["model magika is ready at http://127.0.0.1:9/namespaces/default/models/magika"]),
    ],
)
async def test_a_model_is_shown_to_people(magika: Served, verb: str, words: list[str]) -> None:
    done = await magika.knodel(*verb.split())

    assert (done.code, done.err) == (0, "")
    assert all(word in done.out for word in words), done.out


@pytest.mark.parametrize("format", ["json", "yaml"])
@pytest.mark.parametrize(
    "verb", ["get magika", "describe magika", "history magika", "explain magika", "wait magika", "list"]
)
async def test_structured_output_is_the_object_itself(magika: Served, verb: str, format: str) -> None:
    done = await magika.knodel(*verb.split(), "-o", format)

    assert done.code == 0
    value = json.loads(done.out) if format == "json" else yaml.safe_load(done.out)
    model = copy.deepcopy(await magika.model("magika"))
    del model["metadata"]["managedFields"]
    assert value == model if verb != "list" else value["items"] == [model]


@pytest.mark.parametrize("verb", ["get magika", "list"])
async def test_managed_fields_are_shown_on_request(magika: Served, verb: str) -> None:
    done = await magika.knodel(*verb.split(), "-o", "yaml", "--show-managed-fields")

    model = await magika.model("magika")
    assert done.value() == model if verb != "list" else done.value()["items"] == [model]


@pytest.mark.parametrize(
    "arguments",
    [
        ("get", "nobody"),
        ("describe", "nobody"),
        ("history", "nobody"),
        ("explain", "nobody"),
        ("logs", "nobody"),
        ("wait", "nobody"),
        ("delete", "nobody"),
        ("promote", "nobody"),
        ("rollback", "nobody"),
        ("traffic", "nobody", "latest=100"),
        ("get", "../../secrets/token"),
        ("get", "no%00body\x1b"),
        ("get", "magika", "-n", "elsewhere"),
        ("logs", "magika"),
        ("traffic", "magika", "magika-00009=100"),
        ("rollback", "magika", "--to", "magika-00009"),
    ],
)
async def test_what_does_not_exist_is_exit_code_3(magika: Served, arguments: tuple[str, ...]) -> None:
    done = await magika.knodel(*arguments)

    assert (done.code, done.out) == (3, "")
    assert len(done.err.splitlines()) == 1
    assert done.err[:-1].isprintable()


@pytest.mark.parametrize("verb", ["get", "delete", "describe", "wait", "promote"])
async def test_an_empty_name_is_refused(magika: Served, verb: str) -> None:
    done = await magika.knodel(verb, "")

    assert done.code == 2
    assert (await magika.model("magika"))["metadata"]["name"] == "magika"


@pytest.mark.parametrize(
    ("shares", "field"),
    [
        (["latest=50"], "spec.traffic: the percents sum to 50"),
        (["latest=60", "magika-00001=60"], "spec.traffic: the percents sum to 120"),
        (["latest=101"], "spec.traffic[0].percent"),
        (["magika-00001=50", "magika-00001=50"], "spec.traffic[1].revision"),
    ],
)
async def test_a_split_that_does_not_add_up_changes_nothing(magika: Served, shares: list[str], field: str) -> None:
    before = await magika.model("magika")

    done = await magika.knodel("traffic", "magika", *shares)

    assert done.code == 2
    assert field in done.err
    assert await magika.model("magika") == before


async def test_traffic_writes_the_split_and_shows_it_once_it_is_in_force(magika: Served) -> None:
    done = await asyncio.gather(
        magika.knodel("traffic", "magika", "magika-00001=20", "latest=80", "--timeout", "10s"), put_in_force(magika)
    )

    assert done[0].code == 0, done[0].err
    assert "magika-00001" in done[0].out
    spec = (await magika.model("magika"))["spec"]
    assert spec["traffic"] == [{"revision": "magika-00001", "percent": 20}, {"latest": True, "percent": 80}]


async def test_promote_ends_the_pin(magika: Served) -> None:
    await asyncio.gather(magika.knodel("traffic", "magika", "magika-00001=100"), put_in_force(magika))

    done, _ = await asyncio.gather(magika.knodel("promote", "magika", "--timeout", "10s"), put_in_force(magika))

    assert done.code == 0, done.err
    assert "traffic" not in (await magika.model("magika"))["spec"]


async def test_a_rollback_pins_the_version_that_is_named(magika: Served) -> None:
    done, _ = await asyncio.gather(
        magika.knodel("rollback", "magika", "--to", "magika-00001", "--timeout", "10s"), put_in_force(magika)
    )

    assert done.code == 0, done.err
    assert (await magika.model("magika"))["spec"]["traffic"] == [{"revision": "magika-00001", "percent": 100}]


@pytest.mark.parametrize("arguments", [("rollback", "magika", "--to", "magika-00003"),
                                       ("traffic", "magika", "magika-00003=100")])  # fmt: skip
async def test_a_version_that_was_never_ready_is_refused_before_anything_is_written(
    magika: Served, arguments: tuple[str, ...]
) -> None:
    await magika.add_revision("magika", "magika-00003", ready="False")
    before = await magika.model("magika")

    done = await magika.knodel(*arguments)

    check(done, 2, ["magika-00003 was never ready", "magika-00001, magika-00002"])
    assert await magika.model("magika") == before


async def test_a_rollback_to_a_collected_version_warns_of_a_rollout(magika: Served) -> None:
    await magika.cluster.patch(MODEL, "magika", {"spec": {"rollout": {}}}, "default", manager="tests")
    gone = {**STATUS["history"][0], "revision": "magika-00000", "storageUri": "file:///old"}
    await magika.set_status("magika", {"history": [gone]})

    done = await magika.knodel("rollback", "magika", "--to", "magika-00000", "--timeout", "0.1s")

    assert "starts a rollout: `knodel promote magika`" in done.err


@pytest.mark.parametrize("verb", [("list", "-o", "wide"), ("get", "magika")])
async def test_storage_is_of_the_version_that_has_the_traffic(magika: Served, verb: tuple[str, ...]) -> None:
    pinned = [{"revision": "magika-00001", "percent": 100, "version": "1"}]
    record = {"version": "1", "outcome": "serving", "cause": {"by": "user"}, "at": "2026-01-01T00:00:00Z"}
    first = {**record, "revision": "magika-00001", "storageUri": "https://models.test/first"}
    second = {**record, "revision": "magika-00002", "version": "2", "storageUri": "https://models.test/magika"}
    await magika.set_status("magika", {**STATUS, "traffic": pinned, "history": [first, second]})

    out = (await magika.knodel(*verb)).out

    assert "https://models.test/first" in out
    assert "https://models.test/magika" not in out


async def test_history_writes_outcomes_as_words(magika: Served) -> None:
    record = {**STATUS["history"][0], "outcome": "rolledback"}
    await magika.set_status("magika", {**STATUS, "history": [record]})

    shown = (await magika.knodel("history", "magika")).out
    value = json.loads((await magika.knodel("history", "magika", "-o", "json")).out)

    assert "rolled back" in shown
    assert value["status"]["history"][0]["outcome"] == "rolledback"


async def test_a_rollback_without_an_earlier_version_is_an_error(magika: Served) -> None:
    await magika.set_status("magika", {"history": []})

    done = await magika.knodel("rollback", "magika")

    assert done.code == 1
    assert "--to" in done.err


async def test_a_split_that_is_not_in_force_in_time_is_exit_code_4(magika: Served) -> None:
    done = await magika.knodel("traffic", "magika", "latest=100", "--timeout", "0.1s")

    assert done.code == 4
    assert "was not ready within 0.1 s" in done.err


async def test_all_namespaces_are_listed_with_the_option(served: Served) -> None:
    await served.deploy("here")
    await served.knodel("namespace", "team")
    await served.deploy("there", "-n", "team")

    own, everything = await served.knodel("list"), await served.knodel("list", "-A")

    assert "there" not in own.out
    assert all(word in everything.out for word in ("NAMESPACE", "here", "team", "there"))


async def test_a_model_is_deleted_and_is_gone(served: Served) -> None:
    await served.deploy("magika")

    done = await served.knodel("delete", "magika", "--timeout", "10s")

    assert (done.code, done.out) == (0, "model magika deleted\n")
    with pytest.raises(NotFound):
        await served.model("magika")


async def test_a_delete_that_takes_too_long_reports_the_replicas_left(served: Served) -> None:
    await served.deploy("magika")
    await add_pod(served, "magika")

    done = await served.knodel("delete", "magika", "--timeout", "0.1s")

    assert done.code == 4
    assert "1 replicas" in done.err


async def test_the_logs_of_a_replica_are_printed(magika: Served) -> None:
    await add_pod(magika, "magika")

    done = await magika.knodel("logs", "magika")

    assert (done.code, done.out) == (0, "first\nsecond \x1b[31mred\n")  # to a file: as they are


@pytest.mark.parametrize("line", ["get nope", "describe nope", "delete nope", "logs nope", "history nope"])
async def test_a_model_that_does_not_exist_is_named_as_the_user_named_it(magika: Served, line: str) -> None:
    check(await magika.knodel(*line.split()), 3, ["model nope not found in namespace default: `knodel list -A`"])


async def test_the_logs_of_an_unknown_revision_are_refused_with_those_that_there_are(magika: Served) -> None:
    for options in ((), ("--follow",)):
        done = await magika.knodel("logs", "magika", "--revision", "nope", *options)

        check(done, 3, ["nope is not a revision or version label of model magika; known: magika-0000"])


async def test_the_logs_of_a_version_are_found_by_its_label(magika: Served) -> None:
    labelled = {"metadata": {"annotations": {"knodel.dev/version": "7"}}}
    await magika.cluster.patch(REVISION, "magika-00002", labelled, "default", manager="test")
    await add_pod(magika, "magika", revision="magika-00001")
    await add_pod(magika, "magika", "second", revision="magika-00002")

    done = await magika.knodel("logs", "magika", "--revision", "7")

    assert (done.code, done.out) == (0, "first\nsecond \x1b[31mred\n")  # of one replica


async def test_former_logs_are_of_the_replicas_that_were_restarted(magika: Served) -> None:
    await add_pod(magika, "magika")
    refused = await magika.knodel("logs", "magika", "--previous")
    await add_pod(magika, "magika", "second", restarts=1)
    done = await magika.knodel("logs", "magika", "--previous")

    check(refused, 3, ["no container of magika was restarted"])
    assert (done.code, done.out, done.err) == (0, "first\nsecond \x1b[31mred\n", "")


@pytest.mark.fault("C5")
async def test_events_of_a_model_are_described_without_their_control_characters(magika: Served) -> None:
    uid = (await magika.model("magika"))["metadata"]["uid"]
    event = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": "magika.1", "namespace": "default"},
        "involvedObject": {"uid": uid},
        "reason": "Loaded",
        "message": "by \x1b[2J\nknodel: forged",
        "lastTimestamp": "2026-01-01T00:00:00Z",
    }
    await magika.cluster.create(EVENT, event, manager="test")

    out = (await magika.knodel("describe", "magika")).out

    assert "Loaded" in out
    assert out.replace("\n", "").isprintable()
    assert not any(line.startswith("knodel: forged") for line in out.splitlines())


async def test_a_namespace_is_made_and_labelled(served: Served) -> None:
    made = await served.knodel("namespace", "team", "--label", "knodel.dev/allow-code=true", "--label", "a=b")
    changed = await served.knodel("namespace", "team", "--label", "a-", "--label", "c=d", "-o", "json")

    assert (made.code, changed.code) == (0, 0)
    labels = (await served.cluster.get(NAMESPACE, "team"))["metadata"]["labels"]
    assert labels["knodel.dev/allow-code"] == "true"
    assert "a" not in labels
    assert json.loads(changed.out)["metadata"]["labels"]["c"] == "d"


@pytest.mark.parametrize("arguments", [("Team",), ("team", "--label", "a b=c"), ("team", "--label", "a=b c"), ("",)])
async def test_a_bad_namespace_or_label_is_refused(served: Served, arguments: tuple[str, ...]) -> None:
    done = await served.knodel("namespace", *arguments)

    assert done.code == 2
    assert len(done.err.splitlines()) == 1
    assert "team" not in [item["metadata"]["name"] for item in (await served.cluster.list(NAMESPACE)).items]


async def put_in_force(served: Served) -> None:
    """Act as the reconciler: when the spec has changed, write the status for it."""
    before = (await served.model("magika"))["metadata"]["generation"]
    async with asyncio.timeout(10):
        async for event in served.cluster.watch(MODEL, "0"):
            if event.object["metadata"].get("generation", 0) > before:
                break
    await served.set_status("magika", {"conditions": READY})


async def add_pod(
    served: Served, model: str, pod: str = "first", *, revision: str = "", restarts: int | None = None
) -> None:
    """Add a replica of the Model."""
    labels = {"knodel.dev/model": model} | ({"serving.knative.dev/revision": revision} if revision else {})
    metadata = {"name": f"{model}-{pod}", "namespace": "default", "labels": labels}
    spec = {"containers": [{"name": "user-container", "image": "knodel.dev/server:0"}]}
    await served.cluster.create(
        POD, {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}, manager="test"
    )
    if restarts is not None:
        status = {"containerStatuses": [{"name": "user-container", "restartCount": restarts}]}
        await served.cluster.patch(
            POD, f"{model}-{pod}", {"status": status}, "default", manager="test", subresource="status"
        )
