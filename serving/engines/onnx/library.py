"""Import ONNX Runtime without the telemetry that its Linux wheels send by default.

Since 1.29 the wheels report each session (file name, weight hashes, producer) to their vendor. The thread that does so
starts on import, before the API can disable it, so an environment variable must be set before. Such a thread would also
prevent forking a pre-warmed process.
"""

from __future__ import annotations

import os

os.environ["ORT_DISABLE_TELEMETRY"] = "1"

import onnxruntime

onnxruntime.disable_telemetry_events()
onnxruntime.set_default_logger_severity(3)  # errors only, which are exceptions; warnings address model authors

__all__ = ["onnxruntime"]
