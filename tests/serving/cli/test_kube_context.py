"""`--kube-context`: which cluster, what proves who asks, and what is said when the kubeconfig is wrong."""

from __future__ import annotations

import base64
import json
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from serving.cli.main import VERBS
from tests.serving.cli.conftest import Config, Knodel
from tests.serving.cli.kube import (
    CONTEXT,
    NOTHING,
    SERVER_NAME,
    TOKEN,
    FakeApi,
    Pki,
    Reply,
    Seen,
    fake_api,
    kubeconfig,
)

MACHINE = {"up", "down", "serve", "completion"}
"""Verbs of this machine alone."""
PLUGIN = """#!/bin/sh
printf '{"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": %s}' '@STATUS@'
"""


def plugin(folder: Path, status: str, *, code: int = 0, complaint: str = "") -> dict[str, Any]:
    """A user whose credentials an exec plugin brings."""
    path = folder / "plugin"
    path.write_text(PLUGIN.replace("@STATUS@", status) + f"echo '{complaint}' >&2\nexit {code}\n")
    path.chmod(0o700)
    return {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": str(path)}}


@pytest.mark.parametrize("verb", [verb for verb in VERBS if verb not in MACHINE])
def test_every_verb_but_those_of_the_machine_takes_a_context(knodel: Knodel, verb: str) -> None:
    assert "--kube-context" in knodel(verb, "--help").out


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
        (("--kube-context", CONTEXT, "--state", "/tmp/x"), "give one of them"),
        (("--kube-context", ""), "is empty"),
        (("--kube-context", "other"), f"has no context 'other'; known: {CONTEXT}"),
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


def test_a_token_file_may_end_in_a_newline(knodel: Knodel, api: FakeApi, config: Config, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("from-a-file\n")
    config({"tokenFile": str(tmp_path / "token")})

    assert knodel("list", "--kube-context", CONTEXT).code == 0
    assert api.seen[0].headers["Authorization"] == "Bearer from-a-file"


def test_name_and_password_are_sent_as_basic_authentication(knodel: Knodel, api: FakeApi, config: Config) -> None:
    config({"username": "ann", "password": "secret"})

    assert knodel("list", "--kube-context", CONTEXT).code == 0
    assert api.seen[0].headers["Authorization"] == "Basic " + base64.b64encode(b"ann:secret").decode()


def encoded(path: Path) -> str:
    """Its content as kubeconfigs embed it."""
    return base64.b64encode(path.read_bytes()).decode()


def test_a_client_certificate_is_shown_and_its_key_is_not_left_on_disk(
    knodel: Knodel, pki: Pki, config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    with fake_api(lambda _: NOTHING, pki, demand_certificate=True) as api:
        user = {
            "client-certificate-data": encoded(pki.client.certificate),
            "client-key-data": encoded(pki.client.key),
        }
        config(user, server=api.url, **{"certificate-authority-data": encoded(pki.authority)})

        assert knodel("list", "--kube-context", CONTEXT).code == 0

        assert api.seen[0].client == "client"
        assert "Authorization" not in api.seen[0].headers
    assert list(scratch.iterdir()) == []


def test_an_exec_plugin_brings_the_token(knodel: Knodel, api: FakeApi, config: Config, tmp_path: Path) -> None:
    config(plugin(tmp_path, '{"token": "minted"}'))

    done = knodel("list", "--kube-context", CONTEXT)

    assert (done.code, done.err) == (0, "")
    assert api.seen[0].headers["Authorization"] == "Bearer minted"


def test_an_exec_plugin_brings_a_certificate(knodel: Knodel, pki: Pki, config: Config, tmp_path: Path) -> None:
    pair = {"clientCertificateData": pki.client.certificate.read_text(), "clientKeyData": pki.client.key.read_text()}
    with fake_api(lambda _: NOTHING, pki, demand_certificate=True) as api:
        config(plugin(tmp_path, json.dumps(pair)), server=api.url)

        done = knodel("list", "--kube-context", CONTEXT)

        assert (done.code, done.err) == (0, "")
        assert api.seen[0].client == "client"


@pytest.mark.parametrize(
    ("status", "code", "complaint", "words"),
    [
        ("{}", 7, "please log in", "process returned 7. please log in"),
        ("{", 0, "", "failed to decode process output"),
        ("{}", 0, "", "missing token or clientCertificateData"),
    ],
)
def test_an_exec_plugin_that_fails_is_one_line(
    knodel: Knodel, config: Config, tmp_path: Path, status: str, code: int, complaint: str, words: str
) -> None:
    config(plugin(tmp_path, status, code=code, complaint=complaint))

    done = knodel("list", "--kube-context", CONTEXT)

    assert (done.code, done.out) == (1, "")
    assert words in done.err
    assert len(done.err.splitlines()) == 1


def test_an_exec_plugin_that_is_not_there_is_named(knodel: Knodel, config: Config) -> None:
    config({"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": "no-such-plugin"}})

    done = knodel("list", "--kube-context", CONTEXT)

    assert done.code == 1
    assert "no-such-plugin" in done.err


def test_credentials_of_somebody_else_are_not_used_in_the_place_of_an_impersonated_user(
    knodel: Knodel, api: FakeApi, config: Config
) -> None:
    config({"token": TOKEN, "as": "somebody"})

    done = knodel("list", "--kube-context", CONTEXT)

    assert done.code == 1
    assert "cannot act as somebody else" in done.err
    assert api.seen == []


def test_a_server_that_the_kubeconfigs_authority_did_not_sign_is_not_trusted(
    knodel: Knodel, api: FakeApi, pki: Pki, config: Config
) -> None:
    config(**{"certificate-authority": str(pki.stranger)})

    done = knodel("list", "--kube-context", CONTEXT)

    assert done.code == 1
    assert "is not trusted" in done.err
    assert "certificate-authority" in done.err
    assert api.seen == []


def test_who_skips_verification_is_let_through(knodel: Knodel, pki: Pki, config: Config) -> None:
    config(**{"certificate-authority": str(pki.stranger), "insecure-skip-tls-verify": True})

    assert knodel("list", "--kube-context", CONTEXT).code == 0


@pytest.mark.parametrize(("name", "code"), [(SERVER_NAME, 0), ("wrong.test", 1)])
def test_the_name_that_the_certificate_must_have_can_be_given(
    knodel: Knodel, config: Config, name: str, code: int
) -> None:
    config(**{"tls-server-name": name})

    assert knodel("list", "--kube-context", CONTEXT).code == code


def test_the_path_of_the_server_stands_before_every_path(knodel: Knodel, api: FakeApi, config: Config) -> None:
    config(server=f"{api.url}/k8s/clusters/c-1/")

    assert knodel("list", "--kube-context", CONTEXT).code == 0
    assert api.seen[0].path.startswith("/k8s/clusters/c-1/apis/knodel.dev/")


def test_a_server_without_tls_is_asked_without_tls(knodel: Knodel, config: Config) -> None:
    with fake_api(lambda _: NOTHING, None) as plain:
        config(server=plain.url)

        assert knodel("list", "--kube-context", CONTEXT).code == 0


@contextmanager
def tunnel(to: int) -> Iterator[tuple[int, list[bytes]]]:
    """An HTTP proxy for one connection to port `to` of this machine; its port, and the heads that it has seen."""
    heads: list[bytes] = []

    def pipe(source: socket.socket, sink: socket.socket) -> None:
        while content := source.recv(65536):
            sink.sendall(content)
        sink.shutdown(socket.SHUT_WR)

    def serve() -> None:
        connection, _ = listener.accept()
        with connection, socket.create_connection(("127.0.0.1", to)) as onward:
            heads.append(connection.recv(65536))
            connection.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
            back = threading.Thread(target=pipe, args=(onward, connection))
            back.start()
            pipe(connection, onward)
            back.join(10)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve)
        thread.start()
        yield listener.getsockname()[1], heads
        thread.join(10)


def test_a_proxy_of_the_cluster_is_tunnelled_through(knodel: Knodel, api: FakeApi, config: Config) -> None:
    with tunnel(api.port) as (port, heads):
        config(**{"proxy-url": f"http://ann:secret@127.0.0.1:{port}"})

        assert knodel("list", "--kube-context", CONTEXT).code == 0

    assert heads[0].startswith(f"CONNECT 127.0.0.1:{api.port} HTTP/1.".encode())
    assert b"Proxy-Authorization: Basic " + base64.b64encode(b"ann:secret") in heads[0]
    assert len(api.seen) == 1


def test_no_proxy_keeps_the_proxy_of_the_environment_away(
    knodel: Knodel, api: FakeApi, config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:9")

    assert "does not answer" in knodel("list", "--kube-context", CONTEXT).err
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    assert knodel("list", "--kube-context", CONTEXT).code == 0


@pytest.mark.parametrize(
    ("cluster", "user", "words"),
    [
        ({"server": "nonsense"}, None, "server 'nonsense' is no https or http URL"),
        ({"server": "https://127.0.0.1:port"}, None, "is no https or http URL"),
        ({"proxy-url": "socks5://127.0.0.1:1"}, None, "proxy 'socks5://127.0.0.1:1' is no http URL"),
        ({"certificate-authority": "/no/such/ca"}, None, "/no/such/ca"),
        ({"certificate-authority-data": "bm8gUEVN"}, None, "certificates or key are refused"),
        ({"certificate-authority-data": "abc"}, None, "cannot be used"),
        ({}, {"client-certificate": "/no/such.crt", "client-key": "/no/such.key"}, "/no/such.crt"),
        ({}, {"token": "tök\nen"}, "characters that no token has"),
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


@pytest.mark.parametrize(
    ("content", "code"),
    [("", 1), ("contexts: [", 1), ("[]", 1), ("7", 1), ("contexts: 7", 1), ("contexts: [7, {}]", 1), ("{}", 2)],
)
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


def test_no_kubeconfig_at_all_says_where_one_is_looked_for(
    knodel: Knodel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "absent"))

    done = knodel("list", "--kube-context", CONTEXT)

    assert done.code == 1
    assert f"there is no kubeconfig at {tmp_path / 'absent'}" in done.err


def test_without_the_package_the_extra_is_named(
    knodel: Knodel, config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "kubernetes.config", None)

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
    """What bash offers at the end of the line."""
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
