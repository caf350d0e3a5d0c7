"""One process that trains in one mode, and measures a chunk of steps (or something else) for each line it reads.

    python benchmarks/worker.py '{"side": "ours", "shape": {...}, "precision": "bf16", ...}'

Answers are lines of JSON on standard output; whatever else a library prints goes to standard error.
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any, Protocol

WARMUP_STEPS = 3  # the first compiles, the second and third meet what the first has changed (gradients, states)
SYNC_STEPS = 20  # a GPU runs behind; without waiting now and then the clock would see it queue up work only


class Subject(Protocol):
    """What is measured: a training step, at least."""

    tokens_per_step: int
    batch_s: float  # seconds spent so far in getting batches

    def step(self) -> Any:
        """One optimiser step; the loss, a tensor."""

    def wait(self) -> None:
        """Until the device has done what it was given."""

    def describe(self) -> dict[str, Any]: ...

    def answer(self, do: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """Anything else that can be asked."""


def train(subject: Subject, seconds: float) -> dict[str, Any]:
    """Steps for about `seconds`: how many tokens, in how long exactly, and how much of it went into batches."""
    before, steps, elapsed = subject.batch_s, 0, 0.0
    subject.wait()
    start = time.perf_counter()
    while elapsed < seconds:
        loss = subject.step()
        steps += 1
        if steps % SYNC_STEPS == 0:
            subject.wait()
        elapsed = time.perf_counter() - start
    subject.wait()
    elapsed = time.perf_counter() - start
    return {
        "tokens": steps * subject.tokens_per_step,
        "seconds": elapsed,
        "batch_s": subject.batch_s - before,
        "loss": float(loss),
    }


def make(spec: dict[str, Any]) -> Subject:
    if spec["side"] == "ours":
        from ours import Ours

        return Ours(spec)
    from peers import Peer

    return Peer(spec)


def main() -> None:
    channel = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    spec = json.loads(sys.argv[1])
    subject = make(spec)
    start = time.perf_counter()
    for _ in range(WARMUP_STEPS):
        subject.step()
    subject.wait()
    answer: dict[str, Any] = subject.describe() | {"first_steps_s": time.perf_counter() - start}
    while True:
        print(json.dumps(answer), file=channel, flush=True)
        line = sys.stdin.readline()
        if not line:
            return
        request = json.loads(line)
        do, cpu = request.pop("do"), time.process_time()
        answer = train(subject, request["seconds"]) if do == "train" else subject.answer(do, request)
        answer["cpu_s"] = time.process_time() - cpu


if __name__ == "__main__":
    main()
