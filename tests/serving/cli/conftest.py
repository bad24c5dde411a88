"""Run the command inside the test, without a platform or against a real control API on an embedded cluster."""

from __future__ import annotations

import asyncio
import io
import os
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from clusters.base.clock import SystemClock
from clusters.base.distribution import VERSION
from clusters.base.objects import (
    EVENT_SOURCE,
    KINDS,
    MODEL,
    MODEL_EVENT,
    NAMESPACE,
    REVISION,
    SECRET,
    WARM_POOL,
    Object,
)
from clusters.embedded.cluster import EmbeddedCluster
from clusters.embedded.store.lock import FolderLock
from clusters.embedded.store.secrets import validate_secret
from clusters.embedded.store.store import Store
from clusters.net import unix_sockets
from clusters.net.exposition import Family, Histogram
from clusters.runtime.informer import Informer
from eventing.objects.model_event import validate_model_event
from eventing.webhook.webhook import make_webhook
from serving.cli.main import VERBS, main
from serving.control_api.app import ControlApi
from serving.control_api.guard import Guard
from serving.control_api.server import WithWebhook, listen, make_server
from serving.platform.admission import make_model_validator
from serving.types.event_source import validate_event_source
from serving.types.settings.settings import Settings
from serving.types.settings.state import CONTROL_SOCKET, TOKEN_FILE, Facts, write_private
from serving.types.warm_pool import validate_warm_pool
from tests.serving.cli.kube import NOTHING, TOKEN, FakeApi, Pki, Reply, fake_api, kubeconfig, make_pki

ARTIFACT = "https://models.test/magika"
GROUPS = {
    "pool": ("list", "set", "off", "delete"),
    "env": ("add", "list", "remove", "use"),
    "rollout": ("status", "watch"),
    "events": ("list", "show", "send", "replay", "trace", "allow", "deny", "sources"),
}
COMMANDS = [f"{verb} {one}".strip() for verb in VERBS for one in GROUPS.get(verb, ("",))]
"""Every verb, and every verb of a group."""


@dataclass(frozen=True)
class Done:
    """The exit code and output of one command."""

    code: int
    out: str
    err: str

    def value(self) -> Any:
        """Stdout as YAML, of which JSON is a part."""
        return yaml.safe_load(self.out)


Knodel = Callable[..., Done]
Config = Callable[..., None]
PROXIES = ("HTTPS_PROXY", "HTTP_PROXY", "ALL_PROXY", "NO_PROXY")


def check(done: Done, code: int, words: list[str]) -> None:
    """Check that stdout is empty and stderr is one line with these words."""
    assert (done.code, done.out) == (code, ""), done.err
    assert len(done.err.splitlines()) == 1
    assert all(word in done.err for word in words), done.err
    assert "unexpected" not in done.err


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Provide an unused state folder, without other settings in the environment."""
    for name in [name for name in os.environ if name.startswith("KNODEL_")]:
        monkeypatch.delenv(name)
    folder = tmp_path / "state"
    monkeypatch.setenv("KNODEL_STATE", str(folder))
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "no-kubeconfig"))
    return folder


@pytest.fixture
def knodel(state: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Knodel:
    """Run one command to its end."""

    def run(*arguments: str, stdin: str = "") -> Done:
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(stdin.encode()), encoding="utf-8"))
        capsys.readouterr()
        code = main(arguments)
        return Done(code, *capsys.readouterr())

    return run


def announce(
    state: Path, control: str, gateway: str = "127.0.0.1:9", token: str = TOKEN, version: str = VERSION, tls: str = ""
) -> None:
    """Write the files of a ready platform, which counts as running while this process holds the lock.

    `tls` is the address of the control API for kubectl; by default it has the port after that of `control`.
    """
    host, _, port = control.rpartition(":")
    state.mkdir(mode=0o700, exist_ok=True)
    write_private(state / TOKEN_FILE, token.encode())
    Facts(os.getpid(), 1, version, str(state), gateway, control, tls or f"{host}:{int(port) + 1}", "localhost").write()


class NoLogs:
    """A log source without Pods."""

    async def follow(self, pod: Object, *, tail: int | None, follow: bool, previous: bool) -> AsyncIterator[bytes]:
        """Return two lines, the second with an escape code."""
        yield b"first\n"
        yield b"second \x1b[31mred\n"

    def has_previous(self, pod: Object) -> bool:
        """Return whether the container was restarted, from the Pod's status."""
        return any(one["restartCount"] for one in (pod.get("status") or {}).get("containerStatuses") or ())


class NoFetcher:
    """A token verifier without issuers."""

    async def fetch(self, issuer: str) -> Any:
        """Never called: all test senders sign with a key."""
        raise AssertionError(issuer)


