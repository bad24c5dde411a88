"""Detect errors of an accelerator after which every call on it fails until the process ends.

Running out of memory is not one of them: it ends with the request. The texts are those of `cudaGetErrorString` for the
errors that "leave the process in an inconsistent state", so that "the process must be terminated and relaunched"
(NVIDIA, CUDA Runtime API, Error Handling). AMD's runtime has the same ones. Pure.
"""

from __future__ import annotations

import re
from typing import Final

_STICKY: Final = "|".join(
    (
        "an illegal memory access was encountered",
        "an illegal instruction was encountered",
        "device-side assert triggered",
        "hardware stack error",
        "invalid program counter",
        "misaligned address",
        "operation not supported on global/shared address space",
        "the launch timed out and was terminated",
        "uncorrectable ECC error encountered",
        "unspecified launch failure",
    )
)
_LIBRARY_ERROR: Final = re.compile(rf"(?:(?:CUDA|HIP) error|(?:cuda|hip)Error\w+|CUDA_ERROR_\w+): (?:{_STICKY})")
"""The beginning of such an error in PyTorch and CuPy; a text that only quotes it does not match."""
_ONNX_RUNTIME_ERROR: Final = re.compile(rf"(?:CUDA|HIP) failure \d+: (?:{_STICKY})")


def is_device_lost(error: BaseException) -> bool:
    """Return whether `error` or one of its causes means that the accelerator is lost to this process.

    PyTorch and CuPy raise a RuntimeError; ONNX Runtime has exceptions of its own.
    """
    cause: BaseException | None = error
    while cause is not None:
        if type(cause).__module__.partition(".")[0] == "onnxruntime":
            if _ONNX_RUNTIME_ERROR.search(str(cause)) is not None:
                return True
        elif isinstance(cause, RuntimeError) and _LIBRARY_ERROR.match(str(cause)) is not None:
            return True
        cause = cause.__cause__ or cause.__context__
    return False
