"""Print what `knodel dev` does: lines with the time, failures, and how to call a version, which is called once."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from clusters.base.errors import KnodelError
from clusters.base.redact import escape_control
from serving.cli.dev import texts
from serving.cli.dev.messages import Failure
from serving.client.blocking import BlockingDriver, HttpTransport
from serving.client.http import ServerAddress, exchange
from serving.client.inference.example import example_request, read_json
from serving.client.inference.ingress import IngressTarget

TIMEOUT: Final = 5.0  # s for metadata and example of a version
ANSWER_TIMEOUT: Final = 60.0  # s for the response to the example

Show = Callable[[str], None]


class DevDisplay:
    """Print lines with `show`, `coloured` or not, about the model `name`, which clients reach at the URL `server`."""

    def __init__(self, show: Show, server: str, name: str, *, coloured: bool) -> None:
        self._show = show
        self._server = server
        self._name = name
        self._coloured = coloured
        self._interface: list[str] = []
        self._scratch: Path | None = None

    def say(self, text: str, colour: str = "cyan") -> None:
        """Print a line with the time."""
        now = datetime.now().astimezone().strftime("%H:%M:%S")
        self._show(f"{now} {texts.heading(escape_control(text), colour, coloured=self._coloured)}")

    def show_failure(self, text: str, failure: Failure) -> None:
        """Print a line with the time, and the traceback or the reason of a failure."""
        self.say(text, "red")
        for line in texts.failure_lines(failure, coloured=self._coloured):
            self._show(line)

    async def show_version(self, version: int, address: tuple[str, int], seconds: float) -> None:
        """Print how to call a version, which serves `seconds` after its save at `address`, and its response to that.

        Its inputs and outputs are printed too: all of the first version, the differences of later ones.
        """
        target = ServerAddress(*address, "the model", "see its output")
        url = f"{self._server}/v2/models/{self._name}"
        try:
            found = await asyncio.to_thread(_example_of, target, self._name)
            file = "" if texts.is_short(found.request) else self._store(found.request)
        except (KnodelError, OSError) as error:  # it has ended meanwhile, or its input is too large for an example
            self.say(f"version {version} serves on {url} after {seconds:.2f} s; no example: {error}", "green")
            return
        interface, former = texts.interface_lines(found.metadata), self._interface
        self._interface = interface
        self.say(f"version {version} serves{'' if former else f' on {url}'} after {seconds:.2f} s", "green")
        shown = texts.changed_interface(former, interface) if former else interface
        for line in texts.listed([*shown, *texts.example_lines(self._server, self._name, found.request, file)]):
            self._show(line)
        with contextlib.suppress(KnodelError):
            self._show(texts.INDENT + await asyncio.to_thread(_answer_of, target, self._name, found.request))

    def close(self) -> None:
        """Remove the file of the example."""
        if self._scratch is not None:
            shutil.rmtree(self._scratch, ignore_errors=True)

    def _store(self, request: str) -> str:
        """Write the example to a temporary file, and return its path. Raises OSError."""
        self._scratch = self._scratch or Path(tempfile.mkdtemp(prefix="knodel-dev-"))
        file = self._scratch / "example.json"
        file.write_text(request, encoding="utf-8")
        return str(file)


@dataclass(frozen=True, slots=True)
class _Example:
    """The metadata of a model, and an example request as JSON."""

    metadata: dict[str, Any]
    request: str


def _example_of(address: ServerAddress, name: str) -> _Example:
    """Return the example of a model that serves. Raises ClientError."""
    driver, target = BlockingDriver(HttpTransport()), IngressTarget(address, {})
    metadata = driver.run(read_json(target, name, f"/v2/models/{name}", TIMEOUT))
    return _Example(metadata, driver.run(example_request(target, name, TIMEOUT)))


def _answer_of(address: ServerAddress, name: str, request: str) -> str:
    """Send the example, and return a line about the response. Raises ClientError when there is none."""
    began = time.monotonic()
    headers = {"Content-Type": "application/json"}
    with exchange(
        address, "POST", f"/v2/models/{name}/infer", body=request.encode(), headers=headers, timeout=ANSWER_TIMEOUT
    ) as answer:
        content = answer.body().decode("utf-8", "replace")
    return texts.answer_line(answer.status, time.monotonic() - began, content)
