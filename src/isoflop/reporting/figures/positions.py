"""Bits per byte by position in the story: where an arm gains or loses."""

from __future__ import annotations

from typing import Any

import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from isoflop.reporting.figures.style import INK, PAPER, SHADE, WIDTH, ArmStyle, Drawing, arm_styles, finish
from isoflop.reporting.text import MINUS


def positions(study: dict[str, Any]) -> Drawing | None:
    """Mean bpb by bytes since the story began and, below it, the paired difference to the control."""
    arms = [arm for arm in study["arms"] if arm["positions"]]
    if not arms:
        return None
    styles = arm_styles([arm["label"] for arm in study["arms"]])
    ranges = sorted({(part["from"], part["to"]) for arm in arms for part in arm["positions"]}, key=lambda r: r[0])
    compared = [arm for arm in arms if any(part["difference"] is not None for part in arm["positions"])]
    figure = Figure(figsize=(WIDTH, 5.8 if compared else 3.6), layout="constrained")
    if compared:
        top, below = figure.subplots(2, 1, sharex=True, height_ratios=(1, 1))
        _differences(below, compared, styles, ranges, study["study"]["margin"])
    else:
        top = figure.subplots()
    for arm in arms:
        _line(top, arm, styles[arm["label"]], ranges, "bpb", 0.0)
    top.set_ylabel("test bits per byte")
    figure.axes[-1].set_xticks(range(len(ranges)), [_range(low, high) for low, high in ranges])
    figure.axes[-1].set_xlabel("bytes since the story began")
    sns.despine(figure)
    figure.legend(*top.get_legend_handles_labels(), loc="outside upper left", ncols=min(4, len(arms)))
    caption = "Test bits per byte by position in the story, mean over seeds."
    if compared:
        caption += " Below: arm minus control with 95 % t intervals over paired seeds; grey: within the margin."
    return finish(figure, "positions", alt="Test bits per byte by position in the story, by arm", caption=caption)


def _differences(axes: Axes, arms: list[dict[str, Any]], styles: Any, ranges: list[Any], margin: float) -> None:
    axes.axhspan(-margin, margin, color=SHADE, zorder=0)
    axes.axhline(0, color=INK, linewidth=1.6)
    step = 0.6 / len(arms)
    for i, arm in enumerate(arms):
        shift = step * (i - (len(arms) - 1) / 2)
        style = styles[arm["label"]]
        _line(axes, arm, style, ranges, "difference", shift, joined=False)
        for part in arm["positions"]:
            if part["difference"] is not None and part["interval"]:
                x = ranges.index((part["from"], part["to"])) + shift
                axes.plot([x, x], part["interval"], color=style.colour, linewidth=1.6, alpha=0.7)
    axes.set_ylabel(f"arm {MINUS} control (bpb)")


def _line(
    axes: Axes, arm: dict[str, Any], style: ArmStyle, ranges: list[Any], key: str, shift: float, *, joined: bool = True
) -> None:
    known = [part for part in arm["positions"] if part[key] is not None]
    x = [ranges.index((part["from"], part["to"])) + shift for part in known]
    (line,) = axes.plot(x, [part[key] for part in known], color=style.colour, marker=style.marker, label=style.label)
    line.set(linewidth=style.width, markersize=style.size(6), markeredgecolor=PAPER, markeredgewidth=0.6)
    line.set_zorder(3 if style.dashes else 4)  # the control on top
    if not joined:
        line.set_linestyle("none")
    elif style.dashes:
        line.set_dashes(style.dashes)


def _range(low: int, high: int | None) -> str:
    return f"{low:,} and on" if high is None else f"{low:,} to {high - 1:,}"
