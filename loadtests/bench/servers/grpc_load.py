"""Requests of gRPC without a pause, from one process.

    python -m loadtests.bench.servers.grpc_load HOST:PORT FILE --connections N --seconds S --answer 0.1,0.2

FILE has the encoded ModelInferRequest, --answer the numbers of the first output, which the first answer must have.
Messages pass as bytes: what the client costs is little beside what a server does.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import numpy as np
from tritonclient.grpc import service_pb2

from loadtests.bench.figure import percentile
from loadtests.bench.servers.load import GRPC_METHOD, Kind, Load
from loadtests.bench.servers.pressure import MARK

OPTIONS = [("grpc.use_local_subchannel_pool", 1)]  # else all channels share one connection
CONTENTS = ("fp32_contents", "fp64_contents", "int64_contents")
RAW_TYPES = {"FP32": "<f4", "FP64": "<f8", "INT64": "<i8"}
MICROSECONDS = 1e6


def numbers_of(message: bytes) -> Iterator[float]:
    """The numbers of the first output of a ModelInferResponse, raw or not."""
    answer = service_pb2.ModelInferResponse.FromString(message)
    if answer.raw_output_contents:
        datatype = RAW_TYPES[answer.outputs[0].datatype]
        yield from np.frombuffer(answer.raw_output_contents[0], datatype).astype(float).tolist()
        return
    for name in CONTENTS:
        yield from map(float, getattr(answer.outputs[0].contents, name))


async def press(target: str, load: Load, connections: int, seconds: float) -> list[float]:
    """Microseconds of each call. Raises grpc.aio.AioRpcError when one fails, SystemExit when the first is wrong."""
    channels = [grpc.aio.insecure_channel(target, OPTIONS) for _ in range(connections)]
    try:
        asks = [channel.unary_unary(GRPC_METHOD) for channel in channels]
        for ask in asks:
            load.compare(numbers_of(await ask(load.body)))
        took: list[float] = []
        until = time.perf_counter() + seconds
        await asyncio.gather(*(_caller(ask, load.body, until, took) for ask in asks))
        return took
    finally:
        for channel in channels:
            await channel.close()


async def _caller(ask: Callable[[bytes], Any], request: bytes, until: float, took: list[float]) -> None:
    while (began := time.perf_counter()) < until:
        await ask(request)
        took.append((time.perf_counter() - began) * MICROSECONDS)


def main() -> int:
    """Print what was measured as wrk's script does."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("target")
    parser.add_argument("file", type=Path)
    parser.add_argument("--connections", type=int, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--answer", required=True)
    given = parser.parse_args()
    load = Load("gRPC", Kind.GRPC, given.file.read_bytes(), {}, [float(number) for number in given.answer.split(",")])
    took = asyncio.run(press(given.target, load, given.connections, given.seconds))
    found = {
        "requests": len(took),
        "microseconds": given.seconds * MICROSECONDS,
        "p50": statistics.median(took),
        "p99": percentile(took, 0.99),
        "refused": 0,
        "broken": 0,
    }
    print(MARK + json.dumps(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
