"""Test `--kube-context`: which cluster is used, with which credentials, and the errors of an invalid kubeconfig."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.serving.cli.conftest import COMMANDS, Config, Knodel
from tests.serving.cli.kube import (
    CONTEXT,
    TOKEN,
    FakeApi,
    Pki,
    Reply,
    Seen,
    fake_api,
    kubeconfig,
)

MACHINE = {"up", "down", "dev", "init", "serve", "completion"}
"""Verbs that act only on this machine."""
ENVIRONMENTS = {"env add", "env list", "env remove", "env use"}
"""Verbs that act on no platform."""


@pytest.mark.parametrize("verb", [verb for verb in COMMANDS if verb not in MACHINE | ENVIRONMENTS])
def test_every_verb_but_those_of_the_machine_takes_a_context(knodel: Knodel, verb: str) -> None:
    assert "--kube-context" in knodel(*verb.split(), "--help").out


@pytest.mark.parametrize("verb", sorted(MACHINE))
def test_a_verb_of_the_machine_takes_none(knodel: Knodel, verb: str) -> None:
    assert "--kube-context" not in knodel(verb, "--help").out
    done = knodel("--kube-context", CONTEXT, verb, *(["x"] if verb == "serve" else []))
    assert done.code == 2


def test_the_variable_of_the_context_does_not_turn_up_away_from_the_machine(
    knodel: Knodel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KNODEL_KUBE_CONTEXT", "nowhere")

    assert knodel("completion", "bash").code == 0
    assert "has no context 'nowhere'" in knodel("list").err or "no kubeconfig" in knodel("list").err


@pytest.mark.parametrize("arguments", [("list", "--kube-context", CONTEXT), ("--kube-context", CONTEXT, "list")])
def test_a_context_is_named_before_or_behind_the_verb(
    knodel: Knodel, api: FakeApi, config: Config, arguments: tuple[str, ...]
) -> None:
    assert knodel(*arguments).code == 0
    assert [seen.path for seen in api.seen] == ["/apis/knodel.dev/v1alpha1/namespaces/default/models"]


def test_the_variable_names_the_context_and_a_state_folder_that_is_named_wins(
    knodel: Knodel, api: FakeApi, config: Config, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("KNODEL_KUBE_CONTEXT", CONTEXT)

    assert knodel("list").code == 0
    assert "no platform runs" in knodel("list", "--state", str(tmp_path)).err
    assert len(api.seen) == 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--kube-context", CONTEXT, "--state", "/tmp/x"), "give only one of them"),
        (("--kube-context", ""), "is empty"),
        (("--kube-context", "other"), f"has no context 'other': known contexts are {CONTEXT}"),
        (("--kube-context", CONTEXT, "-n", "Not_One"), "--namespace"),
    ],
)
def test_a_context_that_cannot_be_meant_is_wrong_usage(
    knodel: Knodel, config: Config, arguments: tuple[str, ...], words: str
) -> None:
    done = knodel("list", *arguments)

    assert (done.code, done.out) == (2, "")
    assert words in done.err
    assert len(done.err.splitlines()) == 1


@pytest.mark.parametrize(
    ("given", "expected"), [([], "team"), (["-n", "other"], "other"), (["--namespace", "default"], "default")]
)
def test_the_namespace_is_the_contexts_unless_one_is_named(
    knodel: Knodel, api: FakeApi, config: Config, given: list[str], expected: str
) -> None:
    config(namespace="team")

    assert knodel("list", "--kube-context", CONTEXT, *given).code == 0
    assert f"/namespaces/{expected}/" in api.seen[0].path


def test_files_of_kubeconfig_are_joined_and_each_has_its_own_relative_paths(
    knodel: Knodel, api: FakeApi, pki: Pki, config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tmp_path / "other" / "config"
    other.parent.mkdir()
    (other.parent / "ca.crt").write_bytes(pki.authority.read_bytes())
    other.write_text(kubeconfig(api.url, {"certificate-authority": "ca.crt"}, {"token": "two"}, name="second"))
    monkeypatch.setenv("KUBECONFIG", f"{tmp_path / 'kubeconfig'}:{tmp_path / 'absent'}:{other}")

    for context in (CONTEXT, "second"):
        assert knodel("list", "--kube-context", context).code == 0

    assert [seen.headers["Authorization"] for seen in api.seen] == [f"Bearer {TOKEN}", "Bearer two"]


def test_without_the_variable_the_home_has_the_kubeconfig(
    knodel: Knodel, api: FakeApi, config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".kube").mkdir()
    (tmp_path / "kubeconfig").rename(tmp_path / ".kube" / "config")
    monkeypatch.delenv("KUBECONFIG")
    monkeypatch.setenv("HOME", str(tmp_path))

    assert knodel("list", "--kube-context", CONTEXT).code == 0


@pytest.mark.parametrize(
    ("cluster", "user", "words"),
    [
        ({"server": "nonsense"}, None, "server 'nonsense' is not an https or http URL"),
        ({"server": "https://127.0.0.1:port"}, None, "is not an https or http URL"),
        ({"proxy-url": "socks5://127.0.0.1:1"}, None, "proxy 'socks5://127.0.0.1:1' is not an http URL"),
        ({"proxy-url": "ann:pw@127.0.0.1:1"}, None, "proxy '127.0.0.1:1' is not an http URL"),
        ({"proxy-url": "http:/ann:p w@127.0.0.1:1"}, None, "proxy '127.0.0.1:1' is not an http URL"),
        ({"proxy-url": "https://ann:pw@127.0.0.1:1"}, None, "proxy 'https://127.0.0.1:1' is not an http URL"),
        ({"certificate-authority": "/no/such/ca"}, None, "/no/such/ca"),
        ({}, {"auth-provider": {"name": "oidc", "config": {"secret": "pw"}}}, "Expected key id-token in "),
        ({"certificate-authority-data": "bm8gUEVN"}, None, "certificates or key cannot be loaded"),
        ({"certificate-authority-data": "abc"}, None, "cannot be used"),
        ({}, {"client-certificate": "/no/such.crt", "client-key": "/no/such.key"}, "/no/such.crt"),
        ({}, {"token": "tök\nen"}, "characters that are not printable ASCII"),
    ],
)
def test_what_is_wrong_in_a_kubeconfig_is_named(
    knodel: Knodel, config: Config, cluster: dict[str, Any], user: dict[str, Any] | None, words: str
) -> None:
    config(user, **cluster)

    done = knodel("list", "--kube-context", CONTEXT)

    assert (done.code, done.out) == (1, "")
    assert words in done.err
    assert len(done.err.splitlines()) == 1
    assert "unexpected" not in done.err
    assert "'pw'" not in done.err and ":pw@" not in done.err


@pytest.mark.parametrize(
    ("content", "code"),
    [("", 1), ("contexts: [", 1), ("[]", 1), ("7", 1), ("contexts: 7", 1), ("contexts: [7, {}]", 1), ("{}", 2)],
)
@pytest.mark.fault("C3")
def test_a_file_that_is_no_kubeconfig_is_one_line(
    knodel: Knodel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str, code: int
) -> None:
    (tmp_path / "broken").write_text(content)
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "broken"))

    done = knodel("list", "--kube-context", CONTEXT)

    assert (done.code, done.out) == (code, "")
    assert len(done.err.splitlines()) == 1
    assert "broken" in done.err
    assert "unexpected" not in done.err


def test_a_missing_kubeconfig_is_reported_with_its_paths(
    knodel: Knodel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "absent"))

    done = knodel("list", "--kube-context", CONTEXT)

    assert done.code == 1
    assert f"no kubeconfig found at {tmp_path / 'absent'}" in done.err


def test_an_auth_provider_needs_the_extra(knodel: Knodel, config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    config({"auth-provider": {"name": "oidc", "config": {}}})
    monkeypatch.setitem(sys.modules, "kubernetes.client", None)

    done = knodel("list", "--kube-context", CONTEXT)

    assert done.code == 1
    assert "pip install 'knodel[kubernetes]'" in done.err
    assert len(done.err.splitlines()) == 1


def test_names_of_contexts_and_of_models_on_the_cluster_complete(pki: Pki, config: Config, tmp_path: Path) -> None:
    def script(_: Seen) -> Reply:
        return Reply(200, {"items": [{"metadata": {"name": name}} for name in ("magika", "mnist", "ocr")]})

    with fake_api(script, pki) as api:
        config(server=api.url)
        assert completed("knodel list --kube-context l") == ["lab"]
        assert completed(f"knodel get --kube-context {CONTEXT} m") == ["magika", "mnist"]
        assert completed(f"knodel --kube-context {CONTEXT} get o") == ["ocr"]


def completed(line: str) -> list[str]:
    """Return the completions of bash at the end of the line."""
    import os

    words = line.split(" ")
    environment = {
        **os.environ,
        "_KNODEL_COMPLETE": "bash_complete",
        "COMP_WORDS": line,
        "COMP_CWORD": str(len(words) - 1),
    }
    program = "from serving.cli.main import knodel; knodel(prog_name='knodel')"
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=False, timeout=60
    )
    return [answer.partition(",")[2] for answer in done.stdout.splitlines()]
