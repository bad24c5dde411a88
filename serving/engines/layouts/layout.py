"""What the description file of a model's folder sets: files, format, tensors, batching, example. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from serving.engines.base.engine import Engine

if TYPE_CHECKING:
    from serving.storage.base.artifact import Artifact


class BatchHint(msgspec.Struct, frozen=True):
    """Batches for a Model that sets none: of at most `max_size` rows, with a wait of at most `max_latency` seconds."""

    max_size: int
    max_latency: float


def unchanged(engine: Engine) -> Engine:
    """Return the engine as it is: its own tensors are served."""
    return engine


class Layout(msgspec.Struct, frozen=True):
    """How the files of a folder are served.

    artifact    the model's own files, which the engine loads
    name        of the layout, for messages: "" for a plain folder
    format      the format of the model's files; "" to detect it
    adapt       returns an engine with the described tensors for a loaded one; it then owns the loaded one. Raises
                LoadFailed
    batching    batches that the folder describes; None for none
    example     an example request, a body of protocol v2; None for none. `example.json` comes before it
    """

    artifact: Artifact
    name: str = ""
    format: str = ""
    adapt: Callable[[Engine], Engine] = unchanged
    batching: BatchHint | None = None
    example: bytes | None = None
