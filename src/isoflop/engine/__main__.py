"""The engine's command line."""

from __future__ import annotations

import argparse
import signal
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from types import FrameType

from isoflop import engine
from isoflop.engine.board import Board
from isoflop.engine.chains import BEFORE, DVC, LocalRunner, Outcome, chains_of, out_of_date, run_chains
from isoflop.engine.processes import Processes
from isoflop.engine.shares import environment, this_machine
from isoflop.errors import IsoflopError
from isoflop.stages import run

GRACE_S = 60.0  # for a training to end its step, save a checkpoint and be recorded


def study(processes: Processes, jobs: int | None) -> int:
    """Bring everything up to date with `jobs` runs at a time (None: as many as pay off); the exit status."""
    stale = out_of_date()
    if any(name.split("@")[0] in BEFORE for name in stale):
        if status := processes.run([*DVC, "repro", "plan"], environment()):
            return status
        stale = out_of_date()
    chains, machine = chains_of(stale), this_machine()
    jobs = min(jobs or machine.jobs_that_pay(len(chains)), len(chains))
    if jobs > 1:
        started, shares, board = time.monotonic(), machine.divide(jobs), Board(len(chains))
        with board.progress:
            job = LocalRunner(shares, processes, board)
            outcomes = run_chains(chains, job, ThreadPoolExecutor(jobs), board.ended)
        minutes, seconds = divmod(round(time.monotonic() - started), 60)
        print(f"{len(chains)} runs, {jobs} at a time, threads {shares[0].threads} each: {minutes} min {seconds:02} s")
        if failed := [outcome for outcome in outcomes if outcome.status]:
            return report_failures(failed, len(chains))
    return processes.run([*DVC, "repro"], environment())


def report_failures(failed: Sequence[Outcome], total: int) -> int:
    """Say at the end, where it is seen, what failed and why; the exit status."""
    for outcome in failed:
        print(f"\n{outcome.stage} failed with exit status {outcome.status}; its last lines:", file=sys.stderr)
        print("\n".join(f"    {line}" for line in outcome.last_lines), file=sys.stderr)
    names = ", ".join(outcome.chain for outcome in failed)
    print(
        f"\nerror: {len(failed)} of {total} runs failed ({names}); the others are complete. "
        "Mend the cause and run again: only what failed is made anew.",
        file=sys.stderr,
    )
    return 1


def interrupt(number: int, frame: FrameType | None) -> None:
    """SIGTERM and SIGHUP end a study as Ctrl-C does."""
    raise KeyboardInterrupt(number)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m isoflop.engine", description=(engine.__doc__ or "").split("\n")[0])
    parser.add_argument("--jobs", type=int, help="runs at a time (default: as many as pay off; 1: plain dvc repro)")
    jobs = parser.parse_args().jobs
    if jobs is not None and jobs < 1:
        raise IsoflopError(f"--jobs {jobs}: must be at least 1")
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, interrupt)
    processes = Processes()
    try:
        status = study(processes, jobs)
    except KeyboardInterrupt as reason:
        print("stopping: runs save a checkpoint first; once more kills them", file=sys.stderr)
        status = 128 + int(reason.args[0])
    finally:
        processes.stop(GRACE_S)
    raise SystemExit(status)


if __name__ == "__main__":
    run(main)
