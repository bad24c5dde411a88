"""What the guide's commands talk to beside the server: stores that have the trained model, and collectors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from tests.serving.modelserver.collector import Collector, collecting
from tests.serving.storage.archives import tar
from tests.serving.storage.conftest import Store, running
from tests.serving.storage.images import Registry
from tests.support.hub import hub
from tests.support.s3 import HOST, fill, s3_server

BUCKET, REPOSITORY, TOKEN = "models", "acme/iris", "hf_secret"
"""As the guide has them."""
WEB, S3, REGISTRY, HUB, EVENTS, TRACES = "8000", "9000", "5000", "7000", "8088", "4318"
"""Ports, as the guide has them."""


@dataclass(frozen=True)
class Neighbours:
    """`ports` are those of this machine by the guide's."""

    ports: Mapping[str, str]
    events: Collector
    traces: Collector


@contextmanager
def neighbours(name: str, model: bytes) -> Iterator[Neighbours]:
    """All of them; a model is a file of this name and content in each store."""
    with ExitStack() as stack:
        web, images, blobs = (stack.enter_context(contextmanager(running)()) for _ in range(3))
        events, traces = (stack.enter_context(collecting()) for _ in range(2))
        s3 = stack.enter_context(s3_server())
        urls = {
            WEB: web.file(f"/{name}", model), S3: s3, REGISTRY: _registry(images, blobs, name, model),
            HUB: stack.enter_context(hub(HOST, TOKEN, {name: model})), EVENTS: events.url, TRACES: traces.url,
        }  # fmt: skip
        fill(s3, BUCKET, {name: model})
        yield Neighbours({port: _port_of(url) for port, url in urls.items()}, events, traces)


def _registry(images: Store, blobs: Store, name: str, model: bytes) -> str:
    Registry(images, blobs, repository=REPOSITORY).push([tar({f"models/{name}": model}, "gz")])
    return images.url("")


def _port_of(url: str) -> str:
    return url.removeprefix(f"http://{HOST}:").partition("/")[0]
