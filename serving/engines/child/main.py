"""The process of a model: loads it and handles one request after the other, until its server ends.

python -m serving.engines.child.main FD
"""

from __future__ import annotations

import fcntl
import importlib
import os
import select
import signal
import socket
import sys
from collections.abc import Sequence
from pathlib import Path

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
    _end_with_server(sys.stdin.fileno())
    channel = Channel(socket.socket(fileno=descriptor))
    try:
        engine = _load(channel)
        for number in (signal.SIGTERM, signal.SIGINT):  # after the import of libraries that install handlers
            signal.signal(number, signal.SIG_IGN)  # the server drains, and needs this process for that
        while engine is not None:
            _infer(channel, engine)
    except (EOFError, OSError):
        return  # the server has ended


def _end_with_server(pipe: int) -> None:
    """Let the kernel end this process when the server's end of the pipe is closed, even if this process hangs.

    The kernel sends SIGIO, whose default action is to terminate. PR_SET_PDEATHSIG is not used, because it watches the
    thread of the server that started this process, not the server.
    """
    fcntl.fcntl(pipe, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(pipe, fcntl.F_SETFL, fcntl.fcntl(pipe, fcntl.F_GETFL) | os.O_ASYNC)
    gone = select.poll()
    gone.register(pipe, select.POLLHUP)
    if gone.poll(0):  # the server ended before the flag was set
        sys.exit()


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
