"""Test `knodel events sources` and the mapping options of `allow`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from clusters.base.objects import EVENT_SOURCE, SECRET, Object
from eventing.auth.hmac_keys import keys_of
from eventing.auth.signatures import plain_key
from tests.serving.cli.conftest import Served, check

MLFLOW = ("/mlflow", "--models", "fraud", "--storage-prefix", "s3://mlflow/")


async def mapping_of(served: Served, *options: str, stdin: str = "") -> Object:
    """Return the spec of EventSource `mlflow` after `allow` with these options."""
    done = await served.knodel("events", "allow", *MLFLOW, *options, stdin=stdin)
    assert done.code == 0, done.err
    spec = (await served.cluster.get(EVENT_SOURCE, "mlflow", "default"))["spec"]
    return dict(spec.get("mapping") or {})


async def test_a_preset_is_kept_until_another_mapping_takes_its_place(served: Served, tmp_path: Path) -> None:
    file = tmp_path / "mapping.yaml"
    file.write_text("model: fraud\nstorageUri: $.data.uri\nversion: [$.data.tag, $.data.commit]\n")
    assert await mapping_of(served, "--preset", "mlflow") == {"preset": "mlflow"}
    assert await mapping_of(served) == {"preset": "mlflow"}
    own = {"model": "fraud", "storageUri": "$.data.uri", "version": ["$.data.tag", "$.data.commit"]}
    assert await mapping_of(served, "--mapping", str(file)) == own
    assert await mapping_of(served, "--preset", "mlflow") == {"preset": "mlflow"}


async def test_the_key_for_mlflow_is_one_that_mlflow_signs_with(served: Served) -> None:
    done = await served.knodel("events", "allow", *MLFLOW, "--preset", "mlflow")
    [key] = keys_of(await served.cluster.get(SECRET, "mlflow-key", "default"))
    assert key in done.out
    assert len(plain_key(key)) >= 32


async def test_what_mlflow_signs_is_not_sent_by_us(served: Served) -> None:
    await mapping_of(served, "--preset", "mlflow")
    sent = ("events", "send", "fraud", "--uri", "s3://mlflow/7")
    check(await served.knodel(*sent), 2, ["namespace default has no EventSource with a key"])


async def test_a_mapping_is_read_from_stdin_and_may_stand_beside_a_preset(served: Served) -> None:
    text = "mapping: {model: fraud, when: [\"$.data.data[?@ == 'Fraud']\"]}"
    said = await mapping_of(served, "--preset", "mlflow", "--mapping", "-", stdin=text)
    assert said == {"preset": "mlflow", "model": "fraud", "when": ["$.data.data[?@ == 'Fraud']"]}


@pytest.mark.parametrize(
    ("text", "options", "words"),
    [
        ("model: [", (), ["--mapping"]),
        ("- model", (), ["is not a YAML mapping"]),
        ("a: 1\n---\nb: 2\n", (), ["is not a YAML mapping"]),
        ("preset: job", ("--preset", "mlflow"), ["omit --preset"]),
        ("model: fraud", (), ["spec.mapping.storageUri"]),
        ("model: $..x", ("--preset", "mlflow"), ["descendants"]),
        ("", ("--preset", "none"), ["--preset", "none"]),
    ],
)
async def test_a_mapping_that_is_none_is_refused(
    served: Served, tmp_path: Path, text: str, options: tuple[str, ...], words: list[str]
) -> None:
    file = tmp_path / "mapping.yaml"
    file.write_text(text)
    done = await served.knodel("events", "allow", *MLFLOW, "--mapping", str(file), *options)
    check(done, 2, words)
    assert not (await served.cluster.list(EVENT_SOURCE)).items


async def test_a_mapping_that_is_not_there_is_one_line(served: Served) -> None:
    check(await served.knodel("events", "allow", *MLFLOW, "--mapping", "/absent"), 2, ["/absent", "No such file"])


async def test_sources_tell_who_may_send_and_what_is_in_the_way(served: Served) -> None:
    await mapping_of(served)
    condition = {
        "type": "Ready", "status": "False", "reason": "SecretNotFound", "message": "there is no Secret mlflow-key",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }  # fmt: skip
    listed = await served.knodel("events", "sources")
    assert [word in listed.out for word in ("mlflow", "/mlflow", "fraud", "Unknown")] == [True] * 4
    patch = {"status": {"conditions": [condition]}}
    await served.cluster.patch(EVENT_SOURCE, "mlflow", patch, "default", manager="test", subresource="status")

    listed = await served.knodel("events", "sources", "-A")

    assert [word in listed.out for word in ("False", "SecretNotFound", "there is no Secret mlflow-key")] == [True] * 3
    [told] = json.loads((await served.knodel("events", "sources", "-o", "json")).out)["items"]
    assert told["status"]["conditions"] == [condition]


async def test_deny_deletes_the_event_source_that_allow_made(served: Served) -> None:
    allow = ("events", "allow", "ci/train", "--models", "iris", "--storage-prefix", "s3://models/")
    assert (await served.knodel(*allow)).code == 0

    done = await served.knodel("events", "deny", "ci/train")
    again = await served.knodel("events", "deny", "ci/train")

    assert done.code == 0, done.err
    assert "events of ci/train are refused" in done.out
    assert (await served.cluster.list(EVENT_SOURCE)).items == []
    check(again, 3, ["ci/train", "`knodel events sources`"])


async def test_of_two_sources_of_a_name_deny_asks_which(served: Served) -> None:
    allow = ("events", "allow", "ci/train", "--models", "iris", "--storage-prefix", "s3://models/")
    await served.knodel(*allow)
    spec = (await served.cluster.list(EVENT_SOURCE)).items[0]["spec"]
    other = {"apiVersion": EVENT_SOURCE.api_version, "kind": "EventSource", "spec": spec}
    await served.cluster.create(
        EVENT_SOURCE, {**other, "metadata": {"name": "other", "namespace": "default"}}, manager="test"
    )

    check(await served.knodel("events", "deny", "ci/train"), 2, ["--name", "ci-train", "other"])
    assert (await served.knodel("events", "deny", "ci/train", "--name", "other")).code == 0
    assert [one["metadata"]["name"] for one in (await served.cluster.list(EVENT_SOURCE)).items] == ["ci-train"]


async def test_a_bucket_that_no_provider_has_is_refused_in_a_prefix(served: Served) -> None:
    done = await served.knodel("events", "allow", "s", "--models", "m", "--storage-prefix", "s3://a/")

    check(done, 2, ["'a' is not a bucket name", "3 to 63 characters"])
