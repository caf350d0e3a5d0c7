"""Studies of arms that change nothing, by the thousand: `python -m isoflop.placebo`.

Noise as large as the control's own is drawn for every arm and seed, and the rule that judges real studies judges
these: how often it calls a difference where there is none, or equivalence where there is a difference that
matters, is held against what the rule promises. Where the control has four seeds or more, its own runs are also
split in two and one half is called an arm. Ends with 1 where a promise is broken.

The arm that is really trained is a study like any other: experiments/placebo.yaml.
"""

from __future__ import annotations

import argparse
import json
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from rich import box
from rich.console import Console
from rich.table import Table

from isoflop import paths
from isoflop.errors import IsoflopError
from isoflop.params import load_params
from isoflop.power.arguments import count_of, positive
from isoflop.power.known import known_runs, plan_of
from isoflop.power.outlook import Noise, measured_noise
from isoflop.reporting.text import bpb, percent, plural
from isoflop.schema import plain
from isoflop.stages import run
from isoflop.statistics.intervals import CONFIDENCE, Seeds
from isoflop.statistics.verdicts import Comparison, compare

ALPHA = 1 - CONFIDENCE
SIGMAS = 3.0  # by which chance alone may break a promise in a simulation: 1 in 700, one-sided
SPLITS = 1000  # of the control's own seeds, at most
WORDS = ("equivalent", "inconclusive", "better", "worse", "no verdict")


@dataclass(frozen=True, kw_only=True)
class Promise:
    """One promise of the rule, and how often the simulated studies broke it."""

    what: str
    promised: float
    found: float
    studies: int
    kept: bool


@dataclass(frozen=True, kw_only=True)
class Trial:
    """Studies with the same truth. `words` counts verdicts over all arms of all studies."""

    truth: str
    words: dict[str, int]
    promises: list[Promise]


@dataclass(frozen=True, kw_only=True)
class Placebo:
    noise: Noise
    margin: float
    seeds: int
    arms: int
    correlation: float
    studies: int
    trials: list[Trial]
    splits: dict[str, int]  # verdicts over splits of the control's own seeds; empty with fewer than four

    @property
    def kept(self) -> bool:
        return all(promise.kept for trial in self.trials for promise in trial.promises)


def simulate(
    noise: Noise, margin: float, *, seeds: int, arms: int, studies: int, correlation: float, random: int, own: Seeds
) -> Placebo:
    """Studies of `arms` beside the control; the same arguments give the same counts."""
    rng = np.random.default_rng(random)
    spread = (noise.sd, correlation)
    equal = [_study(rng, [0.0] * arms, seeds, spread, margin) for _ in range(studies)]
    # Differences of exactly the margin, up and down in turn, are where equivalence is most easily called.
    apart = [margin if i % 2 else -margin for i in range(arms)]
    different = [_study(rng, apart, seeds, spread, margin) for _ in range(studies)]
    calls = sum(any(_called(c) for c in study) for study in equal)
    false = sum(any(c.verdict.word == "equivalent" for c in study) for study in different)
    intervals = [
        (comparison.contrast.interval, truth)
        for trial, truths in ((equal, [0.0] * arms), (different, apart))
        for study in trial
        for comparison, truth in zip(study, truths, strict=True)
    ]
    missed = sum(i is not None and not i.low <= truth <= i.high for i, truth in intervals)
    return Placebo(
        noise=noise,
        margin=margin,
        seeds=seeds,
        arms=arms,
        correlation=correlation,
        studies=studies,
        trials=[
            Trial(
                truth="no arm differs from the control",
                words=_words(equal),
                promises=[_promise("an arm is called different", calls, studies)],
            ),
            Trial(
                truth=f"every arm differs by the margin of {margin:g}",
                words=_words(different),
                promises=[_promise("an arm is called equivalent", false, studies)],
            ),
            Trial(
                truth="both",
                words={},
                promises=[_promise("(per arm) the 95 % interval is wrong", missed, len(intervals), 2 * studies)],
            ),
        ],
        splits=dict(Counter(comparison.verdict.word for comparison in _split(own, margin, rng))),
    )


def _study(
    rng: np.random.Generator, differences: Sequence[float], seeds: int, spread: tuple[float, float], margin: float
) -> list[Comparison]:
    """One simulated study, judged. `spread` is the sd of a run over seeds and the correlation of paired runs."""
    sd, correlation = spread
    shared = rng.normal(0, sd * math.sqrt(correlation), seeds)
    runs = shared + rng.normal(0, sd * math.sqrt(1 - correlation), (len(differences) + 1, seeds))
    arms = {f"arm{i}": _by_seed(d + own) for i, (d, own) in enumerate(zip(differences, runs[1:], strict=True))}
    found = compare(_by_seed(runs[0]), arms, margin=margin)
    return list(found.values())


