"""Describe the progress of a starting replica from its server's `/stats`. Pure.

    warmed up                    (empty)
    loaded                       warming up
    all files are there          loading (onnx)
    a download has begun         downloading 412 MiB of 1.3 GiB (31 %)
    else                         fetching the model

The page of a Pod is not trusted: only numbers and the name of a format are repeated.
"""

from __future__ import annotations

from typing import Annotated, TypeAlias

import msgspec

from autoscaler.metrics.stat import BadSample, Startup, known_format
from clusters.base.sizes import human_bytes

_Bytes: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=1 << 60)]


class _Download(msgspec.Struct):
    bytes: _Bytes
    total: _Bytes | None = None


class _Stats(msgspec.Struct):
    startup: Startup
    download: _Download | None = None
    format: str | None = None


_DECODER = msgspec.json.Decoder(_Stats)


def read_progress(body: bytes) -> str:
    """Return a description of the start from an answer of `/stats`; empty once it has ended. Raises BadSample."""
    try:
        stats = _DECODER.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadSample(f"/stats does not tell how far the start is: {error}") from error
    if stats.startup.get("warmup") or stats.startup.get("readyFor") is not None:
        return ""
    if stats.startup.get("load"):
        return "warming up"
    if stats.startup.get("fetch"):
        found = known_format(stats.format)
        return f"loading ({found})" if found else "loading"
    return _downloading(stats.download) if stats.download is not None else "fetching the model"


def _downloading(download: _Download) -> str:
    received, total = download.bytes, download.total
    if total is None or received > total or total == 0:
        return f"downloading, {human_bytes(received)} so far"
    return f"downloading {human_bytes(received)} of {human_bytes(total)} ({100 * received // total} %)"
