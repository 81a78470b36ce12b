"""Messages between the pool and a worker: frames over a socket, a length of eight bytes before each.

The worker has nothing better to do than to wait. The pool never waits for one worker: it reads what has arrived and
writes what there is room for, so that a worker which stops in the midst of a message holds up nobody.
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
"""Bytes of a message that a worker may send; what announces more is not believed."""

_HEADER = struct.Struct(">Q")
_PIECE = 1 << 20
_LONGEST_POLL = 3600.0


class OversizedFrameError(Exception):
    """A message was announced that is longer than any can be."""


class Channel:
    """The pool's end of a connection: nothing that it does waits for the worker."""

    def __init__(self, end: socket.socket) -> None:
        end.setblocking(False)
        self._socket = end
        self._outgoing: deque[memoryview] = deque()
        self._incoming = bytearray()
        self._length: int | None = None

    @property
    def closed(self) -> bool:
        """Whether it was closed here."""
        return self._socket.fileno() < 0

    def fileno(self) -> int:
        """The descriptor, for waiting."""
        return self._socket.fileno()

    @property
    def is_writing(self) -> bool:
        """Whether a part of a message waits until the worker has read what comes before it."""
        return bool(self._outgoing)

    def close(self) -> None:
        """Close this end."""
        self._socket.close()

    def send(self, message: object) -> None:
        """Begin to send a message, pickled. That the worker is gone is found out when its answer is read."""
        payload = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
        self._outgoing += (memoryview(_HEADER.pack(len(payload))), memoryview(payload))
        self.write()

    def write(self) -> None:
        """Send what there is room for."""
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
        """The messages that are complete with what has arrived; call it when there is something to read.

        Raises:
            EOFError: if the worker is gone.
            OSError: likewise.
            OversizedFrameError: a message is announced to be longer than ``LARGEST_FRAME``.
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
    """Until one of the channels has something to read, or time is up; meanwhile what is being sent goes on."""
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
    """Worker side: send a message, and wait until it is sent."""
    end.sendall(_HEADER.pack(len(payload)))
    end.sendall(payload)


def receive_frame(end: socket.socket) -> bytearray:
    """Worker side: wait for a message.

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
