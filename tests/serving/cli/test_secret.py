"""Test `secret`: values come from files and variables, and are never printed."""

from __future__ import annotations

from pathlib import Path

import pytest

from clusters.base.objects import SECRET
from clusters.embedded.store.secrets import values_of
from tests.serving.cli.conftest import Served, check


async def test_values_come_from_files_stdin_and_variables(
    served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "config.json").write_bytes(b"\xff{}")
    monkeypatch.setenv("AWS_REGION", "eu-1")

    done = await served.knodel(
        "secret",
        "keys",
        "--file",
        str(tmp_path / "config.json"),
        "--file",
        "token=-",
        "--env",
        "AWS_REGION",
        stdin="s3c",
    )

    assert (done.code, done.out) == (0, "secret keys has AWS_REGION, config.json, token\n")
    stored = await served.cluster.get(SECRET, "keys", "default")
    assert values_of(stored) == {"config.json": b"\xff{}", "token": b"s3c", "AWS_REGION": b"eu-1"}


async def test_values_that_are_not_named_stay(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "one")
    await served.knodel("secret", "keys", "--env", "HF_TOKEN")

    done = await served.knodel("secret", "keys", "--file", "other=-", "-o", "json", stdin="two")

    assert done.value()["metadata"]["name"] == "keys"
    assert "data" not in done.value()
    stored = await served.cluster.get(SECRET, "keys", "default")
    assert values_of(stored) == {"HF_TOKEN": b"one", "other": b"two"}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], ["no value for secret keys is given"]),
        (["--env", "NOT_THERE_AT_ALL"], ["NOT_THERE_AT_ALL", "export it"]),
        (["--file", "a=/nowhere/at/all"], ["/nowhere/at/all", "No such file"]),
        (["--file", "a/b=-"], ["data[a/b]"]),
    ],
)
async def test_what_cannot_be_kept_is_one_line(served: Served, arguments: list[str], words: list[str]) -> None:
    check(await served.knodel("secret", "keys", *arguments), 2, words)
