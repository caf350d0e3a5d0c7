"""The ladder: bits per byte against size at each budget, and the best of each budget against compute."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from isoflop.reporting.figures.style import (
    INK,
    PAPER,
    WIDTH,
    ArmStyle,
    Drawing,
    arm_styles,
    finish,
    log_flops_axis,
    power,
)
from isoflop.statistics.intervals import noise_floor, t_interval


def ladder(study: dict[str, Any]) -> Drawing | None:
    """None without a ladder, or where its finished runs have one size and one budget."""
    ends = {family["name"]: _ends(family) for family in study["ladder"]}
    curved = any(len(_sizes(budget)) > 1 for family in study["ladder"] for budget in family["budgets"])
    several = any(len(found) > 1 for found in ends.values())
    if not curved and not several:
        return None
    styles = arm_styles([family["name"] for family in study["ladder"]])
    figure = Figure(figsize=(WIDTH, 4.4), layout="constrained")
    ratios = [*([3] if curved else []), *([2] if several else [])]
    panels = figure.subplots(1, len(ratios), sharey=True, squeeze=False, width_ratios=ratios)[0]
    caption = "Test bits per byte"
    if curved:
        _isoflops(panels[0], study["ladder"], styles, narrow=several)
        caption += " against size, a curve per budget (FLOPs, at its end); points: single runs, line: their mean"
        if any(budget["fit"] for family in study["ladder"] for budget in family["budgets"]):
            caption += " or, from three sizes on, a fitted parabola with its 95 % bootstrap band, ring: its minimum"
        caption += "."
    if several:
        for name, found in ends.items():
            _best(panels[-1], found, styles[name])
        log_flops_axis(panels[-1], "training compute (FLOPs)", narrow=curved)
        caption += " On the right the best of each budget" if curved else " of each budget"
        caption += ": the fitted minimum, or the one size there was, with 95 % intervals."
    for style in styles.values():
        panels[0].plot([], [], color=style.colour, marker=style.marker, label=style.label)
    panels[0].set_ylabel("test bits per byte")
    sns.despine(figure)
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside upper left", ncols=4)
    return finish(figure, "ladder", alt="Test bits per byte against model size and training compute", caption=caption)


def _isoflops(axes: Axes, families: Sequence[dict[str, Any]], styles: Mapping[str, ArmStyle], *, narrow: bool) -> None:
    named: list[float] = []  # budgets whose number stands in the figure already
    for family in families:
        for budget in family["budgets"]:
            known = any(abs(budget["flops"] / other - 1) < 0.02 for other in named)
            end = _isoflop(axes, budget, styles[family["name"]])
            if end and not known:
                named.append(budget["flops"])
                text = power(float(f"{budget['flops']:.2g}"))
                axes.annotate(text, end, (5, 0), textcoords="offset points", va="center", fontsize=8.5, color=INK)
    axes.margins(x=0.12)
    log_flops_axis(axes, "parameters (log scale)", narrow=narrow)


def _sizes(budget: dict[str, Any]) -> list[dict[str, Any]]:
    return [rung for rung in budget["rungs"] if rung["bpb"]["mean"] is not None]


def _isoflop(axes: Axes, budget: dict[str, Any], style: ArmStyle) -> tuple[float, float] | None:
    """Draw one budget of a family; where its curve ends."""
    rungs, fit = _sizes(budget), budget["fit"]
    if not rungs:
        return None
    points = np.array([(rung["parameters"], entry["bpb"]) for rung in rungs for entry in rung["by_seed"]])
    axes.scatter(points[:, 0], points[:, 1], s=14, color=style.colour, marker=style.marker, alpha=0.6, linewidth=0)
    if fit:
        x, y = np.array(fit["grid"]), np.array(fit["mean"])
        if fit["low"]:
            axes.fill_between(x, fit["low"], fit["high"], color=style.colour, alpha=0.12, linewidth=0)
    else:
        x = np.array([rung["parameters"] for rung in rungs], float)
        y = np.array([rung["bpb"]["mean"] for rung in rungs])
    (line,) = axes.plot(x, y, color=style.colour, linewidth=style.width * 0.8)
    if style.dashes:
        line.set_dashes(style.dashes)
    if fit and fit["minimum"] is not None:
        axes.plot(
            fit["minimum"], fit["minimum_bpb"], "o", markersize=10, markerfacecolor="none", color=style.colour, zorder=5
        )
    return float(x[-1]), float(y[-1])


def _ends(family: dict[str, Any]) -> list[tuple[float, float, Sequence[float] | None]]:
    """(FLOPs, best bpb, its interval) of each budget where the best is no choice made after the fact."""
    found: list[tuple[float, float, Sequence[float] | None]] = []
    for budget in family["budgets"]:
        rungs, fit = _sizes(budget), budget["fit"]
        if fit and fit["minimum_bpb"] is not None:
            found.append((budget["flops"], fit["minimum_bpb"], fit["minimum_band"]))
        elif len(rungs) == 1:
            values = noise_floor({entry["seed"]: entry["bpb"] for entry in rungs[0]["by_seed"]})
            assert values.mean is not None
            interval = None
            if values.sd is not None:
                interval = t_interval(values.mean, values.sd / values.n**0.5, values.n - 1)
            found.append((budget["flops"], values.mean, interval))
    return found


def _best(axes: Axes, found: Sequence[tuple[float, float, Sequence[float] | None]], style: ArmStyle) -> None:
    if not found:
        return
    (line,) = axes.plot([flops for flops, _, _ in found], [value for _, value, _ in found], color=style.colour)
    line.set(linewidth=style.width, marker=style.marker, markersize=style.size(6), markeredgecolor=PAPER)
    if style.dashes:
        line.set_dashes(style.dashes)
    for flops, _, interval in found:
        if interval:
            axes.plot([flops, flops], interval, color=style.colour, linewidth=1.6, alpha=0.7)
