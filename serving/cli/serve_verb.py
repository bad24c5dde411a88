"""`knodel serve`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import click

from serving.cli.context import Session, verb
from serving.cli.errors import UsageError
from serving.cli.home import expand
from serving.cli.local_files import uri_of
from serving.cli.names import files, formats

_PORT: Final = click.IntRange(1, 65535)


@verb(
    "serve", place="nowhere", namespaced=False, prints=False,
    examples=[
        ("Serve a file", "knodel serve ./iris.onnx --port 9000"),
        ("Serve every model of a folder", "knodel serve ./models --models --memory-limit 4Gi"),
    ],
)  # fmt: skip
@click.argument("path", shell_complete=files)
@click.option("--models", is_flag=True, help="Serve every model of the folder PATH, each under its name.")
@click.option("--memory-limit", metavar="QUANTITY", help="Limit of the memory of all --models, such as 4Gi [all].")
@click.option("--load-timeout", type=float, metavar="SECONDS", help="Longest time to load one of --models [600].")
@click.option("--name", help="Name of the model [that of the file or folder].")
@click.option("--port", type=_PORT, default=8080, show_default=True, help="Port to serve on.")
@click.option("--grpc-port", type=_PORT, help="Port to serve gRPC on [none].")
@click.option("--management-port", type=_PORT, help="Port of statistics, metrics and the repository [a free one].")
@click.option(
    "--format", "model_format", default="", shell_complete=formats, help="Format of the model [found from its files]."
)
@click.option(
    "--max-batch-size", type=click.IntRange(min=1), metavar="ROWS", help="Maximum number of rows in a batch [1]."
)
@click.option("--max-batch-latency", type=float, metavar="SECONDS", help="Maximum time to wait for a batch to fill.")
@click.option("--allow-code", is_flag=True, help="Allow formats that run code of the artifact: python, pickle, joblib.")
@click.option(
    "--allowed-host",
    "allowed_hosts",
    multiple=True,
    metavar="NAME",
    help="Further host name of requests and web pages, *.DOMAIN or * for any; may be repeated.",
)
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to serve on.")
def command(
    session: Session, path: str, models: bool, memory_limit: str | None, load_timeout: float | None, name: str | None,
    port: int, grpc_port: int | None, management_port: int | None, model_format: str, max_batch_size: int | None,
    max_batch_latency: float | None, allow_code: bool, allowed_hosts: tuple[str, ...], host: str,
) -> int:  # fmt: skip
    """Serve the model at PATH (a file, a folder or a URI) without a platform; Ctrl-C stops it."""
    from serving.server.main import main  # the server's imports are heavy

    if models and name:
        raise UsageError("--name: not together with --models, which are called as their files and folders are")
    ports = {"PORT": str(port), "MANAGEMENT_PORT": str(management_port or 0), "GRPC_PORT": str(grpc_port or "")}
    os.environ.update({"HOST": host, **ports})
    model = "" if models else name or _name_of(path)
    click.echo(f"serving {model or path} on http://{host}:{port}/v2/models/{model or 'NAME'}", err=True)
    what = [f"--models={expand(path)}"] if models else ["--name", model, "--storage-uri", _uri_of(path)]
    options = {
        "--format": model_format, "--memory-limit": memory_limit, "--load-timeout": load_timeout,
        "--max-batch-size": max_batch_size, "--max-batch-latency": max_batch_latency,
    }  # fmt: skip
    given = [f"{option}={value}" for option, value in options.items() if value not in ("", None)]
    given += [f"--allowed-host={name}" for name in allowed_hosts]
    return main([*what, *given, *(["--allow-code"] if allow_code else [])])


def _uri_of(path: str) -> str:
    return uri_of(path)


def _name_of(path: str) -> str:
    stem = Path(path.rstrip("/")).name.split(".")[0].lower()
    name = "".join(char if char.isalnum() and char.isascii() else "-" for char in stem).strip("-")
    if not name:
        raise UsageError(f"no model name can be made of {path!r}: give one by --name")
    return name
