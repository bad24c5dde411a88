"""What the code of a model waits for that hangs: it is imported by that code too."""

from __future__ import annotations

import threading

OPEN = threading.Event()
"""Set: such models go on."""
CODE = """
from tests.serving.modelserver.models.gate import OPEN

class Model:
    def load(self):
        OPEN.wait(30)

    def predict(self, x):
        return x
"""
