"""Credentials for an API server: kubeconfig, service account, and the messages without either."""

from __future__ import annotations

import base64
import ssl
import subprocess
import sys
import tempfile
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest
import yaml
from kubernetes.aio.config import incluster_config

from clusters.base.errors import Unavailable
from clusters.kubernetes import KubernetesCluster, LoginError, connect
from clusters.kubernetes.login import SERVICE_HOST, login_for
from tests.clusters.kubernetes.api_server import NAMESPACE, FakeApiServer, fake_api_server, refuse
from tests.clusters.kubernetes.conftest import Connected, kubeconfig_of
from tests.contract.widgets import WIDGET
from tests.support.http_servers import served_by


@pytest.fixture(autouse=True)
def bare_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No kubeconfig, no Pod, no proxy."""
    for name in ("KUBECONFIG", SERVICE_HOST, "HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))


def write(path: Path, content: object) -> Path:
    """YAML into a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump(content))
    return path


async def test_the_places_of_a_kubeconfig_are_tried_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "token").write_text("t")
    (tmp_path / "home" / ".kube").mkdir(parents=True)
    (tmp_path / "home" / ".kube" / "token").write_text("t")
    write(tmp_path / "home" / ".kube" / "config", kubeconfig_of("http://127.0.0.1:1"))
    assert (await login_for(None, None)()).server == "http://127.0.0.1:1"
    monkeypatch.setenv("KUBECONFIG", str(write(tmp_path / "two", kubeconfig_of("http://127.0.0.1:2"))))
    assert (await login_for(None, None)()).server == "http://127.0.0.1:2"
    given = write(tmp_path / "three", kubeconfig_of("http://127.0.0.1:3/"))
    assert (await login_for(None, given)()).server == "http://127.0.0.1:3"


async def test_without_any_kubeconfig_the_remedy_is_named() -> None:
    with pytest.raises(LoginError, match=r"kubeconfig .*\.kube/config not found: set KUBECONFIG"):
        await connect()


async def test_an_unknown_context_is_told_with_those_that_there_are(kubeconfig: Path) -> None:
    with pytest.raises(LoginError, match=r"context 'nope' .*\(contexts: fake\)"):
        await connect("nope", kubeconfig)


@pytest.mark.parametrize("content", ["", "[", "- 1", "a: 1", "clusters: 7\ncurrent-context: x"])
async def test_a_broken_kubeconfig_is_one_line(tmp_path: Path, content: str) -> None:
    path = tmp_path / "broken"
    path.write_text(content)
    with pytest.raises(LoginError) as told:
        await connect(None, path)
    assert str(path) in str(told.value) and "\n" not in str(told.value)


async def test_an_exec_plugin_that_fails_is_told_with_its_words(tmp_path: Path) -> None:
    content = kubeconfig_of("http://127.0.0.1:1")
    plugin = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "command": "sh",
        "args": ["-c", "echo no card >&2; exit 3"],
    }
    content["users"][0]["user"] = {"exec": plugin}
    with pytest.raises(LoginError, match="no card"):
        await connect(None, write(tmp_path / "kubeconfig", content))


async def test_an_exec_plugin_gives_a_new_token_when_the_old_one_is_refused(
    server: FakeApiServer, tmp_path: Path
) -> None:
    content = kubeconfig_of(f"http://127.0.0.1:{server.port}")
    (tmp_path / "number").write_text("1")
    credential = '{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":{"token":"%s"}}'
    script = f"printf '{credential}' $(cat {tmp_path / 'number'})"
    plugin = {"apiVersion": "client.authentication.k8s.io/v1", "command": "sh", "args": ["-c", script]}
    content["users"][0]["user"] = {"exec": plugin}
    async with KubernetesCluster.connect(None, write(tmp_path / "kubeconfig", content)) as cluster:
        (tmp_path / "number").write_text("2")
        server.script("list", refuse(401, "Unauthorized"))
        await cluster.list(WIDGET)
    assert [asked.headers["authorization"] for asked in server.asked] == ["Bearer 1", "Bearer 2"]


async def test_who_acts_as_somebody_else_is_refused_rather_than_acting_as_itself(tmp_path: Path) -> None:
    content = kubeconfig_of("http://127.0.0.1:1")
    content["users"][0]["user"] = {"token": "t", "as": "somebody"}
    with pytest.raises(LoginError, match="'as'"):
        await connect(None, write(tmp_path / "kubeconfig", content))


async def test_no_key_stays_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    certificate = tmp_path / "pair.pem"
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 1 -subj /CN=t"
    subprocess.run(
        [*command.split(), "-keyout", certificate, "-out", tmp_path / "crt"], check=True, capture_output=True
    )
    data = {name: _base64(path) for name, path in (("key", certificate), ("crt", tmp_path / "crt"))}
    content = kubeconfig_of("https://127.0.0.1:1")
    content["clusters"][0]["cluster"]["certificate-authority-data"] = data["crt"]
    content["users"][0]["user"] = {"client-certificate-data": data["crt"], "client-key-data": data["key"]}
    path = write(tmp_path / "kubeconfig", content)
    for _ in range(2):
        async with await connect(None, path) as connection:
            assert connection.server == "https://127.0.0.1:1"
    assert not list((tmp_path / "tmp").iterdir())


def _certificate(folder: Path) -> Path:
    """A certificate, signed by itself, with its key beside it."""
    command = (
        "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 1 -subj /CN=t"
        " -addext subjectAltName=IP:127.0.0.1 -keyout key -out crt"
    )
    subprocess.run(command.split(), check=True, capture_output=True, cwd=folder)
    return folder / "crt"


