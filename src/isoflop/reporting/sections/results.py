"""The table of arms, who is missing from it, the verdicts' rule, the predictions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any

from isoflop.reporting.document import Block, Bullets, Cell, Picture, Section, Text, cell, table
from isoflop.reporting.figures import Drawing
from isoflop.reporting.markup import code, esc
from isoflop.reporting.sections.answer import verdict_text
from isoflop.reporting.text import (
    NA,
    bpb,
    interval,
    listed,
    moment,
    p_value,
    percent,
    plural,
    seeds_text,
    setting,
    signed,
)


def sections(study: dict[str, Any], drawings: dict[str, Drawing]) -> Iterator[Section]:
    yield Section(id="results", title="Results", blocks=list(_results(study, drawings)))
    if any(arm["comparison"] for arm in study["arms"]):
        yield Section(id="methods", title="The same differences by other methods", blocks=list(_methods(study)))
    if study["predictions"]:
        yield Section(id="predictions", title="Predictions", blocks=list(_predictions(study)))


def _results(study: dict[str, Any], drawings: dict[str, Drawing]) -> Iterator[Block]:
    floor = study["floor_bpb"]
    columns = ["arm", "verdict", "difference", "95 % interval", "noise floors", "test bpb", "sd", "seeds"]
    columns += ["above floor", "changed", "role"] if floor is not None else ["changed", "role"]
    rows = [_row(arm, study) for arm in study["arms"]]
    yield table(columns, rows, text_columns=(0, 1, len(columns) - 2, len(columns) - 1))
    text = f"{esc(study['control_note'])} Bits per byte of the test split; a difference is arm minus control, so below "
    text += "zero the arm is better. Difference and interval come from one fit of arm and seed over all arms; a noise "
    text += "floor is the control's standard deviation over seeds."
    if floor is not None:
        text += f" The exact entropy of these stories is {bpb(floor)} bpb: no model can go below that on average."
    yield Text(text=text)
    if remarks := list(_remarks(study)):
        yield Bullets(items=remarks)
    if "final" in drawings and "differences" in drawings:  # else it stands on the first screen
        yield Picture(drawing=drawings["final"])


def _row(arm: dict[str, Any], study: dict[str, Any]) -> list[Cell]:
    values, total = arm["bpb"], len(arm["runs"]) + len(arm["missing"])
    row = [
        cell(code(arm["label"])),
        *_difference_cells(arm, study),
        cell(bpb(values["mean"]), sort=values["mean"]),
        cell(bpb(values["sd"]), sort=values["sd"]),
        cell(values["n"] if values["n"] == total else f"{values['n']} of {total}", sort=values["n"]),
    ]
    if study["floor_bpb"] is not None:
        row.append(cell(bpb(arm["excess"]), sort=arm["excess"]))
    return [*row, cell(changed(arm)), cell(arm["role"])]


def _difference_cells(arm: dict[str, Any], study: dict[str, Any]) -> list[Cell]:
    """Verdict, difference, interval, noise floors."""
    comparison = arm["comparison"]
    if comparison is None:
        return [cell("the control"), *[cell("")] * 3]
    verdict, contrast, floors = comparison["verdict"], comparison["contrast"], comparison["noise_floors"]
    return [
        cell(verdict_text(arm, study), tone=verdict["word"]),
        cell(signed(contrast["difference"]), sort=contrast["difference"]),
        cell(interval(contrast["interval"]), sort=contrast["interval"] and contrast["interval"][0]),
        cell(signed(floors, 1), sort=floors),
    ]


def changed(arm: dict[str, Any]) -> str:
    """What the arm changes against the control: `n_kv_head` = 1."""
    if not arm["changes"]:
        return "nothing"
    return ", ".join(f"{code(key.split('.', 1)[-1])} = {esc(setting(value))}" for key, value in arm["changes"].items())


def _remarks(study: dict[str, Any]) -> Iterator[str]:
    """Seeds that are not in the means, arms that are one."""
    control = _finished(study["arms"][0])
    for arm in study["arms"]:
        parts = [*_absences(arm)]
        own = _finished(arm)
        if arm["comparison"] and own and control and own != control:
            shared = sorted(own & control)
            parts.append(
                f"compared on {seeds_text(shared)}, which the control finished too"
                if shared
                else f"finished {seeds_text(sorted(own))}, of which the control has none"
            )
        if len(own) == 1:
            parts.append("one seed: no standard deviation, no interval, no verdict")
        if arm["comparison"] and arm["comparison"]["identical"]:
            parts.append(
                "every seed gave the control's bits per byte to the last digit, so what it changes never reached the "
                "weights; an interval of no width is not a measurement of noise"
            )
        if parts:
            yield f"{code(arm['label'])}: {'; '.join(parts)}."
        if arm["same_as"]:
            names = listed([code(other) for other in arm["same_as"]])
            yield f"{code(arm['label'])} and {names} resolve to the same configuration and are counted once."


def _finished(arm: dict[str, Any]) -> set[int]:
    return {run["seed"] for run in arm["runs"] if run["bpb"] is not None}


def _absences(arm: dict[str, Any]) -> Iterator[str]:
    if runs := arm["diverged"]:
        steps = [f"{run['step']:,}" for run in runs if run["step"] is not None]
        last = [bpb(run["last_bpb"]) for run in runs if run["last_bpb"] is not None]
        known = [f"at step{'s' * (len(steps) > 1)} {listed(steps)}"] if steps else []
        known += [f"last val bpb {listed(last)}"] if last else []
        told = f" ({'; '.join(known)})" if known else ""
        verb = "is" if len(runs) == 1 else "are"
        yield f"{seeds_text([run['seed'] for run in runs])} **diverged**{told} and {verb} left out of every mean"
    if arm["missing"]:
        yield f"no run of {seeds_text(arm['missing'])}, which params.yaml asks for"
    if not _finished(arm):
        yield "no finished seed, so nothing can be said of its bits per byte"


# --- methods


def _methods(study: dict[str, Any]) -> Iterator[Block]:
    arms = [arm for arm in study["arms"] if arm["comparison"]]
    columns = ["arm", "pooled", "paired t", "Welch", "correlation of pairs", "own / pooled spread"]
    columns += ["p (difference)", "p (equivalence)"]
    yield table(columns, [_method_row(arm) for arm in arms])
    yield Text(
        text="The pooled fit is the primary result. The paired t test uses the arm's own pairs of seeds, Welch's "
        "ignores the pairs and uses every finished seed. p is adjusted by Holm over "
        f"{_family(arms)}; exploratory and earlier arms never move the verdict of a planned one."
    )
    yield Bullets(items=list(_rule(study)))


def _method_row(arm: dict[str, Any]) -> list[Cell]:
    comparison = arm["comparison"]
    pairs, contrast = comparison["pairs"], comparison["contrast"]
    row = [cell(code(arm["label"]))]
    for result in (contrast, pairs["paired"], pairs["welch"]):
        known = result["interval"] is not None
        text = f"{signed(result['difference'])} ({interval(result['interval'])})" if known else None
        row.append(cell(text or signed(result["difference"]), sort=result["difference"]))
    numbers = (pairs["correlation"], contrast["spread"])
    row += [cell(signed(numbers[0], 2), sort=numbers[0])]
    row += [cell(NA if numbers[1] is None else f"{numbers[1]:.2f}", sort=numbers[1])]
    return row + [cell(p_value(comparison[key]), sort=comparison[key]) for key in ("p_difference", "p_equivalence")]


def _family(arms: Sequence[dict[str, Any]]) -> str:
    planned = [arm for arm in arms if arm["role"] == "planned"] or arms
    return plural(planned[0]["comparison"]["family"], "arm")


def _rule(study: dict[str, Any]) -> Iterator[str]:
    margin = f"{study['study']['margin']:g}"
    yield f"**Equivalent**: two one-sided tests put the difference inside ±{margin} bpb at 5 %. This is asked first."
    yield "**Better, worse**: the two-sided test of the pooled fit rejects “no difference” at 5 %."
    yield "**Inconclusive**: neither; the number of further seeds settles it with a chance of 80 %."
    yield "**No verdict**: fewer than two seeds shared with the control, or no spread among them."
    yield "Seeds that are added because a verdict was open are a second look, and each look spends the 5 % anew."
    for arm in study["arms"]:
        comparison = arm["comparison"]
        if comparison and comparison["verdict"]["pooled_only"]:
            yield f"{code(arm['label'])}: found with the spread of all arms; its own pairs alone do not show it."


# --- predictions


def _predictions(study: dict[str, Any]) -> Iterator[Block]:
    columns = ("arm", "predicted", "confidence", "measured", "off by", "inside the interval", "outcome")
    rows = [_prediction_row(entry, study) for entry in study["predictions"]]
    yield table(columns, rows, text_columns=(0, 1, 5, 6))
    outcomes = [entry["score"]["outcome"] for entry in study["predictions"] if entry["score"]]
    counts = [(plural(outcomes.count("hit"), "hit")), plural(outcomes.count("miss"), "miss", "misses")]
    text = f"{listed(counts).capitalize()}"
    if open_ := len(study["predictions"]) - outcomes.count("hit") - outcomes.count("miss"):
        text += f"; {open_} undecided"
    yield Text(text=f"{text}. “Off by” is measured minus predicted, in bits per byte. {_committed(study)}")


def _prediction_row(entry: dict[str, Any], study: dict[str, Any]) -> list[Cell]:
    size = "" if entry["size"] is None or entry["direction"] == "same" else f" by {bpb(entry['size'])}"
    known = entry["confidence"]
    start = [
        cell(code(entry["label"] or entry["arm"])),
        cell(f"{esc(entry['direction'])}{size}"),
        cell(percent(known) if isinstance(known, int | float) else NA, sort=known),
    ]
    score = entry["score"]
    if score is None:
        return [*start, cell(NA), cell(NA), cell(NA), cell("not among the planned arms")]
    arm = next(arm for arm in study["arms"] if arm["label"] == entry["label"])
    measured = arm["comparison"]["contrast"]["difference"]
    inside = NA if score["inside"] is None else "yes" if score["inside"] else "no"
    return [
        *start,
        cell(signed(measured), sort=measured),
        cell(signed(score["off"]), sort=score["off"]),
        cell(inside),
        cell(f"**{score['outcome']}**"),
    ]


def _committed(study: dict[str, Any]) -> str:
    committed, started = study["predictions_committed"], study["facts"]["started"]
    if not committed:
        return "When they were first committed is not known here."
    text = f"They were first committed in {code(committed['rev'][:8])}, {moment(committed['time'])}"
    if not started:
        return f"{text}."
    if datetime.fromisoformat(committed["time"]) > datetime.fromisoformat(started[0]):
        return f"{text}, **after the first run had started** ({moment(started[0])}): they predicted nothing."
    return f"{text}, before the first run started ({moment(started[0])})."
