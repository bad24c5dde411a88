"""gRPC and protobuf, imported the only way that we want it: quiet, and with a word for who has not installed them."""

from __future__ import annotations

import os

from serving.modelserver.base.errors import BadOptions

# Both are read at the import. gRPC's lines in the log are about callers, who get an answer. And its newer listener
# hands every step of a call from thread to thread: without it a call takes a tenth less of the processor.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
os.environ.setdefault("GRPC_EXPERIMENTS", "-event_engine_listener")

try:
    import google.protobuf as protobuf
    import grpc
    import grpc.aio
except ImportError as error:
    raise BadOptions(f"gRPC needs {error.name}, which is not installed: pip install 'knodel[grpc]'") from error

__all__ = ["grpc", "protobuf"]
