"""Figures against training compute: val bpb, and the stability of training."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter
from numpy.typing import NDArray

from isoflop.reporting.figures.style import (
    INK,
    MUTED,
    PAPER,
    SHADE,
    WIDTH,
    ArmStyle,
    Drawing,
    arm_styles,
    finish,
    log_flops_axis,
)
from isoflop.reporting.text import MINUS, plural
from isoflop.statistics.curves import Curve, common_grid, curve, interpolate, seed_band

Array = NDArray[np.float64]
Curves = Mapping[int, Curve]  # by seed


def curves(study: dict[str, Any], table: pd.DataFrame) -> Drawing | None:
    """val bpb against FLOPs and, below it, each arm's paired difference to the control at equal FLOPs."""
    styles, control = arm_styles([arm["label"] for arm in study["arms"]]), study["control"]
    found = {label: _val_curves(rows) for label, rows in _finished(study, table)}
    found = {label: by_seed for label, by_seed in found.items() if by_seed}
    if not found:
        return None
    apart = {
        label: band
        for label in found
        if label != control and control in found and (band := _apart(found[control], found[label])) is not None
    }
    figure = Figure(figsize=(WIDTH, 6.4 if apart else 4.2), layout="constrained")
    if apart:
        top, below = figure.subplots(2, 1, sharex=True, height_ratios=(3, 2))
        _differences(below, apart, styles, study["study"]["margin"])
    else:
        top = figure.subplots()
    for label, by_seed in found.items():
        _seed_curves(top, by_seed, styles[label])
    _dead_ends(top, study, table, styles)
    top.set_ylabel("val bits per byte")
    sns.despine(figure)
    log_flops_axis(figure.axes[-1])
    if apart:
        top.set_xlabel("")
    figure.legend(*top.get_legend_handles_labels(), loc="outside upper left", ncols=min(4, len(found) + 1))
    several = any(len(by_seed) > 1 for by_seed in found.values())
    caption = "Validation bits per byte while training; thin lines: single seeds, thick: their mean"
    caption += ", band: 95 % t interval of the mean over seeds." if several else "."
    if apart:
        caption += " Below: arm minus control at equal compute, paired by seed; grey: within the margin."
    return finish(figure, "curves", alt="Validation bits per byte against training compute, by arm", caption=caption)


def stability(study: dict[str, Any], table: pd.DataFrame) -> Drawing | None:
    """Training loss and gradient norm of every run, with the median over seeds; both axes logarithmic."""
    table = table[table["flops"] > 0]
    if table.empty:
        return None
    styles = arm_styles([arm["label"] for arm in study["arms"]])
    figure = Figure(figsize=(WIDTH, 3.8), layout="constrained")
    panels = figure.subplots(1, 2)
    titles = {"train/loss": "training loss (nats per token)", "train/grad_norm": "gradient norm before clipping"}
    for axes, (column, title) in zip(panels, titles.items(), strict=True):
        rows = table[table[column] > 0]  # a log axis has no place for zero; NaN compares false
        for label in (arm["label"] for arm in study["arms"]):
            _with_median(axes, rows[rows["arm"] == label], column, styles[label])
        axes.set_yscale("log")
        axes.set_ylabel("")
        axes.set_title(title)
        _plain_log_ticks(axes)
        log_flops_axis(axes, "training compute (FLOPs)", narrow=True)
        _dead_ends(axes, study, rows, styles, column)
    clip = study["arms"][0]["config"]["train"]["grad_clip"]
    if clip:
        panels[1].axhline(clip, color=INK, linewidth=1, linestyle=(0, (1, 1.5)), label=f"clipped above {clip:g}")
    sns.despine(figure)
    handles, labels = panels[1].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper left", ncols=min(4, len(labels)))
    return finish(
        figure,
        "stability",
        alt="Training loss and gradient norm against training compute, by arm",
        caption="Training loss and gradient norm; thin lines: single seeds, thick: their median.",
    )


def _finished(study: dict[str, Any], table: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame]]:
    """Rows of the finished runs of each arm, in the study's order."""
    for arm in study["arms"]:
        seeds = [run["seed"] for run in arm["runs"] if run["bpb"] is not None]
        yield arm["label"], table[(table["arm"] == arm["label"]) & table["seed"].isin(seeds)]


def _val_curves(rows: pd.DataFrame) -> dict[int, Curve]:
    rows = rows[rows["val/bpb"].notna() & (rows["flops"] > 0)].drop_duplicates(["seed", "flops"])
    return {int(str(seed)): curve(part["flops"], part["val/bpb"]) for seed, part in rows.groupby("seed")}


def _seed_curves(axes: Axes, by_seed: Curves, style: ArmStyle) -> None:
    for each in by_seed.values():
        axes.plot(np.exp(each.log_flops), each.bpb, color=style.colour, linewidth=0.7, alpha=0.45)
    grid, marks = _grid(list(by_seed.values()))
    if not len(grid):  # a single evaluation
        ends = [(float(np.exp(each.log_flops[-1])), float(each.bpb[-1])) for each in by_seed.values()]
        axes.plot(*zip(*ends, strict=True), style.marker, color=style.colour, label=style.label)
        return
    _band(axes, grid, marks, np.array([interpolate(each, grid) for each in by_seed.values()]), style)


