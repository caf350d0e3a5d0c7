"""Collected -> the study as plain data: every number and fact that the report tells, and no prose.

apart        settings that val did not choose and rungs of a ladder: shown, not compared
values       finished seeds, curves and other readings of collected runs
arms         one arm: seeds, bits per byte, cost, time, stability
differences  an arm against the control: verdict, compute multiplier, story noise, position, predictions
ladder       families of arms over several sizes and budgets
facts        what a reader should know before believing it
tables       the same runs as flat tables
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from isoflop.analysis.apart import set_apart
from isoflop.analysis.arms import describe_arm
from isoflop.analysis.differences import control_noise, judge, score_predictions, tell
from isoflop.analysis.facts import budget, corpus, facts
from isoflop.analysis.ladder import describe_ladder
from isoflop.analysis.tables import curves_table, runs_table
from isoflop.analysis.values import labels, number
from isoflop.collected import Collected
from isoflop.schema import plain

__all__ = ["analyse", "curves_table", "runs_table", "set_apart", "summary"]


def analyse(collected: Collected, *, predictions_committed: Mapping[str, str] | None = None) -> dict[str, Any]:
    """The study as plain JSON data (no NaN, no infinity): what `reports/<study>/study.json` holds.

    Differences are arm minus control in bits per byte: negative, the arm is better. What cannot be known (one seed
    has no spread, a store run has no history) is None. `predictions_committed` holds `rev` and `time` (ISO 8601) of
    the commit in which the predictions first stood, where that is known. `collected` has been through `set_apart`.
    Raises IsoflopError on a margin that is not positive.
    """
    study = collected.params.study
    by_label = dict(zip(labels(collected.arms), collected.arms, strict=True))
    results = judge(by_label, study.margin)
    told = tell(by_label, results)
    control = collected.arms[0]
    arms = [describe_arm(label, arm, control) | told[label] for label, arm in by_label.items()]
    aside = [describe_arm(arm.label, arm, control) for arm in collected.aside]
    return {
        "study": {"name": study.name, "question": study.question, "margin": study.margin},
        "control": arms[0]["label"],
        "control_note": collected.control_note,
        "corpus": corpus(collected),
        "budget": budget(collected, arms),
        "floor_bpb": number(_floor(collected)),
        "noise": control_noise(collected.arms, study.margin),
        "arms": arms,
        "aside": aside,
        "tuned": {"keys": study.tuned, "grids": plain(collected.grids)} if study.tuned else None,
        "ladder": describe_ladder(collected),
        "predictions": score_predictions(study.predictions, by_label, results),
        "predictions_committed": dict(predictions_committed) if predictions_committed else None,
        "facts": facts(collected, arms, aside),
        "excluded": [vars(entry) for entry in collected.excluded],
        "warnings": list(collected.warnings),
    }


def summary(study: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The small metrics file that DVC shows: one row per arm of params.yaml. bpb, sd and difference have 5 decimals.

    Earlier arms are not in it: `dvc exp show` has them in the rows of their own experiments.
    """
    rows = {}
    for arm in (arm for arm in study["arms"] if arm["role"] != "earlier"):
        comparison = arm["comparison"]
        difference = comparison["contrast"]["difference"] if comparison else None
        rows[arm["label"]] = {
            "bpb": _rounded(arm["bpb"]["mean"]),
            "sd": _rounded(arm["bpb"]["sd"]),
            "n": arm["bpb"]["n"],
            "difference": _rounded(difference),
        }
    return rows


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 5) + 0.0  # never -0.0


def _floor(collected: Collected) -> float | None:
    test = collected.splits["test"]
    return None if test["floor_bits"] is None else test["floor_bits"] / test["bytes"]
