"""Worker processes that measure when asked, and what is made of their figures."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import psutil

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent

QUIET = 0.05  # share of the machine that other processes may take while something is measured
ATTEMPTS = 3  # at a quiet measurement


class WorkerFailed(Exception):
    """A worker ended by itself; the message is the end of what it wrote."""


class Worker:
    """One `worker.py` process: built and warmed up once, then measuring whenever it is asked.

    Between two questions it waits for a line on its standard input and uses no CPU.
    """

    def __init__(self, spec: Mapping[str, Any], environment: Mapping[str, str]) -> None:
        self.spec = dict(spec)
        self.log = tempfile.TemporaryFile()  # noqa: SIM115 (lives as long as the process)
        self.process = subprocess.Popen(
            [sys.executable, str(HERE / "worker.py"), json.dumps(self.spec)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.log,
            text=True,
            env=dict(environment),
            cwd=ROOT,
        )
        self.ready: dict[str, Any] = {}

    def wait_until_ready(self) -> Worker:
        """Raises WorkerFailed where it cannot be built, such as a mode that a library does not have."""
        self.ready = self.receive()
        return self

    def ask(self, do: str, **arguments: Any) -> dict[str, Any]:
        self.send(do, **arguments)
        return self.receive()

    def send(self, do: str, **arguments: Any) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"do": do} | arguments) + "\n")
        self.process.stdin.flush()

    def receive(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            self.process.wait()
            self.log.seek(0)
            raise WorkerFailed(self.log.read().decode(errors="replace")[-1500:])
        answer: dict[str, Any] = json.loads(line)
        return answer

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout, self.log):
            if stream is not None:
                stream.close()


@contextmanager
def workers(specs: Sequence[Mapping[str, Any]], environments: Sequence[Mapping[str, str]]) -> Iterator[list[Worker]]:
    """Start and build all, two at a time. One that fails has `error` in `ready` and must not be asked."""
    with ExitStack() as stack, ThreadPoolExecutor(2) as pool:

        def build(spec: Mapping[str, Any], environment: Mapping[str, str]) -> Worker:
            worker = Worker(spec, environment)
            stack.callback(worker.close)
            try:
                return worker.wait_until_ready()
            except WorkerFailed as reason:
                worker.ready = {"error": str(reason)}
                return worker

        yield list(pool.map(build, specs, environments))


Answer = TypeVar("Answer", bound=Mapping[str, Any])


def quietest(measure: Callable[[], Answer]) -> Answer:
    """Measure again while other processes disturb; of several attempts the quietest counts."""
    found: list[Answer] = []
    while len(found) < ATTEMPTS and not (found and found[-1]["others"] <= QUIET):
        found.append(measure())
    return min(found, key=lambda answer: float(answer["others"]))


def quietly(worker: Worker, do: str, **arguments: Any) -> dict[str, Any]:
    """Ask a worker something, as `quietest` says; `others` is in the answer."""

    def once() -> dict[str, Any]:
        with _Others() as others:
            answer = worker.ask(do, **arguments)
            others.own_s = answer["cpu_s"]
        return answer | {"others": others.share}

    return quietest(once)


def together(group: Sequence[Worker], seconds: float) -> dict[str, float]:
    """One chunk of training steps in all workers of a group at the same time.

    Summed tokens/s, the share of batches, and the share of the machine that other processes took (`others`): with a
    core missing, threads that wait for each other become many times slower.
    """
    with _Others() as others:
        for worker in group:
            worker.send("train", seconds=seconds)
        answers = [worker.receive() for worker in group]
        others.own_s = sum(a["cpu_s"] for a in answers)
    return {
        "others": others.share,
        "tokens_per_s": sum(a["tokens"] / a["seconds"] for a in answers),
        "batch_share": float(np.mean([a["batch_s"] / a["seconds"] for a in answers])),
        "loss": float(np.mean([a["loss"] for a in answers])),
    }


class _Others:
    """Measures the share of the machine that processes other than the measured ones, which took `own_s`, had."""

    own_s = 0.0
    share = 0.0

    def __enter__(self) -> _Others:
        self.before, self.start = _busy_s(), time.perf_counter()
        return self

    def __exit__(self, *_: object) -> None:
        machine_s = (time.perf_counter() - self.start) * (psutil.cpu_count() or 1)
        self.share = max(0.0, (_busy_s() - self.before - self.own_s) / machine_s)


def _busy_s() -> float:
    """CPU seconds that all processes (and, on a virtual machine, its neighbours) have taken so far."""
    times = psutil.cpu_times()
    idle = times.idle + getattr(times, "iowait", 0.0)
    return float(sum(times) - idle - getattr(times, "guest", 0.0) - getattr(times, "guest_nice", 0.0))


def spread(values: Sequence[float]) -> dict[str, Any]:
    """Median and quartiles of repeats, and the repeats."""
    q1, median, q3 = np.percentile(np.asarray(values, np.float64), [25, 50, 75])
    return {"median": float(median), "q1": float(q1), "q3": float(q3), "repeats": [float(v) for v in values]}


def peer_environment(threads: int) -> dict[str, str]:
    """What a user's shell gives, with a number of threads and the shared cache of compiled kernels."""
    return {**os.environ, "OMP_NUM_THREADS": str(threads)} | compile_cache()


def our_environment(jobs: int) -> dict[str, str]:
    """What the engine gives a run when `jobs` of them share the machine."""
    from isoflop.engine.shares import this_machine

    source = {"PYTHONPATH": str(ROOT / "src")}
    return this_machine().divide(jobs)[0].environment() | source | compile_cache()


def compile_cache() -> dict[str, str]:
    """Compiled kernels are kept between runs of the benchmark: compiling is timed once, and then only waited for."""
    return {
        "TORCHINDUCTOR_CACHE_DIR": os.environ.get(
            "TORCHINDUCTOR_CACHE_DIR", str(ROOT / ".isoflop" / "bench" / "inductor")
        )
    }
