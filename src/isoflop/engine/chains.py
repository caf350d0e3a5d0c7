"""Which chains there are, and how one is run."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Executor, as_completed
from dataclasses import dataclass
from queue import SimpleQueue

from isoflop.engine.board import STARTED, Board
from isoflop.engine.processes import Processes
from isoflop.engine.shares import Share, environment
from isoflop.errors import IsoflopError

CHAIN = ("train", "evaluate", "sample")  # of one arm and seed, in the order of dvc.yaml
BEFORE = ("download", "tokenize", "plan")
DVC = (sys.executable, "-m", "dvc")
LAST_LINES = 20


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How a chain ended: at which stage, with which exit status, and its last words."""

    chain: str
    stage: str
    status: int
    last_lines: tuple[str, ...] = ()


def out_of_date() -> list[str]:
    """Names of the stages that DVC finds changed. Raises IsoflopError with DVC's own words."""
    done = subprocess.run(
        [*DVC, "status", "--json"], env=environment(), capture_output=True, encoding="utf-8", check=False
    )
    if done.returncode:
        raise IsoflopError(done.stderr.strip().removeprefix("ERROR: ") or f"dvc status ended with {done.returncode}")
    return list(json.loads(done.stdout))


def chains_of(stale: Iterable[str]) -> list[str]:
    """`base-0`, `mqa-1`, ...: arms and seeds of which a stage is out of date, in the pipeline's order."""
    names = (name.split("@") for name in stale if "@" in name)
    return list(dict.fromkeys(key for stage, key in names if stage in CHAIN))


class LocalRunner:
    """Runs a chain on this machine, in the next share of it that is free."""

    def __init__(self, shares: Iterable[Share], processes: Processes, board: Board) -> None:
        self.processes, self.board = processes, board
        self.free: SimpleQueue[Share] = SimpleQueue()
        for share in shares:
            self.free.put(share)

    def __call__(self, chain: str) -> Outcome:
        stages = [f"{stage}@{chain}" for stage in CHAIN]
        at, last = stages[0], deque[str](maxlen=LAST_LINES)

        def show(text: str) -> None:
            nonlocal at
            started = STARTED.match(text)
            at = started[1] if started else at
            if text.strip():
                last.append(text)
            if not self.processes.stopping:
                self.board.line(chain, text)

        share = self.free.get()
        try:
            # The lock is held for moments only: while a stage runs, DVC lets go of it.
            command = [*DVC, "--wait-for-lock", "repro", "--single-item", *stages]
            status = self.processes.run(command, share.environment(), show)
        finally:
            self.free.put(share)
        return Outcome(chain=chain, stage=at, status=status, last_lines=tuple(last))


def run_chains(
    chains: Sequence[str], job: Callable[[str], Outcome], pool: Executor, ended: Callable[[str, int], None]
) -> list[Outcome]:
    """Run every chain, whatever becomes of the others. On an interrupt, chains that have not begun are dropped."""
    futures = [pool.submit(job, chain) for chain in chains]
    outcomes = []
    try:
        for future in as_completed(futures):
            outcomes.append(future.result())
            ended(outcomes[-1].chain, outcomes[-1].status)
    except BaseException:
        pool.shutdown(wait=False, cancel_futures=True)
        raise
    return outcomes
