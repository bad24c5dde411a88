"""What keeps a container from starting; `reason` is the one that the real kubelet gives to a waiting container."""

from __future__ import annotations

from clusters.base.errors import KnodelError


class CannotStart(KnodelError):
    """The container's process could not be started; the kubelet tries again later."""

    reason = "CreateContainerError"


class PortsExhausted(CannotStart):
    """No free port on the node."""


class UnknownImage(CannotStart):
    """No image of that name on this node."""

    reason = "ErrImagePull"


class BadContainerConfig(CannotStart):
    """An environment variable, a quantity or a secret of the container cannot be used."""

    reason = "CreateContainerConfigError"


class StartFailed(CannotStart):
    """The operating system refused to start the command."""

    reason = "RunContainerError"


class UnsupportedPod(KnodelError):
    """The Pod asks for what this node does not have; it fails for good, as one that a node does not admit."""


class ZygoteFailed(KnodelError):
    """The zygote did not start, or did not fork; the caller starts the command itself."""