def _grid(curves: Sequence[Curve]) -> tuple[Array, list[int]]:
    """A common grid that holds the first curve's own points, and where those (and the ends) are in it."""
    grid = common_grid(curves)
    if not len(grid):
        return grid, []
    own = np.exp(curves[0].log_flops)
    own = np.concatenate([grid[:1], own[(own > 1.01 * grid[0]) & (own < 0.99 * grid[-1])], grid[-1:]])
    grid = np.unique(np.concatenate([grid, own]))
    return grid, [int(i) for i in np.searchsorted(grid, own)]


def _band(axes: Axes, grid: Array, marks: list[int], values: Array, style: ArmStyle) -> None:
    """Mean over seeds with its t interval; values: [seeds, points]."""
    band = seed_band(values)
    if band.low is not None and band.high is not None:
        axes.fill_between(grid, band.low, band.high, color=style.colour, alpha=0.14, linewidth=0)
    mean = pd.DataFrame({"flops": grid, "bpb": band.mean})
    sns.lineplot(data=mean, x="flops", y="bpb", ax=axes, color=style.colour, estimator=None, legend=False)
    _dress(axes.lines[-1], style, marks)


def _dress(line: Line2D, style: ArmStyle, marks: list[int]) -> None:
    line.set(linewidth=style.width, marker=style.marker, markersize=style.size(6), markevery=marks, label=style.label)
    line.set(markeredgecolor=PAPER, markeredgewidth=0.6, zorder=3 if style.dashes else 4)  # the control on top
    if style.dashes:
        line.set_dashes(style.dashes)


def _apart(control: Curves, arm: Curves) -> tuple[Array, list[int], Array] | None:
    """Grid, marks and arm minus control on it, [seeds, points]; None without a shared seed or a shared range."""
    seeds = sorted(control.keys() & arm.keys())
    grid, marks = _grid([each[seed] for each in (control, arm) for seed in seeds])
    if not len(grid):
        return None
    return grid, marks, np.array([interpolate(arm[seed], grid) - interpolate(control[seed], grid) for seed in seeds])


def _differences(
    axes: Axes, apart: Mapping[str, tuple[Array, list[int], Array]], styles: Mapping[str, ArmStyle], margin: float
) -> None:
    axes.axhspan(-margin, margin, color=SHADE, zorder=0)
    axes.axhline(0, color=INK, linewidth=1.6)
    for label, (grid, marks, values) in apart.items():
        _band(axes, grid, marks, values, styles[label])
    # The start of training would set the scale: the rest of the range does, with the margin in sight.
    late = [values[:, len(grid) // 3 :] for grid, _, values in apart.values()]
    low, high = min(-margin, *(v.min() for v in late)), max(margin, *(v.max() for v in late))
    room = 0.25 * (high - low)
    axes.set_ylim(low - room, high + room)
    axes.set_ylabel(f"arm {MINUS} control (bpb)")


def _with_median(axes: Axes, rows: pd.DataFrame, column: str, style: ArmStyle) -> None:
    if rows.empty:
        return
    sns.lineplot(
        data=rows,
        x="flops",
        y=column,
        units="seed",
        estimator=None,
        ax=axes,
        color=style.colour,
        linewidth=0.5,
        alpha=0.35,
        legend=False,
    )
    middle = rows.groupby("step")[["flops", column]].median()
    (line,) = axes.plot(middle["flops"], middle[column])
    line.set_color(style.colour)
    step = max(1, len(middle) // 6)
    _dress(line, style, list(range(step // 2, len(middle), step)))


def _dead_ends(
    axes: Axes, study: dict[str, Any], table: pd.DataFrame, styles: Mapping[str, ArmStyle], column: str = "val/bpb"
) -> None:
    """Runs that diverged, as far as they went, with a cross where the last finite value stands."""
    ends = []
    for arm in study["arms"]:
        for run in arm["diverged"]:
            rows = table[(table["arm"] == arm["label"]) & (table["seed"] == run["seed"])]
            rows = rows[rows[column].notna() & (rows["flops"] > 0)]
            if not rows.empty:
                axes.plot(rows["flops"], rows[column], color=styles[arm["label"]].colour, linewidth=0.8, alpha=0.6)
                ends.append((rows["flops"].iloc[-1], rows[column].iloc[-1], styles[arm["label"]].colour))
    for x, y, colour in ends:
        axes.plot(x, y, "x", color=colour, markersize=9, markeredgewidth=2, zorder=5)
    if ends:
        axes.plot(
            [], [], "x", color=MUTED, markersize=8, markeredgewidth=2, label=f"{plural(len(ends), 'seed')} diverged"
        )


def _plain_log_ticks(axes: Axes) -> None:
    low, high = axes.get_ylim()
    subs = (1.0,) if high / low > 300 else (1.0, 2.0, 5.0) if high / low > 4 else (1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 7.0)
    axes.yaxis.set_major_locator(LogLocator(subs=subs, numticks=20))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())
