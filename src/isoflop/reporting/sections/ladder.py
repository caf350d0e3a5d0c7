"""The ladder: families of arms over several sizes and budgets, isoFLOP curves and their minima."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from isoflop.reporting.document import Block, Bullets, Cell, Picture, Section, Text, cell, table
from isoflop.reporting.figures import Drawing
from isoflop.reporting.markup import code
from isoflop.reporting.sections.compute import multiplier_cells
from isoflop.reporting.text import NA, bpb, count, flops, listed, plural, seeds_text


def sections(study: dict[str, Any], drawings: dict[str, Drawing]) -> Iterator[Section]:
    if study["ladder"]:
        yield Section(id="ladder", title="Ladder of sizes and budgets", blocks=list(_blocks(study, drawings)))


def _blocks(study: dict[str, Any], drawings: dict[str, Drawing]) -> Iterator[Block]:
    if "ladder" in drawings:
        yield Picture(drawing=drawings["ladder"])
    budgets = [(family["name"], budget) for family in study["ladder"] for budget in family["budgets"]]
    if any(budget["fit"] for _, budget in budgets):
        columns = ("family", "budget", "runs", "sizes", "best size", "95 % interval", "bpb there", "95 % band")
        rows = [_fit_row(name, budget) for name, budget in budgets]
        yield table(columns, rows, text_columns=(0, 4))
        yield Text(
            text="At each budget a parabola in the logarithm of the parameters goes through all runs of a family "
            "(Hoffmann et al. 2022, approach 2); its minimum is given only where it lies inside the sizes that were "
            "trained. Bands and intervals come from a parametric bootstrap with the variance drawn anew, which agrees "
            "with the t interval for few runs. Minima of two families are not tested against each other here."
        )
    else:
        yield Text(text="No family has three sizes at one budget, which a fitted minimum would take.")
    names = ("family", "budget", "arm", "parameters", "test bpb", "sd", "seeds")
    yield table(names, list(_rung_rows(study)), text_columns=(0, 2))
    yield from _multipliers(study)
    if remarks := list(_remarks(study)):
        yield Bullets(items=remarks)


def _fit_row(name: str, budget: dict[str, Any]) -> list[Cell]:
    fit = budget["fit"]
    start = [cell(code(name)), cell(flops(budget["flops"]), sort=budget["flops"])]
    if fit is None:
        runs, sizes = sum(rung["bpb"]["n"] for rung in budget["rungs"]), len(budget["rungs"])
        return [*start, cell(runs), cell(sizes), cell(f"n/a: {budget['problem']}"), *[cell(NA)] * 3]
    ends, band = fit["interval"], fit["minimum_band"]
    return [
        *start,
        cell(fit["runs"]),
        cell(fit["sizes"]),
        cell(_best_size(fit), sort=fit["minimum"]),
        cell(NA if ends is None else _interval(fit), sort=ends and ends[0]),
        cell(bpb(fit["minimum_bpb"]), sort=fit["minimum_bpb"]),
        cell(NA if band is None else f"{bpb(band[0])} to {bpb(band[1])}", sort=band and band[0]),
    ]


def _best_size(fit: dict[str, Any]) -> str:
    """The minimum; where it is not inside, which end is the better one."""
    if fit["minimum"] is not None:
        return count(fit["minimum"])
    first, last = fit["mean"][0], fit["mean"][-1]
    return f"not inside: the {'smallest' if first < last else 'largest'} size is best"


def _interval(fit: dict[str, Any]) -> str:
    low, high = (count(end) for end in fit["interval"])
    return f"{'below ' if fit['open_low'] else ''}{low} to {'above ' if fit['open_high'] else ''}{high}"


def _rung_rows(study: dict[str, Any]) -> Iterator[list[Cell]]:
    for family in study["ladder"]:
        for budget in family["budgets"]:
            for rung in budget["rungs"]:
                values = rung["bpb"]
                total = values["n"] + len(rung["diverged"]) + len(rung["missing"])
                yield [
                    cell(code(family["name"])),
                    cell(flops(rung["flops"]), sort=rung["flops"]),
                    cell(code(rung["label"])),
                    cell(count(rung["parameters"]), sort=rung["parameters"]),
                    cell(bpb(values["mean"]), sort=values["mean"]),
                    cell(bpb(values["sd"]), sort=values["sd"]),
                    cell(values["n"] if values["n"] == total else f"{values['n']} of {total}", sort=values["n"]),
                ]


def _multipliers(study: dict[str, Any]) -> Iterator[Block]:
    first, *others = study["ladder"]
    known = [family for family in others if family["multiplier"]]
    if not known:
        return
    columns = ("family", f"{first['name']} needs", "95 % interval", "the family needs", "95 % interval", "seeds")
    yield table(columns, [multiplier_cells(family["name"], family["multiplier"]) for family in known])
    yield Text(
        text=f"Compute multipliers over final values of whole runs, {code(first['name'])} as the reference: free of "
        "the learning rate's decay, which flatters the end of a curve along one run."
    )


def _remarks(study: dict[str, Any]) -> Iterator[str]:
    for family in study["ladder"]:
        if family["absent"]:
            names = listed([code(name) for name in family["absent"]])
            yield f"{code(family['name'])}: {names} could not be placed: no configuration of that name was collected."
        for budget in family["budgets"]:
            for rung in budget["rungs"]:
                if rung["diverged"]:
                    yield f"{code(rung['label'])}: {seeds_text(rung['diverged'])} **diverged** and left the fit."
                if rung["missing"]:
                    yield f"{code(rung['label'])}: no run of {seeds_text(rung['missing'])}."
    control = study["arms"][0]["cost"]["flops"]
    other = sum(arm["role"] == "rung" for arm in study["aside"])
    if other:
        yield (
            f"{plural(other, 'arm')} trained with another budget than the control's {flops(control)} FLOPs: shown here "
            "only, and never compared with the control."
        )
