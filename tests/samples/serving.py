"""Serve stand-ins from stores on this machine, at the addresses of the samples."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np

from tests.long.served import KNODEL, served
from tests.samples.stand_ins import MAKERS, REFUSED, Made, class_of
from tests.serving.storage.archives import tar
from tests.serving.storage.conftest import Store, running
from tests.serving.storage.images import Registry
from tests.support.s3 import KEYS, fill, s3_server

REFUSAL = "is not served"


@dataclass(frozen=True, slots=True)
class Stores:
    """An S3 server, a web server and a registry, which hold what `put` was given."""

    folder: Path
    endpoint: str
    web: Store
    blobs: Store

    def put(self, uri: str, made: Made) -> str:
        """Store the files at the address of a sample; return the address on this machine."""
        scheme, rest = uri.split("://", 1)
        if scheme in ("http", "https"):
            path = urlsplit(uri).path
            content = next(iter(made.files.values()))
            if path.endswith(".tar.gz"):
                content = tar(made.files, "gz")
            return self.web.file(path, content)
        if scheme == "oci":
            repository, _, tag = rest.partition("/")[2].partition(":")
            registry = Registry(self.web, self.blobs, repository=repository)
            registry.push([tar({f"models/{name}": content for name, content in made.files.items()}, "gz")], tag)
            return registry.uri(f":{tag}")
        bucket, _, prefix = rest.partition("/")
        prefix = prefix.rstrip("/")
        only = len(made.files) == 1 and "." in prefix.rpartition("/")[2]
        names = {prefix if only else f"{prefix}/{name}".lstrip("/"): content for name, content in made.files.items()}
        fill(self.endpoint, bucket, names)
        return f"s3://{bucket}/{prefix}"


@contextmanager
def stores(folder: Path) -> Iterator[Stores]:
    """Run the stores until the block is over."""
    with ExitStack() as opened:
        endpoint = opened.enter_context(s3_server())
        web = opened.enter_context(contextmanager(running)())
        blobs = opened.enter_context(contextmanager(running)())
        yield Stores(folder, endpoint, web, blobs)


def serve(here: Stores, uri: str, model_format: str) -> str:
    """Serve the stand-in for a sample's artifact and ask it once; return what happened: `served` or `refused`.

    Raises AssertionError for anything else.
    """
    name = class_of(uri, model_format)
    folder = here.folder / f"{len(list(here.folder.iterdir()))}"
    folder.mkdir()
    made = MAKERS[name](folder)
    address = here.put(uri, made)
    variables = {**KEYS, "AWS_ENDPOINT_URL": here.endpoint, "KNODEL_ALLOW_HOSTS": "127.0.0.1", "HOME": str(folder)}
    command = ("env", *(f"{key}={text}" for key, text in variables.items()), *KNODEL)
    options = ["--format", model_format] if model_format else []
    code = ["--allow-code"] if model_format in ("joblib", "pickle") else []
    log = folder / "log"
    try:
        with served(log, address, *options, *code, "--name", "m", command=command) as server:
            answer = server.ask("POST", "/v2/models/m/infer", json.dumps(made.request).encode(),
                                {"Content-Type": "application/json"})  # fmt: skip
    except AssertionError:
        if name in REFUSED and REFUSAL in log.read_text():
            return "refused"
        raise
    np.testing.assert_allclose(answer["outputs"][0]["data"], made.expected, atol=0.05)
    return "served"
