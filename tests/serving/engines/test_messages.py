"""The messages between the server and the process of a model."""

from __future__ import annotations

import socket

from serving.engines.base.engine import Adapter, EngineOptions, LlmOptions
from serving.engines.child.messages import Channel, LoadModel


def test_the_options_of_an_engine_arrive_as_they_were_sent() -> None:
    llm = LlmOptions(4096, True, (Adapter("pirate", "/models/lora"),), "hermes", (("seed", "7"), ("dtype", "größe")))
    message = LoadModel("module", "/models/m", "hf://org/m", EngineOptions(3, True, "s", "m", 8, 1 << 33, llm))
    ours, theirs = map(Channel, socket.socketpair())

    ours.send(message)

    assert theirs.receive() == (message, [])
    ours.close()
    theirs.close()
