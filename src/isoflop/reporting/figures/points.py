"""Figures with one row per arm and every seed as a point."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from isoflop.reporting.figures.style import INK, MUTED, PAPER, SHADE, WIDTH, ArmStyle, Drawing, arm_styles, finish
from isoflop.reporting.markup import code
from isoflop.reporting.text import plural, seeds_text, signed

ROW, FRAME = 0.52, 1.25  # inches per arm, inches for axis and title


def differences(study: dict[str, Any]) -> Drawing | None:
    """Arm minus control with its interval, the pairs of seeds, and the margin; None without an arm to compare."""
    arms = [arm for arm in study["arms"] if arm["comparison"]]
    shown = [arm for arm in arms if arm["comparison"]["contrast"]["difference"] is not None]
    if not shown:
        return None
    styles, margin = arm_styles([arm["label"] for arm in study["arms"]]), study["study"]["margin"]
    figure, axes = _rows(arms, styles)
    axes.axvspan(-margin, margin, color=SHADE, zorder=0, label=f"within the margin of {margin:g}")
    axes.axvline(0, color=INK, linewidth=1.6, zorder=1)
    seeds = [(pair["difference"], row) for row, arm in enumerate(arms) for pair in arm["comparison"]["by_seed"]]
    _seed_points(axes, seeds, arms, styles, label="one pair of seeds", below=0.17)
    for row, arm in enumerate(arms):
        contrast, style = arm["comparison"]["contrast"], styles[arm["label"]]
        if contrast["difference"] is None:
            axes.annotate("no result", (0, row), (6, 0), textcoords="offset points", va="center", color=MUTED)
            continue
        if contrast["interval"]:
            axes.plot(contrast["interval"], [row, row], color=style.colour, linewidth=2.4, solid_capstyle="butt")
        axes.plot(
            contrast["difference"],
            row,
            marker=style.marker,
            markersize=style.size(9),
            color=style.colour,
            markeredgecolor=PAPER,
            fillstyle="full" if contrast["interval"] else "none",
        )
    _symmetric(axes, [margin, *(x for x, _ in seeds), *_ends(shown)])
    _right_labels(axes, [f"{signed(a['comparison']['contrast']['difference'])}  {_word(a)}" for a in arms])
    axes.set_xlabel(f"← better      test bpb, arm minus {styles[study['control']].label}      worse →")
    axes.plot([], [], "o-", color=MUTED, linewidth=2.4, markersize=8, label="pooled difference, 95 % t interval")
    figure.legend(loc="outside upper left", ncols=3)
    hollow = (
        " (hollow: too few seeds for one)" if any(not a["comparison"]["contrast"]["interval"] for a in shown) else ""
    )
    return finish(
        figure,
        "differences",
        alt=f"Difference in test bits per byte between {plural(len(arms), 'arm')} and the control, with intervals",
        caption=(
            f"Test bits per byte, arm minus the control {code(study['control'])}. Large mark: the difference from the "
            f"pooled fit with its 95 % t interval{hollow}; small points: single pairs of seeds; grey: differences that "
            "do not matter."
        ),
    )


def final(study: dict[str, Any]) -> Drawing | None:
    """Test bpb of every seed, with the mean, and the control's spread as a band; None without a finished run."""
    arms = study["arms"]
    if not any(arm["bpb"]["n"] for arm in arms):
        return None
    styles, noise, floor = arm_styles([arm["label"] for arm in arms]), study["noise"], study["floor_bpb"]
    figure, axes = _rows(arms, styles)
    if noise["sd"]:
        low, high = noise["mean"] - noise["sd"], noise["mean"] + noise["sd"]
        axes.axvspan(low, high, color=SHADE, zorder=0, label="noise floor: control mean ± 1 sd over seeds")
    if noise["mean"] is not None:
        axes.axvline(noise["mean"], color=INK, linewidth=1, linestyle=(0, (4, 3)), zorder=1)
    seeds = [(run["bpb"], row) for row, arm in enumerate(arms) for run in arm["runs"] if run["bpb"] is not None]
    _seed_points(axes, seeds, arms, styles, label="one seed")
    for row, arm in enumerate(arms):
        if arm["bpb"]["mean"] is not None:
            axes.plot([arm["bpb"]["mean"]] * 2, [row - 0.3, row + 0.3], color=styles[arm["label"]].colour, linewidth=2)
    values = [x for x, _ in seeds]
    room = max(max(values) - min(values), 1e-3)
    if floor is not None and floor > min(values) - 1.5 * room:
        axes.axvline(floor, color=INK, linewidth=1.2, linestyle=(0, (1, 1.5)), label="entropy floor of the corpus")
    _right_labels(axes, [_spread(arm) for arm in arms])
    axes.set_xlabel("test bits per byte (lower is better)")
    axes.margins(x=0.08)
    figure.legend(loc="outside upper left", ncols=3)
    caption = "Test bits per byte of every seed; the upright mark is the arm's mean, on the right mean ± sd over seeds."
    if noise["sd"]:
        caption += " The grey band is what seeds alone do to the control."
    return finish(figure, "final", alt="Test bits per byte of each arm, every seed as a point", caption=caption)


