"""Errors of an accelerator that affect one request, and errors that last until the process ends."""

from __future__ import annotations

import pytest

from serving.engines.base.device import is_device_lost
from serving.engines.base.errors import InferenceFailed

AsOnnxRuntime = type("Fail", (Exception,), {"__module__": "onnxruntime.capi.onnxruntime_pybind11_state"})
"""An exception of ONNX Runtime, which is not a RuntimeError."""
ILLEGAL = "an illegal memory access was encountered"


@pytest.mark.fault("M11")
@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("CUDA error: device-side assert triggered\nCUDA kernel errors might be reported later"),
        RuntimeError("CUDA error: uncorrectable ECC error encountered"),
        RuntimeError("HIP error: unspecified launch failure"),
        RuntimeError(f"cudaErrorIllegalAddress: {ILLEGAL}"),
        RuntimeError(f"CUDA_ERROR_ILLEGAL_ADDRESS: {ILLEGAL}"),
        AsOnnxRuntime(f"[ONNXRuntimeError] : 1 : FAIL : Non-zero status code: CUDA failure 700: {ILLEGAL} ; GPU=0"),
    ],
)
def test_after_some_errors_only_a_restart_helps(error: Exception) -> None:
    wrapped = InferenceFailed(f"{type(error).__name__}: {error}")
    wrapped.__cause__ = error
    assert is_device_lost(error) and is_device_lost(wrapped)


@pytest.mark.fault("M11")
def test_a_model_that_makes_another_error_of_it_changes_nothing() -> None:
    try:
        try:
            raise RuntimeError(f"CUDA error: {ILLEGAL}") from KeyError("cache")
        except RuntimeError:
            raise ValueError("the model cannot answer")  # noqa: B904 - as careless code has it
    except ValueError as error:
        assert is_device_lost(error)


@pytest.mark.fault("M11")
@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("CUDA out of memory. Tried to allocate 20.00 GiB"),
        RuntimeError("CUDA error: out of memory"),
        AsOnnxRuntime("[ONNXRuntimeError] : 6 : RUNTIME_EXCEPTION : CUDA failure 2: out of memory ; GPU=0"),
        RuntimeError(f"no such label: 'CUDA error: {ILLEGAL}'"),  # quotes its caller
        ValueError(f"CUDA error: {ILLEGAL}"),
        KeyError(f"CUDA error: {ILLEGAL}"),
        MemoryError(),
    ],
)
def test_other_errors_are_those_of_their_request(error: Exception) -> None:
    assert not is_device_lost(error)
