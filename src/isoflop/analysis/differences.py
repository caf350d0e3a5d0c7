"""An arm against the control: verdict, compute multiplier, noise of the test stories, position, predictions."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

from isoflop.analysis.contexts import by_context
from isoflop.analysis.values import by_seed, finished, number, spread, val_curves
from isoflop.collected import CollectedArm, CollectedRun
from isoflop.errors import IsoflopError
from isoflop.schema import plain
from isoflop.statistics.curves import compute_multiplier
from isoflop.statistics.intervals import CONFIDENCE, noise_floor, paired
from isoflop.statistics.predictions import score_prediction
from isoflop.statistics.sample_size import seeds_needed, smallest_detectable
from isoflop.statistics.story_noise import EvaluationNoise, evaluation_noise, noise_share, paired_evaluation_noise
from isoflop.statistics.verdicts import Comparison, compare

OPEN = ("exploratory", "earlier")  # roles that never move a planned arm's verdict


def judge(arms: Mapping[str, CollectedArm], margin: float) -> dict[str, Comparison]:
    """Every arm but the first, which is the control, against it. Raises IsoflopError on a margin not above zero.

    An arm whose every seed repeats another's to the last bit is no independent noise: in the common fit it would
    make the other arms' intervals narrower than they are. A double of the control is judged alone; a double of an
    arm shares that arm's comparison.
    """
    control, *others = arms
    values = {label: by_seed(arm) for label, arm in arms.items()}
    doubles = _doubles(values)
    distinct = [label for label in others if label not in doubles]
    found = compare(
        values[control],
        {label: values[label] for label in distinct},
        margin=margin,
        exploratory=[label for label in distinct if arms[label].role in OPEN],
    )
    for label, original in doubles.items():
        if original == control:
            found |= compare(values[control], {label: values[label]}, margin=margin)
        else:
            found[label] = dataclasses.replace(found[original], arm=label)
    return {
        label: dataclasses.replace(found[label], exploratory=arms[label].role in OPEN)  # of a double: its own role
        for label in others
    }


def _doubles(values: Mapping[str, Mapping[int, float]]) -> dict[str, str]:
    """label -> the first label that has the same value for every seed they share, two at least."""
    doubles: dict[str, str] = {}
    originals: list[str] = []
    for label, own in values.items():
        for other in originals:
            shared = own.keys() & values[other].keys()
            if len(shared) >= 2 and all(own[seed] == values[other][seed] for seed in shared):
                doubles[label] = other
                break
        else:
            originals.append(label)
    return doubles


def tell(arms: Mapping[str, CollectedArm], results: Mapping[str, Comparison]) -> dict[str, dict[str, Any]]:
    """For each arm what is told of it against the control, as plain data; None for the control itself."""
    control, *others = arms
    told: dict[str, dict[str, Any]] = {
        control: {
            "comparison": None,
            "multiplier": None,
            "story_noise": None,
            "positions": _positions(arms[control], None),
            "contexts": by_context(arms[control]),
        }
    }
    for label in others:
        told[label] = {
            "comparison": _comparison(results[label], arms[control], arms[label]),
            "multiplier": _multiplier(arms[control], arms[label]),
            "story_noise": _story_noise(arms[control], arms[label], results[label].contrast.se),
            "positions": _positions(arms[label], arms[control]),
            "contexts": by_context(arms[label]),
        }
    return told


def control_noise(arms: Sequence[CollectedArm], margin: float) -> dict[str, Any]:
    """The noise floor, and what it lets a study of this size see. `arms[0]` is the control."""
    control, planned = arms[0], max(1, sum(arm.role == "planned" for arm in arms))
    values = spread(control)
    noise: dict[str, Any] = {
        "n": values.n,
        "mean": values.mean,
        "sd": values.sd,
        "interval": plain(values.interval),
        "arms": planned,
        "smallest_detectable": None,
        "seeds_needed": None,
        "seeds_needed_at_most": None,  # at the upper end of the noise floor's interval
        "stories": plain(_evaluation_noise(finished(control))),
    }
    if values.sd:
        noise["smallest_detectable"] = smallest_detectable(values.sd, values.n, planned)
        noise["seeds_needed"] = plain(seeds_needed(values.sd, margin, planned))
        assert values.interval is not None
        noise["seeds_needed_at_most"] = plain(seeds_needed(values.interval.high, margin, planned))
    return noise


def score_predictions(
    predictions: Sequence[Mapping[str, object]],
    arms: Mapping[str, CollectedArm],
    results: Mapping[str, Comparison],
) -> list[dict[str, Any]]:
    """Each prediction of params.yaml with its outcome; `label` is None where no planned arm has that name."""
    scored = []
    for prediction in predictions:
        entry: dict[str, Any] = {
            "arm": str(prediction.get("arm")),
            "direction": str(prediction.get("direction")),
            "size": _size(prediction),
            "confidence": prediction.get("confidence"),
            "label": _planned(str(prediction.get("arm")), arms),
            "score": None,
        }
        if entry["label"] is not None:
            entry["score"] = plain(score_prediction(entry["direction"], entry["size"], results[entry["label"]]))
        scored.append(entry)
    return scored


def _size(prediction: Mapping[str, object]) -> float | None:
    size = prediction.get("size")
    assert size is None or isinstance(size, int | float), "params.yaml was checked"
    return None if size is None else float(size)


def _planned(name: str, arms: Mapping[str, CollectedArm]) -> str | None:
    """Label of the planned arm of that name, or of the one that stands for it."""
    planned = {label: arm for label, arm in arms.items() if arm.role == "planned"}
    named = [label for label, arm in planned.items() if arm.name == name]
    same = [label for label, arm in planned.items() if name in (*arm.same_as, *arm.stands_for)]
    return next(iter(named + same), None)


def _comparison(result: Comparison, control: CollectedArm, arm: CollectedArm) -> dict[str, Any]:
    control_values, arm_values = by_seed(control), by_seed(arm)
    told: dict[str, Any] = plain(result)
    told["by_seed"] = [
        {"seed": seed, "difference": arm_values[seed] - control_values[seed]} for seed in result.pairs.seeds
    ]
    told["identical"] = bool(told["by_seed"]) and all(pair["difference"] == 0 for pair in told["by_seed"])
    return told


def _multiplier(control: CollectedArm, arm: CollectedArm) -> dict[str, Any] | None:
    """Both ways round: an arm that ends better lies beyond the control's curve, and the other way round."""
    ours, theirs = val_curves(control), val_curves(arm)
    if not ours.keys() & theirs.keys():
        return None
    told = {}
    for name, (reference, goal) in {"control_needs": (ours, theirs), "arm_needs": (theirs, ours)}.items():
        found = plain(compute_multiplier(reference, goal))
        found["by_seed"] = [{"seed": seed, "multiplier": value} for seed, value in found["by_seed"].items()]
        told[name] = found
    return told


