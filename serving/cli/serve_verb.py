"""`knodel serve`."""

from __future__ import annotations

import os
from pathlib import Path

import click

from serving.cli.context import Session, verb
from serving.cli.errors import UsageError


@verb("serve", place="machine")
@click.argument("path")
@click.option("--name", help="Name of the model [the file's or folder's name].")
@click.option("--port", type=click.IntRange(1, 65535), default=8080, show_default=True, help="Port to serve on.")
@click.option("--grpc-port", type=click.IntRange(1, 65535), help="Port to serve gRPC on [none].")
@click.option("--format", "model_format", default="", help="Format of the model [found from its files].")
@click.option("--allow-code", is_flag=True, help="Serve formats that run code of the artifact: python, pickle, joblib.")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to serve on.")
def command(
    session: Session, path: str, name: str | None, port: int, grpc_port: int | None, model_format: str,
    allow_code: bool, host: str,
) -> int:  # fmt: skip
    """Serve the model at PATH (a file, a folder or a URI) without a platform; Ctrl-C ends it."""
    from serving.server.main import main  # the server's imports are heavy

    uri = path if "://" in path else Path(path).expanduser().absolute().as_uri()
    model = name or _name_of(path)
    os.environ.update({"HOST": host, "PORT": str(port), "MANAGEMENT_PORT": "0", "GRPC_PORT": str(grpc_port or "")})
    click.echo(f"serving {model} on http://{host}:{port}/v2/models/{model}", err=True)
    code = ["--allow-code"] if allow_code else []
    return main(["--name", model, "--storage-uri", uri, "--format", model_format, *code])


def _name_of(path: str) -> str:
    stem = Path(path.rstrip("/")).name.split(".")[0].lower()
    name = "".join(char if char.isalnum() and char.isascii() else "-" for char in stem).strip("-")
    if not name:
        raise UsageError(f"no model name can be made of {path!r}: give one by --name")
    return name
