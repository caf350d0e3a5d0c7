"""Seeds per arm for a margin, and what they cost: from the control's own noise and the speed of its last runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from isoflop.config import EvalConfig
from isoflop.errors import IsoflopError
from isoflop.params import Params
from isoflop.plan import Plan
from isoflop.power.known import Known, Speed, plan_of
from isoflop.statistics.intervals import CONFIDENCE, Interval, noise_floor
from isoflop.statistics.sample_size import MAX_SEEDS, POWER, Chances, chances, seeds_needed, smallest_detectable

MENU = (2, 3, 4, 5, 6, 8, 10, 15, 20)


@dataclass(frozen=True, kw_only=True)
class Noise:
    """Standard deviation of the control over seeds, in bits per byte. `interval` is None where it was given."""

    sd: float
    interval: Interval | None
    source: str


@dataclass(frozen=True, kw_only=True)
class Bill:
    """What is still to be spent. `hours` is None where no speed is known."""

    runs: int
    flops: float
    hours: float | None


@dataclass(frozen=True, kw_only=True)
class Goal:
    """One thing to show, and what it takes. `seeds` is None where it is more than 100."""

    name: str
    sd: float
    seeds: int | None
    bill: Bill | None


@dataclass(frozen=True, kw_only=True)
class Choice:
    """What n seeds per arm can do. `smallest` is the difference that they find with the power asked for."""

    seeds: int
    smallest: float | None
    chances: Chances
    bill: Bill


@dataclass(frozen=True, kw_only=True)
class Outlook:
    """The whole answer."""

    study: str
    control: str
    arms: int  # beside the control
    margin: float
    power: float
    correlation: float
    seeds: list[int]  # of params.yaml
    noise: Noise
    speed: Speed | None
    goals: list[Goal]
    menu: list[Choice]


def outlook(
    params: Params,
    known: Known,
    *,
    sd: float | None = None,
    margin: float | None = None,
    arms: int | None = None,
    power: float = POWER,
    correlation: float = 0.0,
    tokens_per_s: float | None = None,
) -> Outlook:
    """Seeds and their cost for the arms of `params`. What is None comes from `params` and `known`.

    Raises IsoflopError where the noise floor is not known.
    """
    plans = {name: plan_of(params, name) for name in params.arms}
    control = plans[params.report.control]
    others = list({p.config_hash: p for p in plans.values() if p.config_hash != control.config_hash}.values())
    arms = arms or max(1, len(others))
    margin, noise = margin or params.study.margin, measured_noise(control, known, sd)
    speed = known.speed(control.predicted.flops_per_token, tokens_per_s)
    bill = _Biller(control, others, arms, known, speed, params.eval)
    goals = []
    for spread in (noise.sd, *([noise.interval.high] if noise.interval else [])):
        needed = seeds_needed(spread, margin, arms, correlation=correlation, power=power)
        for name, n in (("difference", needed.difference), ("equivalence", needed.equivalence)):
            goals.append(Goal(name=name, sd=spread, seeds=n, bill=None if n is None else bill(n)))
    wanted = {*MENU, len(params.seeds), *(goal.seeds for goal in goals if goal.seeds)} - {1}
    return Outlook(
        study=params.study.name,
        control=params.report.control,
        arms=arms,
        margin=margin,
        power=power,
        correlation=correlation,
        seeds=params.seeds,
        noise=noise,
        speed=speed,
        goals=goals,
        menu=[
            Choice(
                seeds=n,
                smallest=smallest_detectable(noise.sd, n, arms, correlation=correlation, power=power),
                chances=chances(noise.sd, margin, n, arms, correlation=correlation),
                bill=bill(n),
            )
            for n in sorted(wanted)
            if n <= MAX_SEEDS
        ],
    )


class _Biller:
    """What n seeds per arm still cost: FLOPs as planned, hours at the speed of the last runs, evaluations included."""

    def __init__(
        self,
        control: Plan,
        others: Sequence[Plan],
        arms: int,
        known: Known,
        speed: Speed | None,
        evaluation: EvalConfig,
    ) -> None:
        self.control, self.known, self.speed, self.evaluation = control, known, speed, evaluation
        # Arms that are asked for and not in params.yaml yet cost what the control costs.
        self.plans: list[Plan | None] = [*others[:arms], *[None] * (arms - len(others[:arms]))]

    def __call__(self, n: int) -> Bill:
        runs, flops, seconds = 0, 0.0, 0.0
        for plan in (self.control, *self.plans):
            own = plan or self.control
            left = n - (min(n, len(self.known.finished(own))) if plan else 0)
            runs += left
            flops += left * own.predicted.flops
            if self.speed is not None:
                whole = own.predicted.flops + evaluation_flops(own, self.evaluation)
                seconds += left * whole / self.speed.flops_per_s
        return Bill(runs=runs, flops=flops, hours=None if self.speed is None else seconds / 3600)


def evaluation_flops(plan: Plan, evaluation: EvalConfig) -> float:
    """FLOPs of a run's evaluations, on val while it trains and on test: forward passes, a third of training's each."""
    val = plan.train.evals * plan.corpus.val_tokens
    # Windows overlap: each token goes through the model 1 / stride times, at the block and at every further context.
    test = plan.corpus.test_tokens / evaluation.stride * (1 + len(evaluation.contexts))
    return plan.predicted.flops_per_token / 3 * (val + test)


def measured_noise(control: Plan, known: Known, given: float | None) -> Noise:
    """Spread of the control's finished seeds, or what was given. Raises IsoflopError where neither is there."""
    if given is not None:
        return Noise(sd=given, interval=None, source="given with --sd")
    seeds = known.finished(control)
    floor = noise_floor(seeds, CONFIDENCE)
    if not floor.sd:
        found = {0: "no finished seed", 1: "one finished seed"}.get(floor.n, f"{floor.n} seeds without any spread")
        raise IsoflopError(
            f"noise floor: {found} of the control {control.arm} under this protocol in the MLflow store, "
            "experiments/eval and reports; two that differ are the least: `dvc repro` with more seeds, or say --sd"
        )
    return Noise(sd=floor.sd, interval=floor.interval, source=f"{floor.n} seeds of {control.arm}")
