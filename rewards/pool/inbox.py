"""The door between the threads that submit samples and the pool's own thread."""

import socket
import threading

from rewards.pool.work import Pending

MAX_QUEUED = 50_000  # calls; from there on `put` waits


class Inbox:
    """Submissions on their way in. `put` and `close` are called from any thread, the rest by the pool's.

    Attributes:
        queued: calls that were submitted and are not yet answered.
        closing: nothing more comes in.
        broken: why the pool's thread has ended, if it was not told to.
        bell: a socket that has something to read when there is news.
    """

    def __init__(self) -> None:
        self.queued = 0
        self.closing = False
        self.broken: BaseException | None = None
        self.bell, self._string = socket.socketpair()
        self.bell.setblocking(False)
        self._string.setblocking(False)
        self._room = threading.Condition()
        self._arrived: list[Pending] = []

    def put(self, pending: Pending) -> None:
        """Submit it; waits while too much is queued.

        Raises:
            UserError: workers can't start.
            RuntimeError: the pool is closed.
        """
        with self._room:
            while self.queued > MAX_QUEUED and not self.closing:
                self._room.wait()
            if self.broken is not None:
                raise type(self.broken)(*self.broken.args) from self.broken
            if self.closing:
                raise RuntimeError("the reward pool is closed")
            self.queued += pending.left
            self._arrived.append(pending)
            self._ring()

    def close(self) -> None:
        """Let nothing in any more."""
        with self._room:
            self.closing = True
            self._room.notify_all()
            self._ring()

    def _ring(self) -> None:
        try:
            self._string.send(b"x")
        except OSError:  # it has been rung often enough, or nobody listens any more
            pass

    def silence(self) -> None:
        """The bell has been heard."""
        self.bell.recv(4096)

    def take(self) -> list[Pending]:
        """What has arrived."""
        if not self._arrived:
            return []
        with self._room:
            arrived, self._arrived = self._arrived, []
        return arrived

    def answered(self, calls: int) -> None:
        """So many are no longer queued."""
        if calls:
            with self._room:
                self.queued -= calls
                self._room.notify_all()

    def end(self) -> None:
        """Nobody listens any more."""
        self.close()
        with self._room:
            self.bell.close()
            self._string.close()
