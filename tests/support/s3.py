"""S3 on this machine: moto's server, in a process of its own."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from tests.support.ports import free_port
from tests.testbed.waiting import becomes

HOST = "127.0.0.1"
KEYS = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret"}
STARTED_WITHIN = 30.0  # s


@contextmanager
def s3_server() -> Iterator[str]:
    """The endpoint of a server without buckets."""
    port = free_port()
    command = [sys.executable, "-m", "moto.server", "-H", HOST, "-p", str(port)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        try:
            becomes(lambda: server.poll() is not None or listens(port), STARTED_WITHIN)
            assert server.poll() is None and listens(port), "moto's server does not start"
            yield f"http://{HOST}:{port}"
        finally:
            server.kill()


def fill(endpoint: str, bucket: str, files: Mapping[str, bytes]) -> Any:
    """Make a bucket of these objects; the client that made it."""
    import botocore.session

    client = botocore.session.Session().create_client(
        "s3",
        "us-east-1",
        endpoint_url=endpoint,
        aws_access_key_id=KEYS["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=KEYS["AWS_SECRET_ACCESS_KEY"],
    )
    client.create_bucket(Bucket=bucket)
    for key, content in files.items():
        client.put_object(Bucket=bucket, Key=key, Body=content)
    return client


def listens(port: int) -> bool:
    """Return whether a server accepts connections at a port of HOST."""
    try:
        socket.create_connection((HOST, port), timeout=1).close()
    except OSError:
        return False
    return True
