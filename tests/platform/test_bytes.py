"""Test that versions are identified by their bytes: a rollback serves the deployed bytes, whatever happens to the
source.
"""

from __future__ import annotations

import json
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from autoscaler.types import HELD_ANNOTATION
from clusters.base.objects import MODEL, POD_AUTOSCALER
from serving.client.client import Client
from serving.client.state import LocalPlatform
from serving.storage.base.digest import of_bytes
from serving.storage.kept import total_size
from tests.platform.machine import Machine, machine
from tests.support import models


def wait_for(holds: Callable[[], bool], seconds: float = 60.0) -> None:
    """Wait until the condition is true."""
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, "not in time"
        time.sleep(0.1)


def overwrite(source: Path, with_bytes_of: Path) -> None:
    """Overwrite a file in place, as a training job does."""
    with source.open("r+b") as file:
        file.write(with_bytes_of.read_bytes())
        file.truncate()


def revisions(here: Machine, name: str) -> list[str]:
    """Return the revisions of a Model's history, oldest first."""
    return [entry["revision"] for entry in here.model(name)["status"]["history"]]


def test_a_rollback_serves_the_old_bytes_after_the_source_was_overwritten_and_deleted(tmp_path: Path) -> None:
    with machine(tmp_path) as here:
        here.up()
        source = tmp_path / "model.onnx"
        double, triple = (models.write(tmp_path / name, name) for name in ("double", "triple"))
        source.write_bytes(double.read_bytes())
        here.run("deploy", "m", "--uri", str(source))
        assert here.ask("m") == 2.0

        again = here.run("deploy", "m", "--uri", str(source))
        assert "unchanged" in again
        assert revisions(here, "m") == ["m-00001"]

        overwrite(source, triple)
        assert "unchanged" not in here.run("deploy", "m", "--uri", str(source))
        assert here.ask("m") == 3.0
        assert revisions(here, "m") == ["m-00001", "m-00002"]

        source.unlink()
        here.run("rollback", "m")
        assert here.ask("m") == 2.0
        here.run("down")
        here.up()
        here.run("wait", "m")
        assert here.ask("m") == 2.0  # a new replica, long after its file was deleted
        here.run("rollback", "m", "--to", "m-00002")
        assert here.ask("m") == 3.0


def goes_to_zero(here: Machine, *names: str) -> None:
    """Wait until these Models have no replicas."""

    def at_zero() -> bool:
        held = [here.model(name)["status"].get("replicas", {}) for name in names]
        return all(replicas.get("ready", 0) == replicas.get("starting", 0) == 0 for replicas in held)

    wait_for(at_zero)


@pytest.mark.timeout(300)
def test_a_rollback_serves_the_old_bytes_from_zero_replicas(tmp_path: Path) -> None:
    double, triple = (models.write(tmp_path / name, name) for name in ("double", "triple"))
    with machine(tmp_path) as here:
        here.up()
        source = tmp_path / "model.onnx"
        source.write_bytes(double.read_bytes())
        spec = {"storageUri": source.as_uri(), "scaleToZeroAfter": "1s"}
        obj = {"apiVersion": "knodel.dev/v1alpha1", "kind": "Model", "metadata": {"name": "m"}, "spec": spec}
        here.run("deploy", "-f", "-", stdin=json.dumps(obj))
        overwrite(source, triple)
        here.run("deploy", "m", "--uri", str(source))
        goes_to_zero(here, "m")
        assert here.ask("m") == 3.0

        here.run("rollback", "m")
        goes_to_zero(here, "m")
        assert here.ask("m") == 2.0  # the source has other bytes
        source.unlink()
        goes_to_zero(here, "m")
        assert here.ask("m") == 2.0  # there is no source
        goes_to_zero(here, "m")
        here.run("down")
        here.up()
        assert here.ask("m") == 2.0
        goes_to_zero(here, "m")
        here.run("rollback", "m", "--to", "m-00002")
        assert here.ask("m") == 3.0


def test_the_bytes_of_a_version_without_a_digest_create_no_new_version(tmp_path: Path) -> None:
    with machine(tmp_path) as here:
        here.up()
        source, copy = models.write(tmp_path, "double"), tmp_path / "copy.onnx"
        shutil.copy(source, copy)
        spec = {"storageUri": source.as_uri()}
        obj = {"apiVersion": "knodel.dev/v1alpha1", "kind": "Model", "metadata": {"name": "m"}, "spec": spec}
        Client(LocalPlatform.find(here.state)).create(MODEL, obj, "default")  # as kubectl does
        here.run("wait", "m")
        assert "unchanged" in here.run("deploy", "m", "--uri", str(copy))  # at once: the digest may not be recorded yet
        assert "unchanged" in here.run("deploy", "-f", "-", stdin=json.dumps(obj))
        overwrite(source, models.write(tmp_path, "triple"))
        assert "unchanged" not in here.run("deploy", "-f", "-", stdin=json.dumps(obj))
        assert here.ask("m") == 3.0
        assert revisions(here, "m") == ["m-00001", "m-00002"]


def test_a_missing_path_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    with machine(tmp_path) as here:
        here.up()
        for more in ([], ["--dry-run"]):
            said = here.run("deploy", "m", "--uri", str(tmp_path / "no.onnx"), *more, code=2)
            assert "no.onnx: cannot be opened (No such file or directory)" in said
        assert here.run("get", "m", code=3)
        assert total_size(here.state / "kept") == 0


class Store(BaseHTTPRequestHandler):
    """An HTTP server with one file that may change at any time."""

    content = b""

    def do_GET(self) -> None:
        """Respond with the current content."""
        self.send_response(200)
        self.send_header("Content-Length", str(len(self.content)))
        self.end_headers()
        self.wfile.write(self.content)

    def log_message(self, format: str, *args: object) -> None:
        """Do not log."""


@contextmanager
def store() -> Iterator[str]:
    """Yield the server."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Store) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/model.onnx"
        server.shutdown()


def is_held(here: Machine, revision: str) -> bool:
    """Return whether the digest of the revision's first replica is recorded for later ones."""
    obj = Client(LocalPlatform.find(here.state)).get(POD_AUTOSCALER, revision, "default")
    return HELD_ANNOTATION in obj["metadata"]["annotations"]


@pytest.mark.timeout(300)
def test_later_replicas_must_load_the_bytes_of_the_first_one(tmp_path: Path) -> None:
    double, triple = (models.write(tmp_path / name, name).read_bytes() for name in ("double", "triple"))
    with store() as uri, machine(tmp_path) as here:
        here.up()
        Store.content = double
        here.run("deploy", "m", "--uri", uri, "--min", "1")
        wait_for(lambda: is_held(here, "m-00001"))
        assert of_bytes(double)[7:19] in here.run("history", "m")

        Store.content = triple
        here.run("deploy", "m", "--min", "3")
        wait_for(lambda: here.model("m")["status"]["replicas"]["ready"] == 3)
        assert {here.ask("m") for _ in range(12)} == {2.0}

        here.run("deploy", "m", "--uri", uri, "--version", "2")
        assert here.ask("m") == 3.0
        here.run("down")
        shutil.rmtree(here.state / "artifacts")  # as on another node: only the store has the bytes, and it has others
        here.up()
        here.run("wait", "m")
        here.complete("rollback", "m", "--timeout", "30s")  # it may be in force: a Route may point to a version at zero
        wait_for(lambda: of_bytes(double) in json.dumps(here.model("m")["status"]["conditions"]))
        assert of_bytes(triple) in json.dumps(here.model("m")["status"]["conditions"])
