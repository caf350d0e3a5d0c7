"""The recorder that writes a run into the store while it trains, and never makes training wait for it.

Everything that touches the store happens in one background thread. Only rows that belong to a saved
checkpoint are sent, so that a killed and resumed run logs no step twice. When the store fails, rows wait
for the next attempt, a line on the terminal says so, and what never arrives is filled in from files later.
"""

from __future__ import annotations

import math
import queue
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from isoflop.tracking.database import quiet
from isoflop.tracking.identity import DIVERGED_AT, PROCESS, STATUS, RunIdentity, process_tag
from isoflop.tracking.reading import StoredRun
from isoflop.tracking.store import ELAPSED, Store, TimedRow


@dataclass(frozen=True)
class _Resume:
    rows: list[tuple[int, dict[str, float]]]


@dataclass(frozen=True)
class _Close:
    status: str
    diverged_at: int | None
    time_ms: int


_Job = list[TimedRow] | _Resume | _Close


class MlflowRecorder:
    """Logs one run to MLflow live. Its calls return at once and never raise; only `close` waits, bounded."""

    def __init__(
        self, root: Path, identity: RunIdentity, config_text: str, *, started: float, wait_s: float = 20.0
    ) -> None:
        """Start the thread, which finds the run by its uid or creates it.

        `root` is the main checkout, `config_text` the content of the run's config.yaml, `started` the Unix
        time in seconds at which the run began (of a resumed run: its first beginning), `wait_s` the longest
        that `close` waits for the store.
        """
        quiet()  # here and not in the thread: it changes the environment
        self._wait_s = wait_s
        self._pending: list[TimedRow] = []
        self._diverged_at: int | None = None
        self._jobs: queue.SimpleQueue[_Job] = queue.SimpleQueue()
        self._writer = _Writer(root, identity, config_text, int(started * 1000), self._jobs)
        self._thread = threading.Thread(target=self._writer.run, name="mlflow", daemon=True)
        self._thread.start()

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Keep metrics of a step until `commit`. A number that is not finite marks the run as diverged."""
        self._pending.append(TimedRow(step, dict(metrics), _now_ms()))
        if self._diverged_at is None and not all(map(math.isfinite, metrics.values())):
            self._diverged_at = step

    def commit(self) -> None:
        """Everything logged so far belongs to a saved checkpoint: send it."""
        self._jobs.put(self._pending)
        self._pending = []

    def resume(self, rows: Sequence[tuple[int, dict[str, float]]]) -> None:
        """Go on from a checkpoint that knows `rows`: send those that the store lacks, forget later ones."""
        self._pending = []
        self._diverged_at = None
        self._jobs.put(_Resume(list(rows)))

    def close(self, status: str) -> None:
        """End the run as FINISHED, FAILED or KILLED, after at most `wait_s` seconds.

        A run that ends by itself keeps all its rows. Otherwise those after the last commit are left out,
        because a resumed run would measure them again. A run that logged a number that is not finite is
        FAILED, with the tag status=diverged.
        """
        if status == "FINISHED":
            self.commit()
        self._jobs.put(_Close(status, self._diverged_at, _now_ms()))
        self._thread.join(self._wait_s)
        if self._thread.is_alive():
            self._writer.complain(f"no answer within {self._wait_s:g} s")


class _Writer:
    """The thread's side: a backlog of rows, and attempts to bring it into the store."""

    def __init__(
        self,
        root: Path,
        identity: RunIdentity,
        config_text: str,
        start_ms: int,
        jobs: queue.SimpleQueue[_Job],
    ) -> None:
        self._root, self._identity, self._config_text = root, identity, config_text
        self._start_ms, self._jobs = start_ms, jobs
        self._backlog: list[TimedRow] = []
        self._known: set[tuple[str, int]] = set()
        self._opened: tuple[Store, StoredRun] | None = None
        self._complained = False

    def run(self) -> None:
        """Try to open the store, then once after each job; jobs that came in meanwhile are taken together."""
        end: _Close | None = None
        while True:
            try:
                store, run = self._opened = self._opened or self._open()
                store.log(run, self._backlog, self._known)
                self._backlog.clear()
                if end is not None:
                    _end(store, run, end)
            except Exception as error:  # whatever it is, it must not reach the training
                self.complain(f"{type(error).__name__}: {error}")
            if end is not None:
                return
            end = self._take()

    def _take(self) -> _Close | None:
        """Wait for a job and take all that are there; the closing one if it is among them."""
        job = self._jobs.get()
        while True:
            if isinstance(job, _Close):
                return job
            self._backlog += self._timed(job.rows) if isinstance(job, _Resume) else job
            try:
                job = self._jobs.get_nowait()
            except queue.Empty:
                return None

    def _timed(self, rows: list[tuple[int, dict[str, float]]]) -> list[TimedRow]:
        """Rows of a checkpoint with the time at which they were measured, as far as they tell it."""
        now = _now_ms()
        return [
            TimedRow(step, row, self._start_ms + int(row[ELAPSED] * 1000) if ELAPSED in row else now)
            for step, row in rows
        ]

    def _open(self) -> tuple[Store, StoredRun]:
        """Open the store and the run: the one with this uid, else a new one."""
        store = Store(self._root)
        experiment = store.experiment(self._identity.study)
        mine = {STATUS: "running", PROCESS: process_tag()}
        run = store.find(experiment, self._identity.run_uid)
        if run is None:
            run = store.create(experiment, self._identity, self._start_ms, mine)
        else:
            self._known |= store.points(run)
            store.reopen(run.run_id)
            store.set_tags(run, mine)
            run = replace(run, tags={**run.tags, **mine})
        store.describe(run, self._identity, self._config_text)
        return store, run

    def complain(self, reason: str) -> None:
        """Say once, on one line, that the store does not follow."""
        if self._complained:
            return
        self._complained = True
        first_line = reason.strip().splitlines()[0][:300]
        sys.stderr.write(
            f"\nwarning: MLflow does not take the run {self._identity.name} ({first_line}). Training goes "
            "on, the run's own files are complete, and `dvc repro` (collect) fills the store in from them.\n"
        )


def _end(store: Store, run: StoredRun, end: _Close) -> None:
    """Set the status at which the run really ended."""
    status = end.status
    tags = {STATUS: status.lower()}
    if end.diverged_at is not None:
        tags[DIVERGED_AT] = str(end.diverged_at)
        if status != "KILLED":
            status, tags[STATUS] = "FAILED", "diverged"
    store.set_tags(run, tags)
    store.terminate(run.run_id, status, end.time_ms)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
