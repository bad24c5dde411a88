"""ONNX Runtime, imported the only way that we want it: without the telemetry that its Linux wheels send by default.

Since 1.29 the wheels report each session (file name, weight hashes, producer) to their vendor, by a thread that starts
with the import, before a program could switch it off by API. The variable is read then; a thread would also make a
zygote impossible.
"""

from __future__ import annotations

import os

os.environ["ORT_DISABLE_TELEMETRY"] = "1"

import onnxruntime

onnxruntime.disable_telemetry_events()
onnxruntime.set_default_logger_severity(3)  # errors: they come as exceptions, the warnings are for model authors

__all__ = ["onnxruntime"]
