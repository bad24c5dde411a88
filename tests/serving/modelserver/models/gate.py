"""Test support: a gate that the code of a hanging model waits for; that code imports this module."""

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
