"""Commands that can be stopped as a whole: each runs, with all that it starts, in a process group of its own.

Ctrl-C in a terminal reaches the foreground group only, so what runs here hears of it from `stop` and from nowhere else.
"""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence

import psutil

POLL_S = 0.1
TERM_S = 5.0  # between SIGTERM and SIGKILL


class Processes:
    """The commands that run now. `run` may be called from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._groups: set[int] = set()
        self._stopping = False

    @property
    def stopping(self) -> bool:
        return self._stopping

    def run(
        self, command: Sequence[str], environment: Mapping[str, str], show: Callable[[str], None] | None = None
    ) -> int:
        """Run a command to its end and return its exit status; each line that it writes goes to `show` (None: through).

        After `stop` nothing starts any more: the status is then that of an interrupted command.
        """
        with self._lock:
            if self._stopping:
                return 128 + signal.SIGINT
            process = subprocess.Popen(
                command,
                env=dict(environment),
                stdin=subprocess.DEVNULL,
                stdout=None if show is None else subprocess.PIPE,
                stderr=None if show is None else subprocess.STDOUT,
                encoding="utf-8",
                errors="replace",
                start_new_session=True,
            )
            self._groups.add(process.pid)
        try:
            if show is not None:
                assert process.stdout is not None
                with process.stdout as lines:
                    for line in lines:
                        show(line.rstrip("\n"))
            return process.wait()
        finally:
            with self._lock:
                self._groups.discard(process.pid)

    def stop(self, grace_s: float) -> None:
        """Interrupt what still runs and wait until nothing of it is left.

        SIGINT first: a training saves a checkpoint within `grace_s` seconds. Then SIGTERM, then SIGKILL. A
        KeyboardInterrupt while waiting kills at once.
        """
        with self._lock:
            self._stopping = True
            groups = set(self._groups)
        try:
            for number, seconds in ((signal.SIGINT, grace_s), (signal.SIGTERM, TERM_S)):
                _send(groups, number)
                deadline = time.monotonic() + seconds
                while groups & _living() and time.monotonic() < deadline:
                    time.sleep(POLL_S)
        except KeyboardInterrupt:
            pass
        _send(groups & _living(), signal.SIGKILL)


def _send(groups: set[int], number: signal.Signals) -> None:
    for group in groups:
        try:
            os.killpg(group, number)
        except ProcessLookupError:
            continue


def _living() -> set[int]:
    """Groups with a process that has not ended; one that nobody has waited for yet has."""
    found = set()
    for process in psutil.process_iter(["status"]):
        if process.info["status"] != psutil.STATUS_ZOMBIE:
            try:
                found.add(os.getpgid(process.pid))
            except ProcessLookupError:
                continue
    return found