def _story_noise(control: CollectedArm, arm: CollectedArm, seed_se: float | None) -> dict[str, Any] | None:
    """Noise of the difference from the choice of test stories, over the seeds that both finished."""
    seeds = by_seed(control).keys() & by_seed(arm).keys()
    ours, theirs = ([run for run in finished(each) if run.seed in seeds] for each in (control, arm))
    if not seeds or not all(run.evaluation["story_bits"] for run in (*ours, *theirs)):
        return None
    try:
        noise = paired_evaluation_noise(_bits(ours), _bits(theirs), ours[0].evaluation["story_bytes"])
    except (IsoflopError, ValueError):  # damaged evaluations: their sums are compared all the same
        return None
    told: dict[str, Any] = {"se": number(noise.se), "seed_se": seed_se, "ratio": None, "helps": None}
    if noise.se is not None and seed_se:
        share = noise_share(noise.se, seed_se)
        told |= {"ratio": share.ratio, "helps": share.helps}
    return told


def _evaluation_noise(runs: Sequence[CollectedRun]) -> EvaluationNoise | None:
    if not runs or not all(run.evaluation["story_bits"] for run in runs):
        return None
    try:
        return evaluation_noise(_bits(runs), runs[0].evaluation["story_bytes"])
    except (IsoflopError, ValueError):
        return None


def _bits(runs: Sequence[CollectedRun]) -> list[list[float]]:
    return [run.evaluation["story_bits"] for run in runs]


def _positions(arm: CollectedArm, control: CollectedArm | None) -> list[dict[str, Any]]:
    """bpb by bytes since the story began: mean over seeds, and the paired difference to the control."""
    ours, theirs = _by_position(arm), {} if control is None else _by_position(control)
    told = []
    for (low, high), values in ours.items():
        entry: dict[str, Any] = {"from": low, "to": high, "bpb": noise_floor(values).mean, "difference": None}
        if (low, high) in theirs:
            result = paired(theirs[low, high], values, CONFIDENCE).paired
            entry |= {"difference": result.difference, "interval": plain(result.interval)}
        told.append(entry)
    return told


def _by_position(arm: CollectedArm) -> dict[tuple[int, int | None], dict[int, float]]:
    found: dict[tuple[int, int | None], dict[int, float]] = {}
    for run in finished(arm):
        for part in run.evaluation["bpb_by_position"]:
            if math.isfinite(part["bpb"]):
                found.setdefault((part["from"], part["to"]), {})[run.seed] = part["bpb"]
    return found
