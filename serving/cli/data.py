"""Read the value of the option `-d JSON|@FILE`, up to a size limit, and check that it is JSON."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from clusters.base.sizes import format_size
from serving.client.errors import UsageError
from serving.types.input_files import open_input

LARGEST = 256 * 1024 * 1024
"""Bytes; above the default limit of the gateway. Keeps an endless stream from filling the memory."""
STDIN = "@-"


def read_data(data: str) -> bytes:
    """Return the bytes of JSON, of @FILE, or of stdin for `@-`. Raises UsageError."""
    try:
        if data == STDIN:
            content = sys.stdin.buffer.read(LARGEST + 1)
        elif data.startswith("@"):
            with open_input(Path(data[1:])) as file:
                content = file.read(LARGEST + 1)
        else:
            content = data.encode()
    except OSError as error:
        raise UsageError(f"--data {data} cannot be read ({error.strerror})") from error
    except UnicodeEncodeError as error:
        raise UsageError("--data is not UTF-8 text: give JSON, or @FILE for a file with JSON") from error
    if len(content) > LARGEST:
        raise UsageError(f"--data {data} is larger than {format_size(LARGEST)}: send a smaller request")
    return content


def parse_data(content: bytes) -> Any:
    """Parse JSON. Raises UsageError."""
    try:
        return json.loads(content)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"--data is not JSON ({error}): give JSON, or @FILE for a file with JSON") from error
