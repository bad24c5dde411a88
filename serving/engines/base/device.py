"""Whether an accelerator is lost to this process: an error after which every call on it fails until the process ends.

Out of memory is none of them: it is over with the request. The words are those of `cudaGetErrorString` for the errors
that "leave the process in an inconsistent state", so that "the process must be terminated and relaunched" (NVIDIA, CUDA
Runtime API, Error Handling); AMD's runtime has the same ones. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
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
_OF_A_LIBRARY: Final = re.compile(rf"(?:(?:CUDA|HIP) error|(?:cuda|hip)Error\w+|CUDA_ERROR_\w+): (?:{_STICKY})")
"""How PyTorch and CuPy begin: what merely quotes a caller's text does not."""
_OF_ONNX_RUNTIME: Final = re.compile(rf"(?:CUDA|HIP) failure \d+: (?:{_STICKY})")


def is_lost(error: BaseException) -> bool:
    """Whether `error`, or what it came from, says so: a RuntimeError, as these libraries raise, or ONNX Runtime's."""
    return any(_says_so(one) for one in _chain(error))


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _says_so(error: BaseException) -> bool:
    if type(error).__module__.partition(".")[0] == "onnxruntime":
        return _OF_ONNX_RUNTIME.search(str(error)) is not None
    return isinstance(error, RuntimeError) and _OF_A_LIBRARY.match(str(error)) is not None
