"""The progress of a starting replica, described from its server's `/stats`. Pure.

    warmed up                    (empty)
    loaded                       warming up
    all files are present        loading (onnx)
    a download has begun         downloading 412 MiB of 1.3 GiB (31 %)
    else                         fetching the model

The page of a Pod is not trusted: only numbers and a format's name are repeated.
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
    """Return the progress in a response of `/stats`; empty once the start has ended. Raises BadSample."""
    try:
        stats = _DECODER.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadSample(f"invalid /stats response: {error}") from error
    if stats.startup.get("warmup") or stats.startup.get("readyFor") is not None:
        return ""
    if stats.startup.get("load"):
        return "warming up"
    if stats.startup.get("fetch"):
        found = known_format(stats.format)
        return f"loading ({found})" if found else "loading"
    if stats.download is None:
        return "fetching the model"
    received, total = stats.download.bytes, stats.download.total
    if total is None or received > total or total == 0:
        return f"downloading, {human_bytes(received)} so far"
    return f"downloading {human_bytes(received)} of {human_bytes(total)} ({100 * received // total} %)"
