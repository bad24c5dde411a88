"""gRPC load by h2load: a client in Python takes as long for a call as a server.

    python -m loadtests.bench.servers.grpc_load HOST:PORT FILE --connections N --seconds S --answer 0.1,0.2

FILE contains the encoded ModelInferRequest, --answer the values of the first output. h2load does not check responses,
and a rejected gRPC call has HTTP status 200. A client therefore checks a response before and after the load, and all
responses between must have the same size.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import numpy as np
from tritonclient.grpc import service_pb2

from loadtests.bench.figure import percentile
from loadtests.bench.servers.load import GRPC_METHOD, Kind, Load
from loadtests.bench.servers.pressure import MARK, h2load

CONTENTS = ("fp32_contents", "fp64_contents", "int64_contents")
RAW_TYPES = {"FP32": "<f4", "FP64": "<f8", "INT64": "<i8"}
HEADERS = ("content-type: application/grpc", "te: trailers")
ANSWERED = "200"
FRAME = 5  # bytes before a gRPC message: compression flag and length
_REQUESTS = re.compile(r"(\d+) succeeded")
_DATA = re.compile(r"traffic: .*\((\d+)\) data")
LEEWAY = 60.0  # s beyond the duration of h2load


def numbers_of(message: bytes) -> Iterator[float]:
    """Return the values of the first output of a ModelInferResponse, raw or typed."""
    answer = service_pb2.ModelInferResponse.FromString(message)
    if answer.raw_output_contents:
        datatype = RAW_TYPES[answer.outputs[0].datatype]
        yield from np.frombuffer(answer.raw_output_contents[0], datatype).astype(float).tolist()
        return
    for name in CONTENTS:
        yield from map(float, getattr(answer.outputs[0].contents, name))


def press(target: str, load: Load, connections: int, seconds: float) -> dict[str, Any]:
    """Run the load and return the results. Raises grpc.RpcError if a call fails, SystemExit if a response is wrong."""
    size = _compare(target, load)
    with tempfile.TemporaryDirectory(prefix="knodel-bench-") as folder:
        body, log = Path(folder, "body"), Path(folder, "log")
        body.write_bytes(b"\0" + struct.pack(">I", len(load.body)) + load.body)  # uncompressed, and its length
        headers = [word for header in HEADERS for word in ("--header", header)]
        command = [h2load(), "--duration", f"{max(1, round(seconds))}", "--clients", str(connections), "--threads", "1"]
        command += ["--max-concurrent-streams", "1", "--data", str(body), "--log-file", str(log), *headers]
        done = subprocess.run(
            [*command, f"http://{target}{GRPC_METHOD}"], check=True, capture_output=True, timeout=seconds + LEEWAY
        )
        found = parse(log.read_text())
    _compare(target, load)
    return found | {"broken": broken(done.stdout.decode(), FRAME + size)}


def parse(log: str) -> dict[str, Any]:
    """Return the figures from h2load's log, with one line per request: start (µs), status, duration (µs)."""
    lines = [line.split("\t") for line in log.splitlines()]
    took = [float(line[2]) for line in lines]
    begun = [int(line[0]) for line in lines]
    ended = [start + time for start, time in zip(begun, took, strict=True)]
    return {
        "requests": len(lines),
        "microseconds": max(ended, default=0) - min(begun, default=0),
        "p50": statistics.median(took) if took else 0,
        "p95": percentile(took, 0.95) if took else 0,
        "p99": percentile(took, 0.99) if took else 0,
        "refused": sum(line[1] != ANSWERED for line in lines),
        "broken": 0,
    }


def broken(output: str, size: int) -> int:
    """Return the number of responses that do not have `size` bytes, from the total size of all."""
    requests, data = _REQUESTS.search(output), _DATA.search(output)
    if requests is None or data is None:
        raise SystemExit(f"h2load printed no traffic line: {output[-500:]}")
    return max(0, int(requests[1]) - int(data[1]) // size)


def _compare(target: str, load: Load) -> int:
    """Return the size of the correct response. Raises SystemExit if it is wrong."""
    with grpc.insecure_channel(target) as channel:
        answer: bytes = channel.unary_unary(GRPC_METHOD)(load.body)
    load.compare(numbers_of(answer))
    return len(answer)


def main() -> int:
    """Print the results in the format of wrk's script."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("target")
    parser.add_argument("file", type=Path)
    parser.add_argument("--connections", type=int, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--answer", required=True)
    given = parser.parse_args()
    load = Load("gRPC", Kind.GRPC, given.file.read_bytes(), {}, [float(number) for number in given.answer.split(",")])
    print(MARK + json.dumps(press(given.target, load, given.connections, given.seconds)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
