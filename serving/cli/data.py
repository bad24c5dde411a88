"""The option `-d JSON|@FILE`: read its bytes within a bound, and check that they are JSON."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from clusters.base.sizes import format_size
from serving.cli.base.errors import UsageError
from serving.types.input_files import open_input

LARGEST = 256 * 1024 * 1024
"""Bytes; more than a gateway takes by default, so that an endless stream ends before it fills the memory."""
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
        raise UsageError(f"--data {data}: cannot be read ({error.strerror})") from error
    except UnicodeEncodeError as error:
        raise UsageError("--data is not UTF-8 text: give JSON, or @FILE for a file with it") from error
    if len(content) > LARGEST:
        raise UsageError(f"--data {data}: is larger than {format_size(LARGEST)}: send a smaller request")
    return content


def parse_data(content: bytes) -> Any:
    """Return the JSON value. Raises UsageError."""
    try:
        return json.loads(content)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"--data is not JSON ({error}): give a value, or @FILE for a file with one") from error
