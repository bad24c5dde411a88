"""Select where the GPUs of this machine are read from."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from clusters.devices.device_file import FileSource
from clusters.devices.machine import DeviceSource, NoDevices
from clusters.devices.nvml import NoDriverError, NvmlSource, initialized, load_nvml
from clusters.devices.smi import COMMAND, SmiSource

VARIABLE: Final = "KNODEL_DEVICES"
"""A file that describes the GPUs, instead of the driver."""


def find_source(environ: Mapping[str, str]) -> DeviceSource:
    """Return the source: the file of KNODEL_DEVICES, else NVML, else `nvidia-smi`, else none.

    Raises DevicesError for a driver that does not work.
    """
    if path := environ.get(VARIABLE):
        return FileSource(Path(path))
    try:
        nvml = load_nvml()
        with initialized(nvml):
            return NvmlSource(nvml)
    except NoDriverError:
        return NoDevices()
    except ModuleNotFoundError:
        return SmiSource() if shutil.which(COMMAND) else NoDevices()
