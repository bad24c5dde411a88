"""Test `deploy` and `diff` on a running control API: only given fields change, and invalid input changes nothing."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable

import pytest

from clusters.base.errors import NotFound
from clusters.base.objects import MODEL
from serving.reconciler.rollout.state import RolloutState
from tests.serving.cli.conftest import ARTIFACT, Served, check

NOW = "2026-01-01T00:00:00.000Z"
Write = Callable[[str], str]
DOCUMENT = """
apiVersion: knodel.dev/v1alpha1
kind: Model
metadata: {{name: {name}}}
spec: {{storageUri: "https://models.test/{name}"{more}}}
"""


def models(*names: str, last: str = "") -> str:
    """Write a file with these Models; `last` are more fields of the last one."""
    return "---".join(DOCUMENT.format(name=name, more=last if name == names[-1] else "") for name in names)


async def test_deploy_makes_a_model_with_the_fields_that_are_named(served: Served) -> None:
    done = await served.knodel(
        "deploy", "magika", "--uri", ARTIFACT, "--version", "7", "--min", "1", "--max", "3", "--no-wait"
    )

    assert (done.code, done.err) == (0, "")
    model = await served.model("magika")
    assert model["spec"] == {"storageUri": ARTIFACT, "version": "7", "minReplicas": 1, "maxReplicas": 3}


async def test_deploy_changes_only_the_fields_that_are_named(served: Served) -> None:
    await served.deploy("magika", "--version", "7", "--min", "2")

    done = await served.knodel("deploy", "magika", "--max", "9", "--no-wait")

    assert done.code == 0
    spec = (await served.model("magika"))["spec"]
    assert spec == {"storageUri": ARTIFACT, "version": "7", "minReplicas": 2, "maxReplicas": 9}


async def test_deploy_changes_only_the_named_options_of_a_language_model(served: Served) -> None:
    words = ("--context-length", "4096", "--embeddings", "--adapter", "a=s3://box/a", "--engine-arg", "seed=7")
    assert (await served.knodel("deploy", "chat", "--uri", "s3://box/m", *words, "--no-wait")).code == 0
    assert (await served.model("chat"))["spec"]["llm"] == {
        "contextLength": 4096, "embeddings": True, "adapters": [{"name": "a", "uri": "s3://box/a"}],
        "engineArgs": {"seed": "7"},
    }  # fmt: skip

    words = ("--no-embeddings", "--tool-parser", "hermes", "--engine-arg", "dtype=f16", "--adapter", "b=s3://box/b")
    done = await served.knodel("deploy", "chat", *words, "--no-wait")

    assert done.code == 0, done.err
    assert (await served.model("chat"))["spec"]["llm"] == {
        "contextLength": 4096, "embeddings": False, "adapters": [{"name": "b", "uri": "s3://box/b"}],
        "toolParser": "hermes", "engineArgs": {"seed": "7", "dtype": "f16"},
    }  # fmt: skip


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--adapter", "pirate"), "--adapter: adapter 'pirate' has no URI: write NAME=URI"),
        (("--adapter", "Pirate=s3://box/a"), "spec.llm.adapters[0].name: must be lower-case letters"),
        (("--engine-arg", "seed"), "--engine-arg: engine argument 'seed' has no value: write NAME=VALUE"),
        (("--engine-arg", "--seed=1"), "spec.llm.engineArgs: must be named with"),
        (("--format", "onnx", "--embeddings"), "spec.llm: is for models of the formats gguf"),
    ],
)
async def test_wrong_options_of_a_language_model_are_refused(
    served: Served, words: tuple[str, ...], message: str
) -> None:
    check(await served.knodel("deploy", "chat", "--uri", "s3://box/m", *words, "--no-wait"), 2, [message])


async def test_a_canary_replaces_a_pin(served: Served) -> None:
    await served.deploy("magika")
    await served.add_revision("magika", "magika-00001")
    assert (await served.knodel("deploy", "-f", "-", "--no-wait", stdin=PINNED)).code == 0
    assert "traffic" in (await served.model("magika"))["spec"]

    done = await served.knodel("deploy", "magika", "--uri", "https://models.test/v2", "--canary", "10", "--no-wait")

    assert done.code == 0, done.err
    spec = (await served.model("magika"))["spec"]
    assert spec == {"storageUri": "https://models.test/v2", "canaryTrafficPercent": 10}


async def test_judged_steps_replace_a_pin_and_keep_what_was_said_of_them(served: Served) -> None:
    await served.deploy("magika")
    await served.add_revision("magika", "magika-00001")
    assert (await served.knodel("deploy", "-f", "-", "--no-wait", stdin=PINNED)).code == 0

    done = await served.knodel("deploy", "magika", "--rollout", "--no-wait")
    assert done.code == 0, done.err
    spec = (await served.model("magika"))["spec"]
    assert spec == {"storageUri": ARTIFACT, "rollout": {}}

    steps = {"steps": [5, 100]}
    await served.cluster.patch(MODEL, "magika", {"spec": {"rollout": steps}}, "default", manager="test")
    assert (await served.knodel("deploy", "magika", "--rollout", "--version", "2", "--no-wait")).code == 0
    assert (await served.model("magika"))["spec"]["rollout"] == steps
    assert (await served.knodel("deploy", "magika", "--no-rollout", "--no-wait")).code == 0
    assert "rollout" not in (await served.model("magika"))["spec"]

    refused = await served.knodel("deploy", "magika", "--rollout", "--canary", "10", "--no-wait")
    assert refused.code == 2 and "a rollout and a canary exclude each other" in refused.err


PINNED = models("magika", last=", traffic: [{revision: magika-00001, percent: 100}]")


async def test_another_deploy_leaves_the_pin(served: Served) -> None:
    await served.deploy("magika")
    await served.add_revision("magika", "magika-00001")
    await served.knodel("deploy", "-f", "-", "--no-wait", stdin=PINNED)

    done = await served.knodel("deploy", "magika", "--uri", "https://models.test/v2", "--no-wait")

    assert done.code == 0
    assert (await served.model("magika"))["spec"]["traffic"] == [{"revision": "magika-00001", "percent": 100}]


async def test_a_file_deploys_all_its_models_and_stdin_as_well(served: Served, document: Write) -> None:
    assert (await served.knodel("deploy", "-f", document(models("one", "two")), "--no-wait")).code == 0
    await served.knodel("namespace", "team")
    done = await served.knodel("deploy", "-f", "-", "--no-wait", "-n", "team", "-o", "json", stdin=models("three"))

    assert json.loads(done.out)["metadata"]["namespace"] == "team"
    found = await served.cluster.list(MODEL)
    names = sorted((item["metadata"]["namespace"], item["metadata"]["name"]) for item in found.items)
    assert names == [("default", "one"), ("default", "two"), ("team", "three")]


@pytest.mark.bad_input("object-model")
@pytest.mark.parametrize(
    ("text", "field"),
    [
        (models("one", "two", last=", minReplicas: -1"), "spec.minReplicas"),
        (models("one", "two", last=", colour: red"), "spec.colour"),
        (models("one", "one"), "one is in the file twice"),
        (models("a-one", "one", last=", traffic: [{latest: true, percent: 100, tag: a}]"), "spec.traffic[0].tag"),
    ],
)
async def test_one_bad_document_of_a_file_changes_nothing(
    served: Served, document: Write, text: str, field: str
) -> None:
    done = await served.knodel("deploy", "-f", document(text), "--no-wait")

    assert done.code == 2
    assert field in done.err
    assert not (await served.cluster.list(MODEL)).items


async def test_one_bad_document_leaves_the_models_that_are_there(served: Served) -> None:
    await served.deploy("one")
    text = models("one", "two", last=", minReplicas: -1").replace("models/one", "models/other")

    assert (await served.knodel("deploy", "-f", "-", "--no-wait", stdin=text)).code == 2
    assert (await served.model("one"))["spec"] == {"storageUri": ARTIFACT}


@pytest.mark.bad_input("command-options")
@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        (("magika", "--min", "-1"), "spec.minReplicas"),
        (("magika", "--min", "1001"), "spec.minReplicas"),
        (("magika", "--max", "1001"), "spec.maxReplicas"),
        (("magika", "--max", "-3"), "spec.maxReplicas"),
        (("magika", "--min", "3", "--max", "2"), "spec.minReplicas"),
        (("magika", "--canary", "101"), "spec.canaryTrafficPercent"),
        (("magika", "--canary", "-1"), "spec.canaryTrafficPercent"),
        (("magika", "--digest", "md5:1"), "spec.digest"),
        (("magika", "--uri", "ftp://host/model"), "spec.storageUri"),
        (("Magika",), "metadata.name"),
        (("mag_ika",), "metadata.name"),
        (("-magika",), ""),
        (("../magika",), "metadata.name"),
        (("m" * 54,), "metadata.name"),
        (("magika\x1b[31m",), "metadata.name"),
    ],
)
async def test_bad_input_is_refused_by_its_field_path_before_anything_changes(
    served: Served, arguments: tuple[str, ...], field: str
) -> None:
    uri = () if "--uri" in arguments else ("--uri", ARTIFACT)
    done = await served.knodel("deploy", *arguments, *uri, "--no-wait")

    assert done.code == 2
    assert field in done.err
    assert len(done.err.splitlines()) == 1
    assert done.err[:-1].isprintable()
    assert not (await served.cluster.list(MODEL)).items


async def test_a_new_model_needs_its_storage(served: Served) -> None:
    done = await served.knodel("deploy", "magika", "--min", "1", "--no-wait")

    assert done.code == 2
    assert "spec.storageUri" in done.err


async def test_a_dry_run_shows_each_field_that_would_change_and_how_to_set_prices(served: Served) -> None:
    await served.deploy("magika", "--min", "1")

    changed = await served.knodel("deploy", "magika", "--min", "2", "--version", "new", "--dry-run")
    same = await served.knodel("deploy", "magika", "--min", "1", "--dry-run")

    assert changed.out.splitlines()[:3] == [
        "model magika is valid and would be changed; nothing was changed",
        "  spec.minReplicas: 1 → 2",
        '  spec.version: none → "new"',
    ]
    assert "no prices are set" in changed.out
    assert "`prices: {" in changed.out
    assert "would not be changed" in same.out


async def test_a_dry_run_validates_and_changes_nothing(served: Served) -> None:
    await served.deploy("magika")

    good = await served.knodel("deploy", "magika", "--min", "2", "--dry-run", "-o", "json")
    new = await served.knodel("deploy", "other", "--uri", ARTIFACT, "--dry-run")
    bad = await served.knodel("deploy", "magika", "--min", "-2", "--dry-run")

    assert (good.code, new.code, bad.code) == (0, 0, 2)
    assert json.loads(good.out)["spec"]["minReplicas"] == 2
    assert "model other is valid and would be created; nothing was changed" in new.out
    assert "minReplicas" not in (await served.model("magika"))["spec"]
    with pytest.raises(NotFound):
        await served.model("other")


async def test_deploy_waits_until_the_new_version_is_ready(served: Served) -> None:
    waiting = asyncio.create_task(served.knodel("deploy", "magika", "--uri", ARTIFACT, "--timeout", "10s"))
    async with asyncio.timeout(10):
        watch = served.cluster.watch(MODEL, "0")
        async for _ in watch:
            break
    ready = [{"type": "Ready", "status": "True"}, {"type": "RoutesReady", "status": "True"}]
    traffic = [{"revision": "magika-00001", "percent": 100}]
    await served.set_status(
        "magika",
        {
            "conditions": ready,
            "url": "http://magika.default.test:8080",
            "latestCreatedRevision": "magika-00001",
            "traffic": traffic,
        },
    )

    done = await waiting

    assert done.code == 0, done.err
    by_path = "http://127.0.0.1:9/namespaces/default/models/magika"
    assert done.out.splitlines() == [
        "model magika, version magika-00001 has 100 % of the traffic",
        f"  URL:       {by_path}",
        "  Host URL:  http://magika.default.test:8080 (where names below test resolve, as in browsers and curl)",
        f"  Example:   curl {by_path}/v2/models/magika",
    ]


async def test_the_share_of_a_version_is_that_of_all_its_revisions_and_tags(served: Served) -> None:
    variants = [{"name": "a", "percent": 60}, {"name": "b", "percent": 40}]
    text = models("magika", last=f", variants: {json.dumps(variants)}")
    assert (await served.knodel("deploy", "-f", "-", "--no-wait", stdin=text)).code == 0
    for variant in ("a", "b"):
        await served.add_revision("magika", f"magika-{variant}-00001", variant=variant)
    traffic = [
        {"revision": "magika-a-00001", "percent": 60},
        {"revision": "magika-a-00001", "percent": 0, "tag": "blue", "url": "http://blue-magika.test"},
        {"revision": "magika-b-00001", "percent": 40},
    ]
    await served.set_status("magika", {"latestCreatedRevision": "magika-a-00001", "traffic": traffic})
    done = await served.knodel("deploy", "magika", "--min", "0", "--no-wait")
    assert "version magika-a-00001 has 100 % of the traffic" in done.out


async def test_a_deploy_that_changes_nothing_of_a_version_that_failed_gives_the_way_to_a_new_one(
    served: Served,
) -> None:
    await served.deploy("magika")
    failed = {"type": "Ready", "status": "False", "reason": "ExitCode1", "message": "no such file"}
    await served.set_status("magika", {"conditions": [failed]})
    done = await served.knodel("deploy", "magika", "--uri", ARTIFACT)
    words = ["ExitCode1: no such file; nothing was changed", "`knodel deploy magika --version LABEL` creates one"]
    check(done, 1, words)
    other = await served.knodel("deploy", "magika", "--min", "1", "--timeout", "0s")
    check(other, 4, ["was not ready within"])


async def test_a_deploy_of_what_a_rollout_refused_gives_the_ways_to_serve_it(served: Served) -> None:
    await served.deploy("magika", "--digest", f"sha256:{'0' * 64}")
    rollout = RolloutState("RolledBack", "magika-00002", "magika-00001", NOW, NOW)
    await served.set_status("magika", {"rollout": rollout.to_json(), "latestCreatedRevision": "magika-00002"})
    done = await served.knodel("deploy", "magika", "--min", "0", "--no-wait")
    assert "its rollout" not in done.out
    again = await served.knodel("deploy", "magika", "--min", "0", "--no-wait")
    assert (
        "no new version was created; its rollout was rolled back: `knodel promote magika` sends it the traffic"
        in again.out
    )
    assert "`knodel deploy magika --version LABEL` creates a new one" in again.out
    await served.set_status("magika", {"latestCreatedRevision": "magika-00003"})
    again = await served.knodel("deploy", "magika", "--min", "0", "--no-wait")
    assert "no new version was created\n" in again.out


async def test_a_version_before_that_fails_ends_no_waiting_for_the_newest(served: Served) -> None:
    await served.deploy("magika")
    failed = {"type": "Ready", "status": "False", "reason": "RevisionMissing", "message": "magika-00001 failed"}
    starting = [{"type": "ObjectsApplied", "status": "True"}, {"type": "ConfigurationsReady", "status": "Unknown"}]
    await served.set_status("magika", {"conditions": [failed, *starting]})

    waiting = asyncio.ensure_future(served.knodel("wait", "magika", "--timeout", "10s"))
    done, _ = await asyncio.wait([waiting], timeout=1.0)
    await served.set_status("magika", {"conditions": [{"type": "Ready", "status": "True"}]})

    assert not done
    assert (await waiting).code == 0


async def test_deploy_fails_with_the_reason_as_soon_as_it_is_known(served: Served) -> None:
    await served.deploy("magika")
    failed = {"type": "Ready", "status": "False", "reason": "ExitCode1", "message": "model.onnx:\nis truncated"}
    await served.set_status("magika", {"conditions": [failed]})

    done = await served.knodel("wait", "magika", "--timeout", "10s")

    assert done.code == 1
    assert done.err == "knodel: model magika is not ready: ExitCode1: model.onnx: is truncated\n"


async def test_what_is_not_ready_in_time_is_exit_code_4(served: Served) -> None:
    done = await served.knodel("deploy", "magika", "--uri", ARTIFACT, "--timeout", "0.1s")

    assert done.code == 4
    assert "was not ready within 0.1 s" in done.err


async def test_a_model_deleted_while_it_is_waited_for_is_not_found(served: Served) -> None:
    await served.deploy("magika")
    waiting = asyncio.create_task(served.knodel("wait", "magika", "--timeout", "10s"))
    await served.cluster.delete(MODEL, "magika", "default")

    assert (await waiting).code == 3


@pytest.mark.fault("C4")
async def test_two_deploys_at_once_lose_no_change(served: Served) -> None:
    await served.deploy("magika")
    changes = [("--min", "1"), ("--max", "7"), ("--version", "8")]

    answers = await asyncio.gather(*(served.knodel("deploy", "magika", *one, "--no-wait") for one in changes))

    spec = (await served.model("magika"))["spec"]
    done = {name: spec.get(name) for name in ("minReplicas", "maxReplicas", "version")}
    wanted = {"minReplicas": 1, "maxReplicas": 7, "version": "8"}
    for (name, value), answer in zip(wanted.items(), answers, strict=True):
        assert done[name] == value or answer.code == 1  # a clear conflict is allowed, a lost update is not


async def test_diff_shows_what_a_file_would_change_and_changes_nothing(served: Served) -> None:
    await served.deploy("magika", "--version", "7")
    text = models("magika", last=", version: '8'").replace("https://models.test/magika", ARTIFACT)

    done = await served.knodel("diff", "-f", "-", stdin=text)

    assert done.code == 1
    assert "-  version: '7'" in done.out
    assert "+  version: '8'" in done.out
    assert (await served.model("magika"))["spec"]["version"] == "7"


async def test_diff_of_the_same_is_empty(served: Served) -> None:
    assert (await served.knodel("deploy", "-f", "-", "--no-wait", stdin=models("magika"))).code == 0

    done = await served.knodel("diff", "-f", "-", stdin=models("magika"))

    assert (done.code, done.out) == (0, "")


async def test_diff_of_a_new_model_shows_all_of_it(served: Served) -> None:
    done = await served.knodel("diff", "-f", "-", stdin=models("magika"))

    assert done.code == 1
    assert "+  storageUri: https://models.test/magika" in done.out
    assert not (await served.cluster.list(MODEL)).items


async def test_diff_of_a_bad_file_is_refused(served: Served) -> None:
    done = await served.knodel("diff", "-f", "-", stdin=models("magika", last=", colour: red"))

    assert done.code == 2
    assert "spec.colour" in done.err


async def test_a_format_and_a_secret_are_named(served: Served) -> None:
    done = await served.knodel(
        "deploy", "lines", "--uri", "s3://models/lines", "--format", "sklearn", "--secret", "keys", "--no-wait"
    )

    assert (done.code, done.err) == (0, "")
    assert (await served.model("lines"))["spec"] == {
        "storageUri": "s3://models/lines",
        "modelFormat": "sklearn",
        "storage": {"secretRef": {"name": "keys"}},
    }


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--uri", "s3://Models/lines"], ["spec.storageUri", "s3://BUCKET/PATH"]),
        (["--uri", "pvc://models/lines"], ["spec.storageUri", "no PersistentVolumeClaims", "file://"]),
        (["--uri", ARTIFACT, "--format", "onx"], ["spec.modelFormat", "must be one of onnx, sklearn"]),
        (["--uri", ARTIFACT, "--format", "pickle"], ["spec.modelFormat", "--label knodel.dev/allow-code=true"]),
        (["--uri", ARTIFACT, "--secret", "A"], ["spec.storage.secretRef.name"]),
    ],
)
async def test_what_this_machine_cannot_serve_is_refused_before_it_is_stored(
    served: Served, options: list[str], words: list[str]
) -> None:
    done = await served.knodel("deploy", "lines", *options, "--no-wait")

    check(done, 2, words)
    with pytest.raises(NotFound):
        await served.model("lines")


async def test_a_runtime_that_the_settings_do_not_have_is_refused(served: Served) -> None:
    document = models("lines", last=", runtime: {name: large}")

    check(await served.knodel("deploy", "-f", "-", stdin=document), 2, ["spec.runtime.name", "use one of: none"])


async def test_metrics_are_refused_where_the_settings_name_no_prometheus(served: Served) -> None:
    metric = "{name: drift, query: drift, max: 1}"
    document = models("lines", last=f", rollout: {{judge: {{metrics: [{metric}]}}}}")

    words = ["spec.rollout.judge.metrics", "set rollout.prometheusUrl"]
    check(await served.knodel("deploy", "-f", "-", stdin=document), 2, words)


async def test_code_is_taken_once_the_namespace_allows_it(served: Served) -> None:
    await served.knodel("namespace", "lab", "--label", "knodel.dev/allow-code=true")

    done = await served.knodel("deploy", "lines", "--uri", ARTIFACT, "--format", "python", "--no-wait", "-n", "lab")

    assert (done.code, done.err) == (0, "")
