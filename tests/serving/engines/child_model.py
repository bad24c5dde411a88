"""A model whose input selects its behaviour, for tests of engines in separate processes."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import numpy as np

from serving.engines.base.datatypes import Tensor
from serving.engines.base.engine import Cancellation, EngineOptions, Signature, TensorSpec
from serving.engines.base.errors import InferenceFailed, InputRefused, LoadFailed
from serving.storage.base.artifact import Artifact

CRASH, EXIT, HANG, REFUSE, FAIL, NONSENSE, SPIN = -1, -2, -3, -4, -5, -6, -7


def load(artifact: Artifact, _: EngineOptions) -> Deed:
    """Load the model as the file `how` in its folder selects."""
    how = artifact.read("how")
    print("loading", how.decode())
    if how == b"refused":
        raise LoadFailed("no model")
    if how == b"crash":
        _crash()
    if how == b"hang":
        signal.pause()
    return Deed()


class Deed:
    """Outputs y = 2x, the id of its process and its number of threads; a negative x selects a behaviour."""

    signature = Signature("deed", (TensorSpec("x", "FP64", (-1,)),), (TensorSpec("y", "FP64", (-1,)),))
    bounded = True

    def infer(
        self, inputs: Mapping[str, Tensor], outputs: Sequence[str], _: Cancellation | None = None
    ) -> Sequence[Tensor]:
        """Perform the behaviour and return the outputs."""
        x = inputs["x"]
        deed = _DEEDS.get(int(x[0])) if x.size else None
        if deed is not None:
            deed()
        told = {"y": 2 * x, "pid": np.array(os.getpid()), "threads": np.array(int(os.environ["OMP_NUM_THREADS"]))}
        return [told[name] for name in outputs]

    def close(self) -> None:
        """Do nothing."""


def _crash() -> None:
    signal.signal(signal.SIGSEGV, signal.SIG_DFL)
    os.kill(os.getpid(), signal.SIGSEGV)


def _spin() -> None:
    """Hang and hold Python's GIL, as a library may."""
    os.write(sys.stderr.fileno(), b"spinning\n")
    sys.setswitchinterval(1000)
    while True:
        pass


def _refuse() -> None:
    raise InputRefused("not this")


def _fail() -> None:
    raise InferenceFailed("cannot")


def _nonsense() -> None:
    os.write(int(sys.argv[1]), b"\xff" * 64)


_DEEDS: Final[dict[int, Callable[[], object]]] = {
    CRASH: _crash, EXIT: lambda: os._exit(3), HANG: signal.pause, REFUSE: _refuse, FAIL: _fail, NONSENSE: _nonsense,
    SPIN: _spin,
}  # fmt: skip
