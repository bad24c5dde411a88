"""gRPC and protobuf, imported the only way that we want it: quiet, and with a word for who has not installed them."""

from __future__ import annotations

import os

from serving.server.errors import BadOptions

os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # its lines are about callers, who get an answer; read at the import

try:
    import google.protobuf as protobuf
    import grpc
    import grpc.aio
except ImportError as error:
    raise BadOptions(f"gRPC needs {error.name}, which is not installed: pip install 'knodel[grpc]'") from error

__all__ = ["grpc", "protobuf"]
