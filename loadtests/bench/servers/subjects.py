"""The measured servers, and their command lines for a model file."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from loadtests.bench.servers import apps
from loadtests.bench.servers.environments import Peer
from loadtests.bench.servers.load import NAME, Kind
from loadtests.bench.servers.server import HOST, Launch, Ports

APPS = Path(apps.__file__).parent
ENGINES = ("onnxruntime", "scikit-learn")
KSERVE = Peer("kserve", "0.21.0", ENGINES)
MLSERVER = Peer("mlserver", "1.7.1", ENGINES, ("mlserver-sklearn==1.7.1", "uvloop<0.22"))

KNODEL_LABEL = "Knodel"
BATCHED_LABEL = "Knodel, in batches"
KSERVE_LABEL = "KServe"
SILENT_LABEL = "KServe, silenced"
MLSERVER_LABEL = "MLServer"
ECHO_LABEL = "raw ASGI echo"
BARE_LABEL = "Starlette + ONNX Runtime"
JSON_ONLY = frozenset({Kind.JSON})
ALL_KINDS = frozenset(Kind)


@dataclass(frozen=True, slots=True)
class Subject:
    """A server; `speaks` lists its protocols, `answers` is false for the floor, which only echoes."""

    label: str
    launch: Callable[[Ports, Path], Launch]
    speaks: frozenset[Kind] = JSON_ONLY
    answers: bool = True


def knodel(model: Path, grpc: bool = False, batch: int = 0) -> Subject:
    """Our server with its defaults. gRPC and batches are enabled only if the load needs them."""
    more = ["--max-batch-size", str(batch)] if batch else []

    def launch(ports: Ports, _: Path) -> Launch:
        environment = {**knodel_environment(ports), **({"GRPC_PORT": str(ports.grpc)} if grpc else {})}
        return Launch([sys.executable, *knodel_arguments(model), *more], environment)

    return Subject(BATCHED_LABEL if batch else KNODEL_LABEL, launch, ALL_KINDS if grpc else ALL_KINDS - {Kind.GRPC})


def knodel_arguments(model: Path) -> list[str]:
    """Arguments after the interpreter."""
    return ["-m", "serving.modelserver", "--name", NAME, "--storage-uri", model.as_uri()]


def knodel_environment(ports: Ports) -> Mapping[str, str]:
    """HTTP ports."""
    return {"PORT": str(ports.http), "MANAGEMENT_PORT": str(ports.more)}


def kserve(model: Path, silent: bool = False) -> Subject:
    """A subclass of `kserve.Model`, with its default logging unless `silent`."""
    python = KSERVE.python()

    def launch(ports: Ports, _: Path) -> Launch:
        options = ["--http_port", str(ports.http), "--grpc_port", str(ports.grpc), "--model_name", NAME]
        options += ["--path", str(model), *(["--silent"] if silent else [])]
        return Launch([str(python), str(APPS / "kserve_app.py"), *options])

    return Subject(SILENT_LABEL if silent else KSERVE_LABEL, launch, ALL_KINDS)


def mlserver(model: Path) -> Subject:
    """MLServer without worker processes, which are slower. It has no ONNX runtime of its own."""
    python = MLSERVER.python()
    implementation = "mlserver_onnx.OnnxModel" if model.suffix == ".onnx" else "mlserver_sklearn.SKLearnModel"
    described = {"name": NAME, "implementation": implementation, "parameters": {"uri": str(model)}}

    def launch(ports: Ports, folder: Path) -> Launch:
        settings: dict[str, Any] = {
            "host": HOST,
            "http_port": ports.http,
            "grpc_port": ports.grpc,
            "metrics_port": ports.more,
            "parallel_workers": 0,
        }
        (folder / "settings.json").write_text(json.dumps(settings))
        (folder / "model-settings.json").write_text(json.dumps(described))
        program = python.with_name("mlserver")
        return Launch([str(program), "start", str(folder)], {"PYTHONPATH": str(APPS)}, folder)

    return Subject(MLSERVER_LABEL, launch, frozenset({Kind.JSON, Kind.GRPC}))


def echo() -> Subject:
    """The floor of every server on uvicorn."""

    def launch(ports: Ports, _: Path) -> Launch:
        return Launch([sys.executable, "-m", "loadtests.bench.servers.apps.echo", str(ports.http)])

    return Subject(ECHO_LABEL, launch, answers=False)


def bare(model: Path) -> Subject:
    """The floor of a start with ONNX Runtime."""

    def launch(ports: Ports, _: Path) -> Launch:
        return Launch([sys.executable, "-m", "loadtests.bench.servers.apps.bare", str(ports.http), str(model)])

    return Subject(BARE_LABEL, launch)
