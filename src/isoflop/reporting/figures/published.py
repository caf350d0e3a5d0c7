"""The study among published TinyStories results, in bits per byte against compute."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd
import seaborn as sns
from matplotlib.figure import Figure

from isoflop.reporting.figures.style import MUTED, PAPER, WIDTH, Drawing, arm_styles, finish, log_flops_axis
from isoflop.reporting.text import TIMES

DATA = Path(__file__).parents[1] / "published_bpb.csv"
CORPUS = "tinystories"


@cache
def results() -> pd.DataFrame:
    """Published results by compute, each with its source; `number` is how the figure calls it.

    Compute is 6 N D. `bpb_lo` and `bpb_hi` enclose the bits per byte that follow from the published loss and what is
    known of the bytes per token. Grade A: bytes per token known exactly; B: known within a few per cent.
    """
    table = pd.read_csv(DATA).sort_values("flops_6ND", kind="stable", ignore_index=True)
    table.insert(0, "number", range(1, len(table) + 1))
    return table


def fits(study: dict[str, Any]) -> bool:
    """Only results on the same corpus are shown beside each other."""
    return bool(study["corpus"]["source"] == CORPUS) and any(arm["bpb"]["n"] for arm in study["arms"])


def published(study: dict[str, Any]) -> Drawing | None:
    """None unless the corpus is TinyStories."""
    if not fits(study):
        return None
    table, styles = results(), arm_styles([arm["label"] for arm in study["arms"]])
    figure = Figure(figsize=(WIDTH, 4.4), layout="constrained")
    axes = figure.subplots()
    table = table.assign(bpb=(table["bpb_lo"] + table["bpb_hi"]) / 2)
    axes.vlines(table["flops_6ND"], table["bpb_lo"], table["bpb_hi"], color=MUTED, linewidth=1)
    sns.scatterplot(data=table, x="flops_6ND", y="bpb", color=MUTED, s=26, ax=axes, legend=False, edgecolor=PAPER)
    for _, row in table.iterrows():
        axes.annotate(
            str(row["number"]), (row["flops_6ND"], row["bpb"]), (4, 3), textcoords="offset points", fontsize=8
        )
    for arm in study["arms"]:
        if arm["bpb"]["mean"] is not None:
            style, cost = styles[arm["label"]], arm["cost"]
            x = 6 * cost["parameters"] * cost["tokens"]
            axes.plot(
                x, arm["bpb"]["mean"], style.marker, color=style.colour, markersize=style.size(8), label=style.label
            )
    axes.set_ylabel("bits per byte")
    sns.despine(figure)
    log_flops_axis(axes, f"training compute (6 {TIMES} parameters {TIMES} tokens, log scale)")
    axes.scatter([], [], s=26, color=MUTED, label="published")
    figure.legend(*axes.get_legend_handles_labels(), loc="outside upper left", ncols=4)
    return finish(
        figure,
        "published",
        alt="Bits per byte against training compute: this study and published TinyStories results",
        caption="This study among published TinyStories results; the numbers are explained in the table below.",
    )
