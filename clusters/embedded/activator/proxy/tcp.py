"""What the kernel knows of a connection before the event loop does, and what it holds for us."""

from __future__ import annotations

import asyncio
import socket

BACKLOG = 4096  # connections that the kernel holds for us; a thousand callers may come at once
RECEIVE_BUFFER = 32 * 1024  # bytes; SO_RCVBUF of callers' sockets, bounds what one held request keeps of its body
ESTABLISHED = 1  # linux/tcp_states.h; first byte of struct tcp_info


def is_established(transport: asyncio.BaseTransport) -> bool:
    """Whether neither side has closed the connection; false as soon as the other side's end has arrived here."""
    if transport.is_closing():
        return False
    sock = transport.get_extra_info("socket")
    return bool(sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] == ESTABLISHED)


def set_receive_buffer(transport: asyncio.BaseTransport, size: int) -> None:
    """How many bytes the kernel keeps for us before the other side has to wait."""
    transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, size)
