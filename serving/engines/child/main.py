"""The process of a model: loads it and handles one request after the other, until its server ends.

python -m serving.engines.child.main FD
"""

from __future__ import annotations

import importlib
import signal
import socket
import sys
from collections.abc import Sequence
from pathlib import Path

from clusters.base.process_setup import end_with_pipe
from serving.engines.base.datatypes import Tensor
from serving.engines.base.engine import Engine
from serving.engines.base.errors import EngineError, InferenceFailed, InputRefused, LoadFailed
from serving.engines.child.messages import (
    Channel,
    ChildFailure,
    InferenceOutputs,
    LoadModel,
    ModelLoaded,
    RunInference,
    tensor_headers,
)
from serving.storage.base.artifact import Artifact
from serving.storage.base.errors import StorageError


def main(descriptor: int) -> None:
    """Handle the requests of the socket `descriptor`."""
    end_with_pipe(sys.stdin.fileno())
    channel = Channel(socket.socket(fileno=descriptor))
    try:
        engine = _load(channel)
        for number in (signal.SIGTERM, signal.SIGINT):  # after the import of libraries that install handlers
            signal.signal(number, signal.SIG_IGN)  # the server drains, and needs this process for that
        while engine is not None:
            _infer(channel, engine)
    except (EOFError, OSError):
        return  # the server has ended


def _load(channel: Channel) -> Engine | None:
    message, _ = channel.receive()
    if not isinstance(message, LoadModel):
        raise EOFError
    try:
        artifact = Artifact(Path(message.folder).resolve(), None, uri=message.uri)
        engine: Engine = importlib.import_module(message.module).load(artifact, message.options)
    except (LoadFailed, StorageError) as error:
        channel.send(ChildFailure(LoadFailed.__name__, str(error)))
        return None
    channel.send(ModelLoaded(engine.signature))
    return engine


def _infer(channel: Channel, engine: Engine) -> None:
    message, tensors = channel.receive()
    if not isinstance(message, RunInference):
        raise EOFError
    names = [header.name for header in message.tensors]
    try:
        outputs: Sequence[Tensor] = engine.infer(dict(zip(names, tensors, strict=True)), message.outputs)
        headers = tensor_headers(message.outputs, outputs)
    except InputRefused as error:
        channel.send(ChildFailure(InputRefused.__name__, str(error)))
    except (EngineError, KeyError) as error:
        channel.send(ChildFailure(InferenceFailed.__name__, str(error)))
    else:
        channel.send(InferenceOutputs(headers), outputs)


if __name__ == "__main__":
    main(int(sys.argv[1]))