def _base64(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()


async def test_in_a_pod_the_service_account_is_used_and_its_token_read_again(
    server: FakeApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(SERVICE_HOST, "127.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "1")
    with pytest.raises(LoginError, match="service account"):
        await connect()
    for name, content in (("TOKEN", "first\n"), ("CERT", _certificate(tmp_path).read_text())):
        path = tmp_path / name
        path.write_text(content)
        monkeypatch.setattr(incluster_config, f"SERVICE_{name}_FILENAME", str(path))
    async with await connect() as connection:
        assert connection.server == "https://127.0.0.1:1"
        refused = connection.login
        assert await refused.headers() == {"authorization": "bearer first"}
        (tmp_path / "TOKEN").write_text("second\n")
        assert await connection.renew(refused)
        assert await connection.login.headers() == {"authorization": "bearer second"}


async def test_a_server_with_a_new_authority_is_trusted_once_the_new_one_was_read(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("t")
    authority = tmp_path / "ca"
    (tmp_path / "former").mkdir()
    authority.write_text(_certificate(tmp_path / "former").read_text())
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(_certificate(tmp_path), tmp_path / "key")
    async with fake_api_server(tls) as server:
        server.put("w")
        content = kubeconfig_of(f"https://127.0.0.1:{server.port}")
        content["clusters"][0]["cluster"]["certificate-authority"] = str(authority)
        async with KubernetesCluster.connect(None, write(tmp_path / "kubeconfig", content)) as cluster:
            authority.write_text((tmp_path / "crt").read_text())
            with pytest.raises(Unavailable, match="is not trusted"):
                await cluster.get(WIDGET, "w", NAMESPACE)
            await cluster.get(WIDGET, "w", NAMESPACE)


async def test_a_token_that_cannot_be_sent_is_told_without_it(server: FakeApiServer, kubeconfig: Path) -> None:
    kubeconfig.with_name("token").write_text("secret\nsecret")
    async with KubernetesCluster.connect(None, kubeconfig) as cluster:
        with pytest.raises(Unavailable, match="token") as told:
            await cluster.get(WIDGET, "w", NAMESPACE)
    assert "secret" not in str(told.value)


@pytest.mark.parametrize(
    ("user", "words"),
    [
        ("{name: u, token: SECRET}", r"Expected key user in .*\{…\}"),
        (
            "{name: u, user: {auth-provider: {name: oidc, config: {refresh-token: SECRET}}}}",
            "Expected key client-id",
        ),
        ("{name: u, user: {username: ann, password: *SECRET}}", "undefined alias"),
    ],
)
async def test_what_is_wrong_with_a_user_is_told_without_its_secrets(tmp_path: Path, user: str, words: str) -> None:
    content = kubeconfig_of("https://127.0.0.1:1")
    del content["users"]
    path = write(tmp_path / "kubeconfig", content)
    path.write_text(f"{path.read_text()}users: [{user}]\n")
    with pytest.raises(LoginError, match=words) as told:
        await connect(None, path)
    assert "SECRET" not in str(told.value)


async def test_a_password_in_the_address_of_the_server_is_refused_without_telling_it(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("t")
    path = write(tmp_path / "kubeconfig", kubeconfig_of("https://ann:secret@127.0.0.1:1"))
    with pytest.raises(LoginError, match="contains a user or password") as told:
        await connect(None, path)
    assert "secret" not in str(told.value)


async def test_a_proxy_that_refuses_us_is_told_without_its_password(tmp_path: Path) -> None:
    class Refusing(BaseHTTPRequestHandler):
        def do_CONNECT(self) -> None:
            self.send_error(407)

        def log_message(self, format: str, *args: object) -> None:
            """Nobody reads it."""

    content = kubeconfig_of("https://127.0.0.1:1")
    (tmp_path / "token").write_text("t")
    with served_by(Refusing, "127.0.0.1") as address:
        content["clusters"][0]["cluster"]["proxy-url"] = address.replace("://", "://ann:secret@")
        async with KubernetesCluster.connect(None, write(tmp_path / "kubeconfig", content)) as cluster:
            with pytest.raises(Unavailable, match="407") as told:
                await cluster.get(WIDGET, "w", NAMESPACE)
    assert "secret" not in str(told.value)


async def test_a_proxy_of_the_environment_is_used_unless_the_server_is_excepted(
    kubeconfig: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    assert (await login_for(None, kubeconfig)()).proxy == "http://127.0.0.1:9"
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    assert (await login_for(None, kubeconfig)()).proxy is None


async def test_requests_say_who_sends_them(server: FakeApiServer, connected: Connected) -> None:
    cluster = await connected()
    await cluster.list(WIDGET)
    assert server.asked[0].headers["user-agent"] == "knodel"
    assert server.asked[0].headers["authorization"] == "Bearer first"


def test_the_client_is_imported_at_the_first_connection_only() -> None:
    program = "import sys, clusters.kubernetes; sys.exit('kubernetes' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


async def test_answers_that_are_json_by_another_name_are_taken(server: FakeApiServer, connected: Connected) -> None:
    """The issuer's keys are application/jwk-set+json, and nothing else (406)."""
    cluster = await connected()
    await cluster.list(WIDGET)
    assert server.asked[0].headers["accept"] == "application/json, */*"  # as client-go asks
