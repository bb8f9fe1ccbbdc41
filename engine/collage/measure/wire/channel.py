"""A worker's end of the connection: frames on its standard input and output, which nothing else may use."""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import os
import resource
import select
import signal
import sys
import threading
from typing import Self

from collage.errors import WireError
from collage.measure.wire.codec import Codec
from collage.measure.wire.frames import Frame, FrameParser

_PR_SET_PDEATHSIG = 1
_ORPHANED = 3


class Channel:
    """Blocking exchange of frames with the driver.

    Args:
        reading: File descriptor to read the driver's frames from.
        writing: File descriptor to write frames to.
        codec: Reads and writes their messages.
    """

    def __init__(self, reading: int, writing: int, codec: Codec | None = None) -> None:
        self.codec = codec or Codec()
        self._reading = reading
        self._writing = writing
        self._parser = FrameParser()
        self._owner = os.getpid()
        self._sending = threading.Lock()

    @classmethod
    def take_standard_streams(cls, codec: Codec | None = None) -> Self:
        """Take over standard input and output.

        Afterwards, a library that prints writes to standard error, and one that reads standard input gets end of file.

        Args:
            codec: See the class.
        """
        sys.stdout.flush()
        reading, writing = os.dup(0), os.dup(1)
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.close(nothing)
        os.dup2(2, 1)
        return cls(reading, writing, codec)

    def send(self, frame: Frame) -> None:
        """Write a frame."""
        if os.getpid() != self._owner:
            os._exit(_ORPHANED)  # a process a library forked came back here; the driver waits for its parent
        data = memoryview(frame.encode())
        with self._sending:
            while data:
                data = data[os.write(self._writing, data) :]

    def receive(self) -> Frame | None:
        """Read the next frame; return None after the driver has exited.

        Raises:
            WireError: If the data received is not a frame.
        """
        while True:
            for frame in self._parser.frames():
                return frame
            data = os.read(self._reading, 1 << 20)
            if not data:
                if self._parser.mid_frame:
                    raise WireError("the driver stopped within a frame")
                return None
            self._parser.feed(data)

    def die_with_driver(self) -> None:
        """End this process, even in the middle of a request, when the driver's end of standard input closes."""
        threading.Thread(target=self._watch, name="driver-watch", daemon=True).start()

    def _watch(self) -> None:
        poll = select.poll()
        poll.register(self._reading, 0)  # hang-up is always reported
        while True:
            if any(event & (select.POLLHUP | select.POLLERR) for _, event in poll.poll()):
                os._exit(_ORPHANED)


def prepare_process(*, kernel_kills: bool) -> None:
    """Set up a process that works for a driver: enable fault dumps, ignore interrupts, and allow it many files.

    Each weight of a model is a file of its own, which stays mapped and so open.

    Args:
        kernel_kills: Ask Linux to kill this process with the thread that started it, even while a library holds the
            interpreter's lock. Only correct if that thread lives as long as the driver.
    """
    faulthandler.enable()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the driver decides what an interrupt means
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):  # macOS allows fewer than it says
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    if kernel_kills and sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
