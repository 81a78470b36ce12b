"""Messages between the pool and a worker: frames over a socket, each after its length in eight bytes.

The worker blocks until a message is complete. The pool never blocks on one worker: it reads the bytes that have arrived
and writes as many as the socket takes. So a worker that stops within a message does not delay the others.
"""

from __future__ import annotations

import pickle
import select
import socket
import struct
import time
from collections import deque
from collections.abc import Sequence

LARGEST_FRAME = 4 << 30
"""Size limit of a worker's message in bytes; a worker that announces more is killed."""

_HEADER = struct.Struct(">Q")
_PIECE = 1 << 20
_LONGEST_POLL = 3600.0


class OversizedFrameError(Exception):
    """A worker announced a message longer than ``LARGEST_FRAME``."""


class Channel:
    """The pool's end of a connection. No method blocks."""

    def __init__(self, end: socket.socket) -> None:
        end.setblocking(False)
        self._socket = end
        self._outgoing: deque[memoryview] = deque()
        self._incoming = bytearray()
        self._length: int | None = None

    @property
    def closed(self) -> bool:
        """Whether this end is closed."""
        return self._socket.fileno() < 0

    def fileno(self) -> int:
        """The socket's file descriptor, for polling."""
        return self._socket.fileno()

    @property
    def is_writing(self) -> bool:
        """Whether bytes are waiting to be sent."""
        return bool(self._outgoing)

    def close(self) -> None:
        """Close this end."""
        self._socket.close()

    def send(self, message: object) -> None:
        """Begin to send a pickled message. If the worker is gone, ``read`` raises."""
        payload = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
        self._outgoing += (memoryview(_HEADER.pack(len(payload))), memoryview(payload))
        self.write()

    def write(self) -> None:
        """Send as many waiting bytes as the socket takes."""
        while self._outgoing:
            try:
                sent = self._socket.send(self._outgoing[0][:_PIECE])
            except BlockingIOError:
                return
            except OSError:
                self._outgoing.clear()
                return
            left = self._outgoing.popleft()[sent:]
            if left:
                self._outgoing.appendleft(left)

    def read(self) -> list[bytearray]:
        """Read available bytes; returns the messages that they complete. To be called when the socket is readable.

        Raises:
            EOFError: if the worker is gone.
            OSError: if the worker is gone.
            OversizedFrameError: if a message is announced to be longer than ``LARGEST_FRAME``.
        """
        try:
            piece = self._socket.recv(_PIECE)
        except BlockingIOError:
            return []
        if not piece:
            raise EOFError
        self._incoming += piece
        frames: list[bytearray] = []
        while (frame := self._next()) is not None:
            frames.append(frame)
        return frames

    def _next(self) -> bytearray | None:
        if self._length is None and len(self._incoming) >= _HEADER.size:
            (self._length,) = _HEADER.unpack_from(self._incoming)
            del self._incoming[: _HEADER.size]
            if self._length > LARGEST_FRAME:
                raise OversizedFrameError(f"{self._length} bytes, of which at most {LARGEST_FRAME} are read")
        if self._length is None or len(self._incoming) < self._length:
            return None
        length, self._length = self._length, None
        if length == len(self._incoming):
            frame, self._incoming = self._incoming, bytearray()
        else:
            frame = self._incoming[:length]
            del self._incoming[:length]
        return frame


def wait(channels: Sequence[Channel], seconds: float) -> list[Channel]:
    """Wait until a channel is readable or time is up, and send waiting bytes; returns the readable channels."""
    deadline = time.monotonic() + seconds
    poll = select.poll()
    by_number = {channel.fileno(): channel for channel in channels}
    while True:
        for number, channel in by_number.items():
            poll.register(number, select.POLLIN | (select.POLLOUT if channel.is_writing else 0))
        left = max(0.0, deadline - time.monotonic())
        events = poll.poll(min(left, _LONGEST_POLL) * 1000)
        for number, event in events:
            if event & select.POLLOUT:
                by_number[number].write()
        readable = [by_number[number] for number, event in events if event & ~select.POLLOUT]
        if readable or time.monotonic() >= deadline:
            return readable


def send_frame(end: socket.socket, payload: bytes) -> None:
    """Worker side: send a message; blocks until it is sent."""
    end.sendall(_HEADER.pack(len(payload)))
    end.sendall(payload)


def receive_frame(end: socket.socket) -> bytearray:
    """Worker side: wait for a message and return it.

    Raises:
        EOFError: if the pool is gone.
    """
    (length,) = _HEADER.unpack(_receive(end, _HEADER.size))
    return _receive(end, length)


def _receive(end: socket.socket, length: int) -> bytearray:
    data = bytearray(length)
    view, done = memoryview(data), 0
    while done < length:
        count = end.recv_into(view[done:], min(_PIECE, length - done))
        if not count:
            raise EOFError
        done += count
    return data
