"""Where the driver of NVIDIA reports its version: a file, so that its presence is known without NVML."""

from __future__ import annotations

from pathlib import Path
from typing import Final

DRIVER_FILE: Final = Path("/proc/driver/nvidia/version")