def _split(own: Seeds, margin: float, rng: np.random.Generator) -> Iterator[Comparison]:
    """The control against itself: one half of its seeds as control, the other as arm, paired as they come."""
    seeds, half = sorted(own), len(own) // 2
    if half < 2:
        return
    ways = [way for way in combinations(seeds, half) if len(seeds) > 2 * half or seeds[0] in way]
    if len(ways) > SPLITS:
        ways = [ways[i] for i in sorted(rng.choice(len(ways), SPLITS, replace=False))]
    for way in ways:
        other = [seed for seed in seeds if seed not in way][:half]
        ours, theirs = (_by_seed([own[seed] for seed in each]) for each in (way, other))
        yield compare(ours, {"half": theirs}, margin=margin)["half"]


def _promise(what: str, broken: int, n: int, independent: int | None = None) -> Promise:
    """Kept where the rate is not above 5 % by more than chance explains; `independent` studies decide what it can."""
    slack = SIGMAS * math.sqrt(ALPHA * (1 - ALPHA) / (independent or n))
    return Promise(what=what, promised=ALPHA, found=broken / n, studies=n, kept=broken / n <= ALPHA + slack)


def _called(comparison: Comparison) -> bool:
    """A difference was found at all, also one inside the margin."""
    return comparison.verdict.detected is not None


def _words(studies: Sequence[Sequence[Comparison]]) -> dict[str, int]:
    return dict(Counter(comparison.verdict.word for study in studies for comparison in study))


def _by_seed(values: Sequence[float] | np.ndarray[tuple[int], np.dtype[np.float64]]) -> dict[int, float]:
    return {seed: float(value) for seed, value in enumerate(values)}


# --- what is printed


def show(found: Placebo, console: Console) -> None:
    noise = f"noise {bpb(found.noise.sd)} bpb ({found.noise.source}), margin {found.margin:g}"
    shape = f"{plural(found.arms, 'arm')} beside the control, {found.seeds} seeds each"
    console.print(f"{plural(found.studies, 'study', 'studies')} per truth: {shape}; {noise}", highlight=False)
    promises = _table("truth", "a study counts where", "promised: at most", "found", "")
    words = _table("truth", *WORDS)
    for trial in found.trials:
        for each in trial.promises:
            kept = "kept" if each.kept else "BROKEN"
            promises.add_row(trial.truth, each.what, percent(each.promised), percent(each.found, 1), kept)
        if total := sum(trial.words.values()):
            words.add_row(trial.truth, *(percent(trial.words.get(word, 0) / total, 1) for word in WORDS))
    console.print(promises)
    console.print(words)
    if found.splits:
        told = ", ".join(f"{found.splits[word]} {word}" for word in WORDS if word in found.splits)
        console.print(f"The control's own seeds, split in two in {sum(found.splits.values())} ways: {told}.")
    else:
        console.print("The control's own seeds cannot be split in two: it takes four finished ones.")


def _table(*columns: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD)
    for column in columns:
        table.add_column(column, justify="left" if column in ("truth", "a study counts where") else "right")
    return table


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m isoflop.placebo", description=__doc__)
    parser.add_argument("--studies", type=count_of, default=1000, metavar="N", help="simulated, per truth")
    parser.add_argument("--seeds", type=count_of, metavar="N", help="per arm, instead of those of params.yaml")
    parser.add_argument("--arms", type=count_of, metavar="N", help="beside the control, instead of those there are")
    parser.add_argument("--sd", type=positive, help="noise in bits per byte, instead of the control's seeds")
    parser.add_argument("--margin", type=positive, help="bits per byte, instead of study.margin")
    parser.add_argument("--correlation", type=float, default=0.0, help="between runs of one seed in two arms")
    parser.add_argument("--random", type=int, default=0, metavar="SEED", help="of the simulation (default: 0)")
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args()
    params = load_params(paths.PARAMS)
    seeds = options.seeds or len(params.seeds)
    if seeds < 2:
        raise IsoflopError(f"seeds = {seeds}: one seed gives no verdict, so there is no rule to try; say --seeds 3")
    if not 0 <= options.correlation < 1:
        raise IsoflopError(f"correlation = {options.correlation:g} between runs of one seed must lie in [0, 1)")
    known, control = known_runs(params), plan_of(params, params.report.control)
    found = simulate(
        measured_noise(control, known, options.sd),
        options.margin or params.study.margin,
        seeds=seeds,
        arms=options.arms or max(1, len(params.arms) - 1),
        studies=options.studies,
        correlation=options.correlation,
        random=options.random,
        own=known.finished(control),
    )
    if options.json:
        print(json.dumps(plain(found) | {"kept": found.kept}, indent=1, allow_nan=False))
    else:
        console = Console()
        console.width = console.width if console.is_terminal else 120
        show(found, console)
    if not found.kept:
        raise SystemExit(1)


if __name__ == "__main__":
    run(main)
