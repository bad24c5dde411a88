"""Models that are Python code and do what a fault needs: take their time, load slowly, leave traces, look for them."""

from __future__ import annotations

from pathlib import Path

HEAD = b"""import os, select, sys, tempfile, time
from pathlib import Path

import numpy

class Model:
    inputs = [{"name": "x", "datatype": "FP32", "shape": [-1]}]
    outputs = [{"name": "y", "datatype": "FP32", "shape": [-1]}]
    thread_safe = True
"""

PLACES = ("environment", "scratch folder", "working folder", "memory")
"""Where a tenant leaves its canary, in the order of the bits of its answer."""

TENANT = b"""
    CANARY = "canary-of-a-tenant"
    PLANT = 1.0

    def predict(self, x):
        if x[0] == self.PLANT:
            self.plant()
        return numpy.array([sum(1 << place for place, found in enumerate(self.look()) if found)], numpy.float32)

    def plant(self):
        os.environ["LEFT"] = self.CANARY
        (Path(tempfile.gettempdir()) / "left").write_text(self.CANARY)
        Path("left-here").write_text(self.CANARY)
        sys.modules[self.CANARY] = sys

    def look(self):
        yield self.CANARY in os.environ.values()
        yield self.in_files(Path(tempfile.gettempdir()))
        yield self.in_files(Path.cwd())
        yield self.CANARY in sys.modules

    def in_files(self, folder):
        return any(path.is_file() and self.CANARY.encode() in path.read_bytes() for path in folder.glob("left*"))
"""


def sleeper(seconds: float) -> bytes:
    """FP32 x → 2x, after so many seconds in which it needs no core. libfaketime breaks `time.sleep`, but not this."""
    return (
        HEAD + b"\n    def predict(self, x):\n        select.select((), (), (), %f)\n        return 2 * x\n" % seconds
    )


def late(seconds: float) -> bytes:
    """FP32 x → 2x, loaded in so many seconds."""
    load = b"\n    def load(self):\n        time.sleep(%f)\n" % seconds
    return HEAD + load + b"\n    def predict(self, x):\n        return 2 * x\n"


def tenant() -> bytes:
    """FP32 x [1] → y [1]: a bit for each of PLACES in which a canary lies; x = 1 leaves one in each before."""
    return HEAD + TENANT


def write(folder: Path, name: str, program: bytes) -> str:
    """Write it; its URI."""
    path = folder / f"{name}.py"
    path.write_bytes(program)
    return path.as_uri()
