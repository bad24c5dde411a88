"""Import gRPC and protobuf with our settings. Raises BadOptions where they are not installed."""

from __future__ import annotations

import os

from serving.modelserver.base.errors import BadOptions

# gRPC reads both at its import. Its log lines are about clients' errors, which clients receive in responses. Its newer
# listener passes each step of a call between threads; without it a call takes 10 % less CPU.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
os.environ.setdefault("GRPC_EXPERIMENTS", "-event_engine_listener")

try:
    import google.protobuf as protobuf
    import grpc
    import grpc.aio
except ImportError as error:
    from clusters.base.distribution import install_command  # reads the metadata of the distribution

    raise BadOptions(f"gRPC needs {error.name}, which is not installed: {install_command('knodel[grpc]')}") from error

__all__ = ["grpc", "protobuf"]
