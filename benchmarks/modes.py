"""A mode of training, its processes, and the race of many modes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from measure import Worker, quietest, spread, together

IN_THE_RUNNING = 0.85  # of its side's best: what is slower in its heat is measured no further


@dataclass(frozen=True, kw_only=True)
class Effort:
    """How long to measure."""

    heat_rounds: int
    rounds: int  # of the modes that are still in the running, all of them in each round
    seconds: float  # of one chunk
    quick: bool = False  # only the modes that have won before
    eager: bool = False  # only what is not compiled


@dataclass
class Mode:
    """One mode: its processes (one, or as many as a study runs at a time) and what they did in each round."""

    name: str
    group: Sequence[Worker]
    rounds: list[dict[str, float]] = field(default_factory=list)

    @property
    def error(self) -> str | None:
        return next((worker.ready["error"] for worker in self.group if "error" in worker.ready), None)

    @property
    def rate(self) -> float:
        """Median tokens/s; 0 where the mode does not work."""
        rate: float = spread([r["tokens_per_s"] for r in self.rounds])["median"] if self.rounds else 0.0
        return rate

    def measure(self, seconds: float) -> None:
        """One chunk; again while other processes disturb it, and the quietest counts."""
        self.rounds.append(quietest(lambda: together(self.group, seconds)))

    def close(self) -> None:
        for worker in self.group:
            worker.close()

    def record(self) -> dict[str, Any]:
        """For the JSON. `others`: median share of the machine that other processes took meanwhile."""
        if self.error is not None:
            return {"error": self.error}
        ready = [worker.ready for worker in self.group]
        return {
            **ready[0],
            "first_steps_s": max(answer["first_steps_s"] for answer in ready),
            "processes": len(self.group),
            "tokens_per_s": spread([r["tokens_per_s"] for r in self.rounds]),
            "others": spread([r["others"] for r in self.rounds])["median"],
            "batch_share": spread([r["batch_share"] for r in self.rounds])["median"],
            "loss": self.rounds[-1]["loss"],
        }


def heat(modes: Sequence[Mode], effort: Effort) -> None:
    """First figures of modes that were just built."""
    working = [mode for mode in modes if mode.error is None]
    for mode in working:  # a chunk that does not count: caches and clocks settle
        together(mode.group, effort.seconds / 4)
    for _ in range(effort.heat_rounds):
        for mode in working:
            mode.measure(effort.seconds)


def in_the_running(modes: Sequence[Mode], always: Sequence[str] = ()) -> list[Mode]:
    """Those near the best of their side (the first word of a name); the processes of the others are ended."""
    best: dict[str, float] = {}
    for mode in modes:
        side = mode.name.split()[0]
        best[side] = max(best.get(side, 0.0), mode.rate)
    kept = [
        mode
        for mode in modes
        if mode.error is None and (mode.rate >= IN_THE_RUNNING * best[mode.name.split()[0]] or mode.name in always)
    ]
    for mode in modes:
        if mode not in kept:
            mode.close()
    return kept


def final(modes: Sequence[Mode], effort: Effort) -> None:
    """Interleaved rounds of all that is still in the running; the heats no longer count."""
    for mode in modes:
        mode.rounds.clear()
    for number in range(effort.rounds):
        for mode in modes if number % 2 == 0 else reversed(modes):
            mode.measure(effort.seconds)
