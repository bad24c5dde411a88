"""A tracking server on loopback with the endpoints that Knodel reads, as mlflow 3.17 answers them.

`tests/long/test_mlflow.py` compares it with the real one.
"""

from __future__ import annotations

import json
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from tests.support.http_servers import served_by

API = "/api/2.0/mlflow"
ARTIFACTS = "/api/2.0/mlflow-artifacts/artifacts"
RUN, MODEL_ID = "0a1b2c3d4e5f60718293a4b5c6d7e8f9", "m-7f3c2a"


@dataclass
class Registry:
    """What the server has.

    versions   registered models: name → version → address of its artifacts
    aliases    name and alias → version
    runs       run → address of its artifacts
    logged     model id → address of its artifacts
    root       folder of proxied artifacts
    login      the required Authorization header; "" for none
    """

    root: Path
    versions: dict[str, dict[str, str]] = field(default_factory=dict)
    aliases: dict[tuple[str, str], str] = field(default_factory=dict)
    runs: dict[str, str] = field(default_factory=dict)
    logged: dict[str, str] = field(default_factory=dict)
    status: str = "READY"
    login: str = ""
    seen: list[str] = field(default_factory=list)

    def answer(self, path: str, query: dict[str, Any]) -> Any:
        """The answer in JSON; None for a path that the server does not have."""
        return self._of_registry(path, query) or self._of_runs(path, query)

    def _of_registry(self, path: str, query: dict[str, Any]) -> Any:
        name, version = query.get("name", ""), str(query.get("version", ""))
        if path == f"{API}/registered-models/alias":
            version = self.aliases.get((name, query["alias"]), "")
            if not version:
                return 400, "INVALID_PARAMETER_VALUE", f"Registered model alias {query['alias']} not found."
            return {"model_version": self._version(name, version)}
        if path == f"{API}/registered-models/get-latest-versions":
            if name not in self.versions:
                return 404, "RESOURCE_DOES_NOT_EXIST", f"Registered Model with name={name} not found"
            newest = [] if query.get("stages") else sorted(self.versions[name], key=int)[-1:]
            return {"model_versions": [self._version(name, one) for one in newest]}
        if path in (f"{API}/model-versions/get", f"{API}/model-versions/get-download-uri"):
            if version not in self.versions.get(name, {}):
                said = f"Model Version (name={name}, version={version}) not found"
                return 404, "RESOURCE_DOES_NOT_EXIST", said
            if path.endswith("uri"):
                return {"artifact_uri": self.versions[name][version]}
            return {"model_version": self._version(name, version)}
        return None

    def _of_runs(self, path: str, query: dict[str, Any]) -> Any:
        if path == f"{API}/runs/get":
            run = query["run_id"]
            if run not in self.runs:
                return 404, "RESOURCE_DOES_NOT_EXIST", f"Run with id={run} not found"
            return {"run": {"info": {"run_id": run, "experiment_id": "1", "artifact_uri": self.runs[run]}}}
        if path == f"{API}/logged-models/search":
            return {"models": [self._logged(one) for one in self.logged if query["filter"] == "name = 'model'"]}
        if path.startswith(f"{API}/logged-models/"):
            one = path.rpartition("/")[2]
            if one not in self.logged:
                return 404, "RESOURCE_DOES_NOT_EXIST", f"Logged model with ID '{one}' not found."
            return {"model": self._logged(one)}
        if path == ARTIFACTS:
            return {"files": [
                {"path": one.name, "is_dir": one.is_dir(), "file_size": None if one.is_dir() else one.stat().st_size}
                for one in sorted((self.root / query["path"]).glob("*"))
            ]}  # fmt: skip
        return None

    def _version(self, name: str, version: str) -> Any:
        return {"name": name, "version": version, "status": self.status, "source": f"models:/{MODEL_ID}"}

    def _logged(self, model_id: str) -> Any:
        info = {"model_id": model_id, "name": "model", "source_run_id": RUN, "status": "LOGGED_MODEL_READY"}
        return {"info": {**info, "artifact_uri": self.logged[model_id]}}


@contextmanager
def tracking_server(registry: Registry, tls: ssl.SSLContext | None = None) -> Iterator[str]:
    """The address of a tracking server with this content."""

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            """Log nothing."""

        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            self._respond(unquote(parts.path), dict(parse_qsl(parts.query)))

        def do_POST(self) -> None:
            self._respond(self.path, json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

        def _respond(self, path: str, query: dict[str, Any]) -> None:
            registry.seen.append(path)
            if registry.login and self.headers.get("Authorization") != registry.login:
                return self._send(401, b"You are not authenticated.")
            if path.startswith(f"{ARTIFACTS}/"):
                file = registry.root / path.removeprefix(f"{ARTIFACTS}/")
                return self._send(200, file.read_bytes()) if file.is_file() else self._send(404, b"")
            found = registry.answer(path, query)
            if found is None:
                return self._send(404, b"<html>Not Found</html>")
            if isinstance(found, tuple):
                status, code, message = found
                return self._send(status, json.dumps({"error_code": code, "message": message}).encode())
            return self._send(200, json.dumps(found).encode())

        def _send(self, status: int, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    with served_by(Handler, "127.0.0.1", tls) as url:
        yield url
