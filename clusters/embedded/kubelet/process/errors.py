"""Errors that prevent the start of a container. `reason` is the kubelet's reason for the waiting container."""

from __future__ import annotations

from clusters.base.errors import KnodelError


class CreateContainerError(KnodelError):
    """The container's process cannot be started. The kubelet retries later."""

    reason = "CreateContainerError"


class PortsExhausted(CreateContainerError):
    """The node has no free port."""


class ImageNotFound(CreateContainerError):
    """The node has no image of this name."""

    reason = "ErrImagePull"


class CreateContainerConfigError(CreateContainerError):
    """An environment variable, a quantity, a volume or a Secret of the container is invalid or missing."""

    reason = "CreateContainerConfigError"


class RunContainerError(CreateContainerError):
    """The operating system refused to start the command."""

    reason = "RunContainerError"


class UnsupportedPod(KnodelError):
    """The node rejects the Pod at admission because it does not support its spec. The Pod fails for good."""


class ZygoteFailed(KnodelError):
    """The zygote did not start or did not fork. The caller can start the command itself."""