class Served:
    """A running control API with its cluster, and the command that uses it."""

    def __init__(self, cluster: EmbeddedCluster, run: Knodel) -> None:
        self.cluster = cluster
        self.metrics: list[Family | Histogram] = []
        self._run = run

    async def knodel(self, *arguments: str, stdin: str = "") -> Done:
        """Run one command to its end, while the API runs."""
        return await asyncio.to_thread(self._run, *arguments, stdin=stdin)

    async def deploy(self, name: str, *options: str) -> None:
        """Deploy a Model."""
        done = await self.knodel("deploy", name, "--uri", ARTIFACT, "--no-wait", *options)
        assert done.code == 0, done.err

    async def model(self, name: str, namespace: str = "default") -> Object:
        """Return the stored Model."""
        return await self.cluster.get(MODEL, name, namespace)

    async def set_status(self, name: str, status: Object) -> None:
        """Write the status as the reconciler does, for the current generation."""
        generation = (await self.model(name))["metadata"]["generation"]
        patch = {"status": {"observedGeneration": generation, **status}}
        await self.cluster.patch(MODEL, name, patch, "default", manager="test", subresource="status")

    async def deploy_two_versions(self, name: str, status: Object) -> None:
        """Deploy a Model with this status and two ready Revisions."""
        await self.deploy(name)
        await self.add_revision(name, f"{name}-00001")
        await self.add_revision(name, f"{name}-00002")
        await self.set_status(name, status)

    async def add_revision(self, model: str, name: str, *, ready: str = "True", variant: str = "") -> None:
        """Add a Revision of the Model as Knative creates it; `ready` is the status of its condition.

        Revisions with a `variant` belong to one version.
        """
        version, configuration = ("one", f"{model}-{variant}") if variant else (name, model)
        labels = {"knodel.dev/model": model, "knodel.dev/generation": version}
        labels |= {"serving.knative.dev/configuration": configuration, "knodel.dev/variant": variant}
        spec = {"containers": [{"image": "knodel.dev/server:0"}]}
        metadata = {"name": name, "namespace": "default", "labels": labels}
        revision = {"apiVersion": REVISION.api_version, "kind": "Revision", "metadata": metadata, "spec": spec}
        await self.cluster.create(REVISION, revision, manager="test")
        status = {"conditions": [{"type": "Ready", "status": ready}]}
        await self.cluster.patch(REVISION, name, {"status": status}, "default", manager="test", subresource="status")


@pytest.fixture
async def served(state: Path, knodel: Knodel) -> AsyncIterator[Served]:
    """Run a control API with all checks of Models, but without controllers."""
    state.mkdir(mode=0o700)
    store = Store.open(state / "cluster.db")
    checks = {
        MODEL: make_model_validator(store, Settings()),
        WARM_POOL: validate_warm_pool,
        SECRET: validate_secret,
        EVENT_SOURCE: validate_event_source,
        MODEL_EVENT: validate_model_event,
    }
    cluster = EmbeddedCluster(store, clock=SystemClock(), validators=checks, creates_namespaces=False)
    await cluster.create(NAMESPACE, {"metadata": {"name": "default"}}, manager="test")
    made = Served(cluster, knodel)
    api = ControlApi(
        cluster,
        kinds=KINDS,
        writable={EVENT_SOURCE, MODEL, MODEL_EVENT, WARM_POOL, NAMESPACE, SECRET},
        logs=NoLogs(),
        clock=SystemClock(),
        version="0",
        ready=lambda: True,
        metrics=lambda: made.metrics,
    )
    lock, plain = FolderLock(state), listen("127.0.0.1", 0, "--control-port")
    lock.acquire()
    sock = unix_sockets.listen(state / CONTROL_SOCKET)
    announce(state, f"127.0.0.1:{plain.getsockname()[1]}")
    sources = Informer(cluster, EVENT_SOURCE)
    webhook = make_webhook(cluster, sources, NoFetcher(), SystemClock())
    hosts = frozenset({"127.0.0.1", "localhost"})
    servers = [make_server(WithWebhook(api.app(Guard(token, hosts)), webhook)) for token in (TOKEN, None)]
    running = asyncio.gather(cluster.run(), sources.run())
    pairs = zip(servers, (sock, plain), strict=True)
    serving = asyncio.gather(*(server.serve(listener) for server, listener in pairs))
    yield made
    serving.cancel()
    running.cancel()
    await asyncio.gather(serving, running, return_exceptions=True)
    await store.close()
    lock.release()


@pytest.fixture
def document(tmp_path: Path) -> Iterator[Callable[[str], str]]:
    """Write a file with this text and return its path."""
    count = 0

    def write(text: str) -> str:
        nonlocal count
        count += 1
        path = tmp_path / f"document{count}.yaml"
        path.write_text(text)
        return str(path)

    yield write


@pytest.fixture(scope="session")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Pki:
    """Provide the certificates of all API servers."""
    return make_pki(tmp_path_factory.mktemp("pki"))


@pytest.fixture
def api(pki: Pki) -> Iterator[FakeApi]:
    """Run an API server over TLS that has no objects until its `script` is replaced."""
    with fake_api(lambda _: NOTHING, pki) as running:
        yield running


@pytest.fixture
def config(state: Path, api: FakeApi, pki: Pki, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Config:
    """Write the kubeconfig of KUBECONFIG; by default it points to `api`, with its CA and a token."""

    def write(user: dict[str, Any] | None = None, *, server: str = "", namespace: str = "", **cluster: Any) -> None:
        path = tmp_path / "kubeconfig"
        known = {"certificate-authority": str(pki.authority)} if "certificate-authority" not in cluster else {}
        given = {"token": TOKEN} if user is None else user
        path.write_text(kubeconfig(server or api.url, {**known, **cluster}, given, namespace=namespace))
        monkeypatch.setenv("KUBECONFIG", str(path))

    for name in PROXIES:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    write()
    return write


@pytest.fixture
def ingress() -> Iterator[FakeApi]:
    """Run an ingress that responds for every host."""
    with fake_api(lambda _: Reply(200, {"outputs": []}), None) as running:
        yield running
