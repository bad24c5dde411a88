"""`knodel serve`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

import click

from clusters.base.redact import redact_url
from serving.cli.context import Session, verb
from serving.cli.llm import llm_options, take_llm_fields
from serving.cli.mlflow import resolve_reference
from serving.cli.names import files, formats, name_of_path
from serving.cli.ray import RAY_APPLICATION
from serving.client.errors import ClientError, UsageError
from serving.client.home import expand_home
from serving.client.inference.addresses import reachable_host
from serving.client.mlflow.references import is_reference
from serving.client.models.local_files import name_for, uri_of
from serving.types.faults import storage_uri_fault

_PORT: Final = click.IntRange(1, 65535)
_OPTIONS: Final = MappingProxyType(
    {"HOST": "--host", "PORT": "--port", "GRPC_PORT": "--grpc-port", "MANAGEMENT_PORT": "--management-port"}
)
"""Environment variable of the server → the option of this verb that sets it."""


@verb(
    "serve", place="nowhere", namespaced=False, prints=False,
    examples=[
        ("Serve a file", "knodel serve ./iris.onnx --port 9000"),
        ("Serve a language model with a LoRA adapter", "knodel serve ./chat.gguf --adapter pirate=./pirate-lora.gguf"),
        ("Serve every model of a folder", "knodel serve ./models --models --memory-limit 4Gi"),
    ],
)  # fmt: skip
@click.argument("path", shell_complete=files)
@click.option("--models", is_flag=True, help="Serve every model of the folder PATH under its own name.")
@click.option(
    "--memory-limit", metavar="QUANTITY", help="With --models: memory limit of all models, such as 4Gi [all]."
)
@click.option(
    "--load-timeout", type=float, metavar="SECONDS", help="With --models: maximum time to load a model [600]."
)
@click.option("--name", metavar="NAME", help="Name of the model [that of the file or folder].")
@click.option("--port", type=_PORT, default=8080, show_default=True, help="Port to serve on.")
@click.option("--grpc-port", type=_PORT, help="Port to serve gRPC on [none].")
@click.option(
    "--management-port", type=_PORT, help="Port of statistics, metrics and the model repository [a free port]."
)
@click.option(
    "--format",
    "model_format",
    metavar="FORMAT",
    default="",
    shell_complete=formats,
    help="Format of the model [detected from its files].",
)
@click.option(
    "--max-batch-size", type=click.IntRange(min=1), metavar="ROWS", help="Maximum number of rows in a batch [1]."
)
@click.option("--max-batch-latency", type=float, metavar="SECONDS", help="Maximum time to wait for a batch to fill.")
@click.option("--cpu", type=click.FloatRange(min=0, min_open=True), metavar="CORES",
              help="Number of cores that the model may use [all].")  # fmt: skip
@llm_options("--embeddings")
@RAY_APPLICATION
@click.option(
    "--allow-code",
    is_flag=True,
    help="Allow formats that run code of the artifact: python, pickle, joblib, pyfunc, ray.",
)
@click.option(
    "--allowed-host",
    "allowed_hosts",
    multiple=True,
    metavar="NAME",
    help="Additional host name to accept in requests: a name, *.DOMAIN or * for any; may be repeated.",
)
@click.option("--host", metavar="ADDRESS", default="127.0.0.1", show_default=True, help="Address to serve on.")
def command(
    session: Session, path: str, models: bool, memory_limit: str | None, load_timeout: float | None, name: str | None,
    port: int, grpc_port: int | None, management_port: int | None, model_format: str, max_batch_size: int | None,
    max_batch_latency: float | None, cpu: float | None, allow_code: bool, allowed_hosts: tuple[str, ...], host: str,
    **named: Any,
) -> int:  # fmt: skip
    """Serve the model at PATH (a file, a folder or a URI) without a platform; Ctrl-C stops it."""
    from serving.engines.base.container_limits import available_cores
    from serving.modelserver.base.errors import BadOptions, CannotListen
    from serving.modelserver.main import serve  # the server's imports are heavy

    if models and name:
        raise UsageError("--name cannot be used with --models, which are named after their files and folders: omit it")
    _check_ports({"--port": port, "--grpc-port": grpc_port, "--management-port": management_port})
    ports = {"PORT": str(port), "MANAGEMENT_PORT": str(management_port or 0), "GRPC_PORT": str(grpc_port or "")}
    if is_reference(path) and not models:
        name, path = name or name_for(path), resolve_reference(path).location
    uri = "" if models else uri_of(path)
    if uri and (fault := storage_uri_fault(uri)):
        raise UsageError(f"{redact_url(uri)}: {fault}")
    model = "" if models else name or name_of_path(path)
    what = [f"--models={expand_home(path)}"] if models else ["--name", model, "--storage-uri", uri]
    options = {
        "--format": model_format, "--memory-limit": memory_limit, "--load-timeout": load_timeout,
        "--max-batch-size": max_batch_size, "--max-batch-latency": max_batch_latency,
        "--cpu": f"{cpu or available_cores():g}",
    }  # fmt: skip
    given = [f"{option}={value}" for option, value in options.items() if value not in ("", None)]
    given += [f"--allowed-host={name}" for name in allowed_hosts]
    given += _llm_arguments(take_llm_fields(named) or {})
    given += [f"--ray-application={application}"] if (application := named["ray_application"]) else []
    given += ["--allow-code"] if allow_code else []
    address = f"http://{reachable_host(host)}:{port}/v2/models/{model or 'NAME'}"
    grpc = f", gRPC on {reachable_host(host)}:{grpc_port}" if grpc_port else ""
    try:
        serve(
            [*what, *given],
            {**os.environ, "HOST": host, **ports},
            lambda: click.echo(f"serving {model or path} on {address}{grpc}", err=True),
        )
    except BadOptions as error:
        raise UsageError(str(error)) from error
    except CannotListen as error:
        message = error.message(_OPTIONS[error.setting])
        raise (UsageError if error.setting == "HOST" else ClientError)(message) from error
    return 0


def _llm_arguments(llm: Mapping[str, Any]) -> list[str]:
    """Return the server's options for the fields of `spec.llm`. Raises UsageError."""
    found = [f"--context-length={llm['contextLength']}"] if "contextLength" in llm else []
    for adapter in llm.get("adapters", ()):
        uri = uri_of(adapter["uri"])
        if fault := storage_uri_fault(uri):
            raise UsageError(f"--adapter {adapter['name']}={redact_url(uri)}: {fault}")
        digest = f"#{adapter['digest']}" if "digest" in adapter else ""
        found.append(f"--adapter={adapter['name']}={uri}{digest}")
    found += [f"--engine-arg={name}={value}" for name, value in llm.get("engineArgs", {}).items()]
    found += [f"--tool-parser={llm['toolParser']}"] if "toolParser" in llm else []
    return [*found, *(["--embeddings"] if llm.get("embeddings") else [])]


def _check_ports(ports: Mapping[str, int | None]) -> None:
    """Refuse one port for two purposes. Raises UsageError."""
    options: dict[int, str] = {}
    for option, port in ports.items():
        if port is not None and (other := options.setdefault(port, option)) != option:
            raise UsageError(f"{option} {port}: {other} already has this port: choose another port")
