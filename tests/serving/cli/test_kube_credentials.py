"""Test authentication to an API server and the connection to it: tokens, certificates, plugins, TLS, proxies."""

from __future__ import annotations

import base64
import json
import socket
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from serving.client.errors import ClientError
from serving.client.kubeconfig import KubeContext
from tests.serving.cli.conftest import Config, Knodel
from tests.serving.cli.kube import (
    CONTEXT,
    NOTHING,
    SERVER_NAME,
    TOKEN,
    FakeApi,
    Pki,
    fake_api,
)

PLUGIN = """#!/bin/sh
printf '{"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": %s}' '@STATUS@'
"""


def plugin(folder: Path, status: str, *, code: int = 0, complaint: str = "") -> dict[str, Any]:
    """Return a user with credentials of an exec plugin."""
    path = folder / "plugin"
    path.write_text(PLUGIN.replace("@STATUS@", status) + f"echo '{complaint}' >&2\nexit {code}\n")
    path.chmod(0o700)
    return {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": str(path)}}


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
    """Return the content of a file as kubeconfigs embed it."""
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
        ("{}", 7, "please log in", "ended with exit code 7: please log in"),
        ("{", 0, "", "did not print an ExecCredential"),
        ("{}", 0, "", "printed neither a token nor a client certificate"),
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


def test_an_expired_token_is_renewed_and_a_failing_plugin_is_an_error(config: Config, tmp_path: Path) -> None:
    config(plugin(tmp_path, '{"token": "short", "expirationTimestamp": "2026-01-01T00:00:00Z"}'))
    server = KubeContext.find(CONTEXT).connect()

    plugin(tmp_path, '{"token": "fresh", "expirationTimestamp": "2026-01-01T00:00:00Z"}')
    assert server.credentials() == {"Authorization": "Bearer fresh"}
    plugin(tmp_path, "{}", code=1, complaint="logged out")
    with pytest.raises(ClientError, match="logged out"):
        server.credentials()


def test_a_context_connects_again_once_the_certificate_of_a_plugin_has_expired(
    config: Config, pki: Pki, tmp_path: Path
) -> None:
    pair = {"clientCertificateData": pki.client.certificate.read_text(), "clientKeyData": pki.client.key.read_text()}
    config(plugin(tmp_path, json.dumps({**pair, "expirationTimestamp": "2126-01-01T00:00:00Z"})))
    context = KubeContext.find(CONTEXT)
    assert context.connect() is context.connect()
    config(plugin(tmp_path, json.dumps({**pair, "expirationTimestamp": "2026-01-01T00:00:00Z"})))
    context = KubeContext.find(CONTEXT)
    assert context.connect() is not context.connect()


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
    assert "does not support impersonation" in done.err
    assert api.seen == []


@pytest.mark.fault("C2")
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


def test_a_server_without_tls_is_called_without_tls(knodel: Knodel, config: Config) -> None:
    with fake_api(lambda _: NOTHING, None) as plain:
        config(server=plain.url)

        assert knodel("list", "--kube-context", CONTEXT).code == 0


@contextmanager
def tunnel(to: int) -> Iterator[tuple[int, list[bytes]]]:
    """Run an HTTP proxy for one connection to port `to` of this machine; yield its port and the received heads."""
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

    assert "does not respond" in knodel("list", "--kube-context", CONTEXT).err
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    assert knodel("list", "--kube-context", CONTEXT).code == 0


INFORMED = """#!/usr/bin/env python3
import json, os
info = json.loads(os.environ["KUBERNETES_EXEC_INFO"])
cluster = info["spec"]["cluster"]
token = "-".join([os.environ["REGION"], cluster["config"]["audience"], str(info["spec"]["interactive"])])
assert cluster["server"] and cluster["certificate-authority-data"]
print(json.dumps({"apiVersion": info["apiVersion"], "kind": "ExecCredential", "status": {"token": token}}))
"""


def test_a_plugin_gets_its_variables_and_the_cluster(
    knodel: Knodel, api: FakeApi, config: Config, tmp_path: Path
) -> None:
    (tmp_path / "plugin").write_text(INFORMED)
    (tmp_path / "plugin").chmod(0o700)
    asked = {
        "apiVersion": "client.authentication.k8s.io/v1beta1",
        "command": "./plugin",  # relative to the kubeconfig
        "env": [{"name": "REGION", "value": "north"}],
        "provideClusterInfo": True,
        "interactiveMode": "Never",
    }
    extensions = [{"name": "client.authentication.k8s.io/exec", "extension": {"audience": "models"}}]
    config({"exec": asked}, extensions=extensions)

    done = knodel("list", "--kube-context", CONTEXT)

    assert (done.code, done.err) == (0, "")
    assert api.seen[0].headers["Authorization"] == "Bearer north-models-False"


def test_a_plugin_of_an_old_version_is_refused(knodel: Knodel, config: Config) -> None:
    config({"exec": {"apiVersion": "client.authentication.k8s.io/v1alpha1", "command": "plugin"}})

    assert "client.authentication.k8s.io/v1beta1" in knodel("list", "--kube-context", CONTEXT).err


def test_the_hint_of_a_plugin_that_is_not_installed_is_shown(knodel: Knodel, config: Config) -> None:
    asked = {"apiVersion": "client.authentication.k8s.io/v1", "command": "no-such", "installHint": "install\nit so"}
    config({"exec": asked})

    assert "install it so" in knodel("list", "--kube-context", CONTEXT).err
