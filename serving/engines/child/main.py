"""The process of a model: loads it and answers one request after the other, until its server is gone.

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
from serving.engines.child.messages import Answer, Channel, Failed, Infer, Load, Loaded, heads_of
from serving.storage.base.artifact import Artifact
from serving.storage.base.errors import StorageError


def main(descriptor: int) -> None:
    """Serve the socket `descriptor`."""
    _end_with_server(sys.stdin.fileno())
    channel = Channel(socket.socket(fileno=descriptor))
    try:
        engine = _load(channel)
        _stay()  # libraries take signals as they are imported
        while engine is not None:
            _answer(channel, engine)
    except (EOFError, OSError):
        return  # nobody is left to ask


def _end_with_server(pipe: int) -> None:
    """The kernel ends this process when the server's end of the pipe is gone, whatever it is busy with then.

    By SIGIO, whose usual action that is. PR_SET_PDEATHSIG would ask for the end of the server's thread.
    """
    fcntl.fcntl(pipe, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(pipe, fcntl.F_SETFL, fcntl.fcntl(pipe, fcntl.F_GETFL) | os.O_ASYNC)
    gone = select.poll()
    gone.register(pipe, select.POLLHUP)
    if gone.poll(0):  # before it could be told
        sys.exit()


def _stay() -> None:
    """A signal to the whole group tells the server to finish what it has, and that is done here."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)


def _load(channel: Channel) -> Engine | None:
    message, _ = channel.receive()
    if not isinstance(message, Load):
        raise EOFError
    try:
        artifact = Artifact(Path(message.folder).resolve(), None, uri=message.uri)
        engine: Engine = importlib.import_module(message.module).load(artifact, message.options)
    except (LoadFailed, StorageError) as error:
        channel.send(Failed(LoadFailed.__name__, str(error)))
        return None
    channel.send(Loaded(engine.signature))
    return engine


def _answer(channel: Channel, engine: Engine) -> None:
    message, tensors = channel.receive()
    if not isinstance(message, Infer):
        raise EOFError
    names = [head.name for head in message.tensors]
    try:
        answers: Sequence[Tensor] = engine.infer(dict(zip(names, tensors, strict=True)), message.outputs)
        heads = heads_of(message.outputs, answers)
    except InputRefused as error:
        channel.send(Failed(InputRefused.__name__, str(error)))
    except (EngineError, KeyError) as error:
        channel.send(Failed(InferenceFailed.__name__, str(error)))
    else:
        channel.send(Answer(heads), answers)


if __name__ == "__main__":
    main(int(sys.argv[1]))
