"""An engine that serves no model, and keeps the options that it was loaded with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from serving.engines.base.datatypes import Tensor
from serving.engines.base.engine import BaseEngine, Cancellation, EngineOptions, Signature, TensorSpec
from serving.storage.base.artifact import Artifact

SPECS = (TensorSpec("x", "FP32", (1,)),)
LOADED: list[tuple[EngineOptions, dict[str, bytes]]] = []
"""The options of each load, with the bytes of the adapters then."""
PRESENT_AT_CLOSE: list[bool] = []


class OptionsEngine(BaseEngine):
    def __init__(self, options: EngineOptions) -> None:
        super().__init__(Signature("options", SPECS, SPECS))
        self._options = options

    def infer(
        self, inputs: Mapping[str, Tensor], outputs: Sequence[str], cancellation: Cancellation | None = None
    ) -> Sequence[Tensor]:
        return [np.zeros(1, np.float32) for _ in outputs]

    def close(self) -> None:
        PRESENT_AT_CLOSE.extend(Path(adapter.path).exists() for adapter in self._options.llm.adapters)


def load(_: Artifact, options: EngineOptions) -> OptionsEngine:
    """Return the engine."""
    LOADED.append((options, {one.name: content_of(Path(one.path)) for one in options.llm.adapters}))
    return OptionsEngine(options)


def content_of(path: Path) -> bytes:
    """Return the bytes of a file, or of all files of a folder."""
    return path.read_bytes() if path.is_file() else b"".join(one.read_bytes() for one in sorted(path.iterdir()))
