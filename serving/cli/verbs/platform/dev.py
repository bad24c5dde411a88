"""`knodel dev`."""

from __future__ import annotations

import contextlib
import os
import sys
from typing import TYPE_CHECKING, Final

import click

from serving.cli.base.output import uses_colour
from serving.cli.context import Session, verb
from serving.cli.names import files, formats, name_of_path
from serving.client.errors import ClientError, UsageError
from serving.client.home import expand_home
from serving.client.models.local_files import is_local_path

if TYPE_CHECKING:
    from serving.cli.dev.session import DevOptions

LOAD_TIMEOUT: Final = 60.0  # s


@verb(
    "dev", place="nowhere", namespaced=False, prints=False,
    examples=[
        ("Serve a Python class, and reload it after each save", "knodel dev ./scaled"),
        ("Serve a file that a training writes again and again", "knodel dev ./iris.skops --name iris --port 9000"),
    ],
)  # fmt: skip
@click.argument("path", shell_complete=files)
@click.option("--name", metavar="NAME", help="Name of the model [that of the file or folder].")
@click.option("--port", type=click.IntRange(1, 65535), default=8080, show_default=True, help="Port to serve on.")
@click.option(
    "--format", "model_format", metavar="FORMAT", default="", shell_complete=formats,
    help="Format of the model [detected from its files; python if it has a model.py].",
)  # fmt: skip
@click.option(
    "--ignore", "ignored", multiple=True, metavar="PATTERN",
    help="Files whose changes do not reload the model, such as '*.log' or data; may be repeated.",
)  # fmt: skip
@click.option(
    "--load-timeout", type=click.FloatRange(min=0.1), metavar="SECONDS", default=LOAD_TIMEOUT, show_default=True,
    help="Maximum time to load the model; the former version serves meanwhile.",
)  # fmt: skip
@click.option(
    "--memory-limit", metavar="QUANTITY", help="Memory that a version may take to load, such as 4Gi [no limit]."
)
@click.option(
    "--max-batch-size", type=click.IntRange(min=1), metavar="ROWS", help="Maximum number of rows in a batch [1]."
)
@click.option("--max-batch-latency", type=float, metavar="SECONDS", help="Maximum time to wait for a batch to fill.")
@click.option("--allow-code", is_flag=True, help="Allow code in formats that need none, such as file operators.")
@click.option(
    "--allowed-host", "allowed_hosts", multiple=True, metavar="NAME",
    help="Additional host name to accept in requests: a name, *.DOMAIN or * for any; may be repeated.",
)  # fmt: skip
def command(
    session: Session, path: str, name: str | None, port: int, model_format: str, ignored: tuple[str, ...],
    load_timeout: float, memory_limit: str | None, max_batch_size: int | None, max_batch_latency: float | None,
    allow_code: bool, allowed_hosts: tuple[str, ...],
) -> int:  # fmt: skip
    """Serve the model at PATH (a file or folder) on this machine, and reload it after each save; Ctrl-C stops it.

    A save starts a new version. The former one serves until the new one is loaded, and goes on if it cannot be loaded.
    Code of the model runs without --allow-code: PATH is your own. Only this machine can reach the port.
    """
    batching = {"--max-batch-size": max_batch_size, "--max-batch-latency": max_batch_latency}
    given = [f"{option}={value}" for option, value in batching.items() if value is not None]
    given += [f"--allowed-host={host}" for host in allowed_hosts]
    given += ["--allow-code"] if allow_code else []
    _run(_options(path, name, port, model_format, tuple(given), load_timeout, memory_limit, ignored))
    return 0


def _options(
    text: str, name: str | None, port: int, format: str, server_options: tuple[str, ...], load_timeout: float,
    memory_limit: str | None, ignored: tuple[str, ...],
) -> DevOptions:  # fmt: skip
    """Return the checked options. Raises UsageError."""
    from clusters.base.quantities import parse_quantity
    from serving.cli.dev.code import model_path
    from serving.cli.dev.session import DevOptions
    from serving.engines.base.errors import UnknownFormat
    from serving.engines.base.registry import find_format
    from serving.modelserver.base.errors import BadOptions
    from serving.modelserver.base.options import parse_options

    if not is_local_path(text):
        raise UsageError(f"{text} cannot be watched: give a local file or folder (knodel serve takes URIs)")
    path = expand_home(text).absolute()
    if not path.exists():
        raise UsageError(
            f"{text} does not exist: give the file or folder of a model; `knodel init --list` shows templates"
        )
    if ".." in path.parts:
        path = path.resolve()
    path = model_path(path)  # not resolved: a link that is set to another folder is a save
    try:
        if format:
            find_format(format, ())
        limit = None if memory_limit is None else int(parse_quantity(memory_limit))
        model = name or name_of_path(str(path))
        checked = parse_options(["--name", model, "--storage-uri", path.as_uri(), *server_options], {})
    except ValueError as error:
        raise UsageError(f"--memory-limit {memory_limit} {error}") from error
    except (BadOptions, UnknownFormat) as error:
        raise UsageError(str(error)) from error
    return DevOptions(path, model, port, format, server_options, checked.hosts, load_timeout, limit, ignored)


def _run(options: DevOptions) -> None:
    """Serve until SIGINT, SIGTERM or SIGHUP. Raises ClientError when the port is in use."""
    import asyncio
    import signal

    from serving.cli.dev.files import TooManyFiles
    from serving.cli.dev.server_process import HOST
    from serving.cli.dev.session import DevSession
    from serving.modelserver.base.errors import CannotListen
    from serving.modelserver.connections.sockets import bind

    try:
        sock = bind(HOST, options.port, "PORT")
    except CannotListen as error:
        raise ClientError(error.message("--port")) from error
    os.environ.setdefault("PYTHONUNBUFFERED", "1")

    async def run() -> None:
        stop = asyncio.Event()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
        await DevSession(options, sock, _show, coloured=uses_colour(sys.stderr)).run(stop)

    try:
        asyncio.run(run())
    except TooManyFiles as error:
        raise UsageError(str(error)) from error
    finally:
        sock.close()


def _show(line: str) -> None:
    """Print a line to stderr. The model is served also when nobody reads it any more."""
    with contextlib.suppress(OSError):
        click.echo(line, err=True)
