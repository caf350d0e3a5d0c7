"""From numbers to words by one fixed rule, the same for every arm and study.

The rule, for each arm against the control, in bits per byte (lower is better), margin = the smallest
difference that matters, alpha = 1 - confidence = 0.05:

1. **no verdict**: fewer than two seeds shared with the control, or seeds without any spread.
2. **equivalent**: both one-sided tests (TOST) put the difference inside ±margin at alpha, Holm-adjusted
   over the arms. This comes first: a difference that is real but smaller than the margin does not matter.
   The text then still says that it was detected, and which way.
3. **better** / **worse**: the two-sided test of the pooled arm + seed fit rejects "no difference" at alpha,
   Holm-adjusted over the arms. "By more than the margin" is added only if the whole interval at level alpha
   / arms lies beyond it.
4. **inconclusive**: anything else, with the further seeds per arm that settle it with a chance of 80 %.

Differences and equivalences are two families, each adjusted by itself: the chance that any arm without a
difference is called better or worse is at most alpha, and so is the chance that any arm with a difference
that matters is called equivalent.

Seeds added because a verdict was open are a second look, and each look spends alpha anew (5 % becomes about
8 % after two): pass `confidence` = 1 - 0.05 / looks, or say so.

Exploratory arms (added after the study was fixed) never move a planned verdict: planned arms are fitted and
adjusted among themselves, exploratory ones together with all others.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Literal

from scipy.special import stdtr

from isoflop.statistics.contrasts import Contrast, Pooled, holm, pooled
from isoflop.statistics.intervals import (
    CONFIDENCE,
    Interval,
    Pairs,
    Seeds,
    noise_floor,
    paired,
    t_interval,
)
from isoflop.statistics.sample_size import MAX_SEEDS, POWER, check_margin, further_seeds

Word = Literal["better", "worse", "equivalent", "inconclusive", "no verdict"]


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """`detected` is the direction of a difference found at alpha, also inside the margin.

    `further_seeds` is for inconclusive ones only, where None means more than 100. `pooled_only`: found with
    the spread pooled over arms, but this arm's own pairs alone do not show it.
    """

    word: Word
    text: str
    detected: Literal["better", "worse"] | None = None
    beyond_margin: bool = False
    pooled_only: bool = False
    further_seeds: int | None = None


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """All that is claimed of one arm; `contrast` is the primary result, `pairs` stands beside it.

    `simultaneous` is the contrast's interval at level alpha / arms, `noise_floors` its difference in units
    of the control's sd over seeds.

    `p_difference` and `p_equivalence` are Holm-adjusted over a family of `family` arms; the raw p of the
    difference is in `contrast`.
    """

    arm: str
    exploratory: bool
    margin: float
    family: int
    noise_floors: float | None
    pairs: Pairs
    contrast: Contrast
    simultaneous: Interval | None
    p_difference: float | None
    p_equivalence: float | None
    verdict: Verdict


def tost(difference: float, se: float, df: float, margin: float) -> float:
    """p of two one-sided t tests: small when the difference lies inside ±margin.

    Raises IsoflopError on a margin that is not positive. Source: D. J. Schuirmann, "A comparison of the two
    one-sided tests procedure and the power approach for assessing equivalence", 1987.
    """
    check_margin(margin)
    room = margin - abs(difference)
    if se == 0:
        return 0.0 if room > 0 else 1.0
    return float(stdtr(df, -room / se))


def compare(
    control: Seeds,
    arms: Mapping[str, Seeds],
    *,
    margin: float,
    exploratory: Collection[str] = (),
    confidence: float = CONFIDENCE,
) -> dict[str, Comparison]:
    """Every arm against the control, in the order given: statistics and verdict.

    Raises IsoflopError on NaN (leave diverged seeds out) and on a margin that is not positive.
    """
    check_margin(margin)
    planned = {name: seeds for name, seeds in arms.items() if name not in exploratory}
    main = _family(control, planned, margin, confidence)
    # The fit of everything is used for the exploratory arms alone.
    everything = main if len(planned) == len(arms) else _family(control, arms, margin, confidence)
    comparisons = {}
    for name, seeds in arms.items():
        family = main if name in planned else everything
        comparisons[name] = family.comparison(name, paired(control, seeds, confidence), name not in planned)
    return comparisons


@dataclass(frozen=True, kw_only=True)
class _Family:
    fit: Pooled
    p_difference: Mapping[str, float | None]
    p_equivalence: Mapping[str, float | None]
    margin: float
    confidence: float
    floor: float | None

    @property
    def size(self) -> int:
        """Arms that could be tested; at least 1, so that a level per arm always exists."""
        return max(1, sum(p is not None for p in self.p_difference.values()))

    def comparison(self, arm: str, pairs: Pairs, exploratory: bool) -> Comparison:
        contrast = self.fit.contrasts[arm]
        level = 1 - (1 - self.confidence) / self.size
        simultaneous = None
        if contrast.interval is not None:
            assert contrast.difference is not None
            assert contrast.se is not None
            simultaneous = t_interval(contrast.difference, contrast.se, contrast.df, level)
        return Comparison(
            arm=arm,
            exploratory=exploratory,
            margin=self.margin,
            family=self.size,
            noise_floors=self.in_noise_floors(contrast),
            pairs=pairs,
            contrast=contrast,
            simultaneous=simultaneous,
            p_difference=self.p_difference[arm],
            p_equivalence=self.p_equivalence[arm],
            verdict=self.verdict(arm, simultaneous, pairs),
        )

    def in_noise_floors(self, contrast: Contrast) -> float | None:
        return None if contrast.difference is None or not self.floor else contrast.difference / self.floor

    def verdict(self, arm: str, simultaneous: Interval | None, pairs: Pairs) -> Verdict:
        contrast, margin, alpha = self.fit.contrasts[arm], self.margin, 1 - self.confidence
        p_difference, p_equivalence = self.p_difference[arm], self.p_equivalence[arm]
        if p_difference is None or p_equivalence is None or simultaneous is None:
            return _no_verdict(contrast)
        assert contrast.difference is not None
        assert contrast.se is not None
        detected: Literal["better", "worse"] | None = None
        if p_difference <= alpha:
            detected = "better" if contrast.difference < 0 else "worse"
        own = pairs.paired.p
        pooled_only = detected is not None and (own is None or own > alpha)
        if p_equivalence <= alpha:
            text = f"equivalent within {margin:g} bpb"
            if detected:
                text += f" (detectably {detected}, but by less than that)"
            return Verdict(word="equivalent", text=text, detected=detected, pooled_only=pooled_only)
        if detected:
            beyond = simultaneous.high < -margin or simultaneous.low > margin
            text = f"{detected} by {abs(contrast.difference):.4f} bpb"
            text += ", more than" if beyond else "; not shown to be more than"
            text += f" the margin of {margin:g}"
            return Verdict(word=detected, text=text, detected=detected, beyond_margin=beyond, pooled_only=pooled_only)
        return self._inconclusive(contrast.difference, contrast.se, contrast.p)

    def _inconclusive(self, difference: float, se: float, p: float | None) -> Verdict:
        alpha = 1 - self.confidence
        assert self.fit.residual_sd is not None
        more = further_seeds(
            difference=difference,
            se=se,
            residual_sd=self.fit.residual_sd,
            df=self.fit.df,
            margin=self.margin,
            arms=self.size,
            confidence=self.confidence,
        )
        if more is None:
            text = f"inconclusive: more than {MAX_SEEDS} further seeds per arm would be needed"
        else:
            plural = "" if more == 1 else "s"
            text = f"inconclusive: {more} further seed{plural} per arm would settle it with a chance of {POWER:.0%}"
        if p is not None and p <= alpha:
            text += f" (alone it would count as a difference, among {self.size} arms it does not)"
        return Verdict(word="inconclusive", text=text, further_seeds=more)


def _family(control: Seeds, arms: Mapping[str, Seeds], margin: float, confidence: float) -> _Family:
    fit = pooled(control, arms, confidence)
    equivalence: dict[str, float | None] = {}
    for name, c in fit.contrasts.items():
        equivalence[name] = None
        if c.p is not None and c.difference is not None and c.se is not None:
            equivalence[name] = tost(c.difference, c.se, c.df, margin)
    return _Family(
        fit=fit,
        p_difference=holm({name: c.p for name, c in fit.contrasts.items()}),
        p_equivalence=holm(equivalence),
        margin=margin,
        confidence=confidence,
        floor=noise_floor(control).sd,
    )


def _no_verdict(contrast: Contrast) -> Verdict:
    if contrast.n < 2:
        seeds = {0: "no seed", 1: "one seed"}[contrast.n]
        return Verdict(word="no verdict", text=f"no verdict: {seeds} shared with the control, two are the least")
    return Verdict(word="no verdict", text="no verdict: the seeds show no spread, so nothing to judge by")