def speed(study: dict[str, Any]) -> Drawing | None:
    """Tokens per second of every run, from zero; None where no run's record is known."""
    arms = [arm for arm in study["arms"] if _speeds(arm)]
    if not arms:
        return None
    styles = arm_styles([arm["label"] for arm in study["arms"]])
    figure, axes = _rows(arms, styles)
    seeds = [(value, row) for row, arm in enumerate(arms) for value in _speeds(arm)]
    for row, arm in enumerate(arms):
        middle, style = float(np.mean(_speeds(arm))), styles[arm["label"]]
        axes.plot([0, middle], [row, row], color=style.colour, linewidth=2, alpha=0.45, solid_capstyle="butt")
    _seed_points(axes, seeds, arms, styles, label="one seed")
    _right_labels(axes, [f"{np.mean(_speeds(arm)):,.0f}" for arm in arms])
    axes.set_xlim(0, 1.04 * max(value for value, _ in seeds))
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    axes.set_xlabel("training speed (tokens per second)")
    return finish(
        figure,
        "speed",
        alt="Training speed of each arm in tokens per second, every seed as a point",
        caption="Tokens per second while training, evaluations left out; the line ends at the arm's mean.",
    )


def _speeds(arm: dict[str, Any]) -> list[float]:
    found = (run["record"]["tokens_per_s"] for run in arm["runs"] if run["record"] and run["bpb"] is not None)
    return [value for value in found if value]


def _rows(arms: Sequence[dict[str, Any]], styles: dict[str, ArmStyle]) -> tuple[Figure, Axes]:
    """Axes with one labelled row per arm, the first on top."""
    figure = Figure(figsize=(WIDTH, ROW * len(arms) + FRAME), layout="constrained")
    axes = figure.subplots()
    axes.set_ylim(len(arms) - 0.5, -0.5)
    axes.set_yticks(range(len(arms)), [styles[arm["label"]].label for arm in arms])
    axes.tick_params(axis="y", length=0)
    axes.grid(visible=False, axis="y")
    sns.despine(figure, left=True)
    return figure, axes


def _seed_points(
    axes: Axes,
    seeds: Sequence[tuple[float, int]],
    arms: Sequence[dict[str, Any]],
    styles: dict[str, ArmStyle],
    label: str,
    below: float = -0.075,
) -> None:
    """Small points on each row (or `below` it), fanned out so that equal values stay apart."""
    fan = pd.DataFrame(seeds, columns=["x", "row"])
    fan["y"] = fan["row"] + below + 0.05 * (fan.groupby("row").cumcount() % 4)
    for row, part in fan.groupby("row"):
        style = styles[arms[int(str(row))]["label"]]
        sns.scatterplot(
            data=part,
            x="x",
            y="y",
            ax=axes,
            color=style.colour,
            marker=style.marker,
            s=style.size(5.1) ** 2,
            alpha=0.8,
            linewidth=0.5,
            edgecolor=PAPER,
            zorder=3,
            legend=False,
        )
    axes.scatter([], [], s=26, color=MUTED, label=label)
    axes.set_ylabel("")


def _ends(arms: Sequence[dict[str, Any]]) -> list[float]:
    contrasts = [arm["comparison"]["contrast"] for arm in arms]
    return [x for c in contrasts for x in (c["difference"], *(c["interval"] or ()))]


def _symmetric(axes: Axes, values: Sequence[float]) -> None:
    """Zero and the margin are always in sight; nothing is cut off."""
    low, high = min(0.0, *values, -values[0]), max(0.0, *values)
    room = 0.06 * (high - low)
    axes.set_xlim(low - room, high + room)


def _right_labels(axes: Axes, texts: Sequence[str]) -> None:
    right = axes.secondary_yaxis("right")
    right.set_yticks(range(len(texts)), texts)
    right.tick_params(length=0)
    right.spines["right"].set_visible(False)


def _word(arm: dict[str, Any]) -> str:
    return str(arm["comparison"]["verdict"]["word"])


def _spread(arm: dict[str, Any]) -> str:
    mean, sd, n = (arm["bpb"][key] for key in ("mean", "sd", "n"))
    parts = ["no result" if mean is None else f"{mean:.4f}" + ("" if sd is None else f" ± {sd:.4f}")]
    if arm["diverged"]:
        parts.append(f"{seeds_text([run['seed'] for run in arm['diverged']])} diverged")
    elif n == 1:
        parts.append("one seed")
    return "\n".join(parts)
