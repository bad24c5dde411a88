"""Uploads of a large file to real stores: killed in the middle and continued, in bounded memory."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from loadtests.bench.servers.environments import Peer, cache
from serving.storage.fetch import StorageOptions, fetch
from serving.storage.upload.content import PART
from serving.storage.upload.uploader import LIMITS
from tests.serving.storage.conftest import LOOPBACK
from tests.support.ports import free_port
from tests.support.s3 import KEYS, fill, listens
from tests.testbed import golang, paths
from tests.testbed.waiting import becomes

SIZE = 200 << 20
KILLED_AFTER = 70 << 20
MOST_MEMORY = 128 << 20
"""Bytes; half of them are the interpreter and botocore."""
GATEWAY = "github.com/versity/versitygw/cmd/versitygw@v1.8.0"
REGISTRY = "github.com/distribution/distribution/v3/cmd/registry@v3.1.2"
EMULATOR = Peer("gcp-storage-emulator", "2026.7.19", ())
PROGRAM = """
import os, sys
from pathlib import Path
from serving.storage.upload.upload import upload

path, prefix, cache = sys.argv[1:]
shown = lambda phase, done, total: print(phase, done, flush=True)
stored = upload(Path(path), prefix, os.environ, Path(cache), progress=shown)
(peak,) = (line.split()[1] for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
print("stored", stored.uri, stored.digest, stored.sent, int(peak) << 10)
"""


@pytest.fixture(autouse=True)
def kept_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the programs that are built for later runs: the home folder of tests is a temporary one."""
    if "XDG_CACHE_HOME" not in os.environ:
        monkeypatch.setenv("XDG_CACHE_HOME", str(paths.home(os.environ) / ".cache"))


@dataclass(frozen=True)
class Running:
    """A running store: the prefix for artifacts, and the variables with its address and credentials."""

    prefix: str
    environ: Mapping[str, str]


def program(package: str) -> Path:
    """Return a Go program, which is built once."""
    name = package.rpartition("/")[2]
    folder = cache(os.environ).parent / "programs" / name
    built = folder / name.partition("@")[0]
    if not built.exists():
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("GOBIN", str(folder))
            golang.run("install", package)
    return built


@contextmanager
def running(command: list[str], port: int, log: Path) -> Iterator[None]:
    """Run a store until it is not needed any more."""
    with log.open("wb") as output, subprocess.Popen(command, stdout=output, stderr=output) as store:
        try:
            becomes(lambda: store.poll() is not None or listens(port), 30.0)
            assert store.poll() is None, log.read_text()
            yield
        finally:
            store.terminate()


@contextmanager
def s3(folder: Path) -> Iterator[Running]:
    """Run an S3 gateway, which verifies signatures and checksums."""
    port = free_port()
    (folder / "buckets").mkdir()
    options = ["--port", f"127.0.0.1:{port}", "--access", KEYS["AWS_ACCESS_KEY_ID"], "--secret"]
    command = [str(program(GATEWAY)), *options, KEYS["AWS_SECRET_ACCESS_KEY"], "posix", str(folder / "buckets")]
    with running(command, port, folder / "log"):
        fill(f"http://127.0.0.1:{port}", "models", {})
        yield Running("s3://models/team", {**KEYS, "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}"})


@contextmanager
def gs(folder: Path) -> Iterator[Running]:
    """Run an emulator of Google Cloud Storage."""
    port = free_port()
    emulator = str(EMULATOR.python().with_name("gcp-storage-emulator"))
    command = [emulator, "start", "--host=127.0.0.1", f"--port={port}", "--in-memory", "--default-bucket=models"]
    with running(command, port, folder / "log"):
        yield Running("gs://models/team", {"STORAGE_EMULATOR_HOST": f"http://127.0.0.1:{port}"})


@contextmanager
def oci(folder: Path) -> Iterator[Running]:
    """Run the registry of the CNCF."""
    port = free_port()
    config = folder / "config.yml"
    config.write_text(
        f"version: 0.1\nlog: {{level: error}}\nstorage: {{filesystem: {{rootdirectory: {folder}/registry}}}}\n"
        f"http: {{addr: '127.0.0.1:{port}', secret: secret}}\n"
    )
    with running([str(program(REGISTRY)), "serve", str(config)], port, folder / "log"):
        yield Running(f"oci://127.0.0.1:{port}/team/models", {"DOCKER_CONFIG": str(folder)})


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("store", [s3, gs, oci])
def test_a_killed_upload_continues_in_bounded_memory(
    store: Callable[[Path], AbstractContextManager[Running]], tmp_path: Path
) -> None:
    model = tmp_path / "m.onnx"
    with model.open("wb") as file:
        for _ in range(SIZE >> 20):
            file.write(os.urandom(1 << 20))
    with store(tmp_path) as target:
        environ = {**os.environ, **target.environ}
        command = [sys.executable, "-c", PROGRAM, str(model), target.prefix, str(tmp_path / "cache")]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environ) as first:
            assert first.stdout is not None
            words = (line.split() for line in first.stdout)
            done = next(int(count) for phase, count in words if phase == "uploading" and int(count) >= KILLED_AFTER)
            first.send_signal(signal.SIGKILL)
        second = subprocess.run(command, capture_output=True, text=True, env=environ, check=True)

        _, uri, digest, sent, memory = second.stdout.splitlines()[-1].split()
        twice = done + int(sent) - SIZE
        assert twice <= LIMITS.files_at_once * PART, twice
        assert int(sent) < SIZE - KILLED_AFTER + LIMITS.files_at_once * PART
        assert int(memory) < MOST_MEMORY, memory
        print(f"{uri.partition(':')[0]}: {twice >> 10} KiB sent twice, {int(memory) >> 20} MiB of memory")
        if not uri.startswith("gs:"):  # the emulator has no XML API, with which replicas read
            artifact = fetch(uri, digest, tmp_path / "replica", LOOPBACK, options=StorageOptions(target.environ))
            assert len(artifact.read("m.onnx")) == SIZE
