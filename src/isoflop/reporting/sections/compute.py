"""Equal compute: the curves, the compute multiplier, and the other currencies."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from isoflop.reporting.document import Block, Cell, Picture, Section, Text, cell, table
from isoflop.reporting.figures import Drawing
from isoflop.reporting.figures.published import fits, results
from isoflop.reporting.markup import code, esc
from isoflop.reporting.text import NA, bpb, count, duration, flops, listed, times


def sections(study: dict[str, Any], drawings: dict[str, Drawing]) -> Iterator[Section]:
    if "curves" in drawings:
        yield Section(id="curves", title="Curves", blocks=list(_curves(study, drawings)))
    yield Section(id="currencies", title="Equal compute, and the other currencies", blocks=list(_currencies(study)))
    if fits(study) and "published" in drawings:
        yield Section(id="published", title="Among published results", blocks=list(_published(drawings)))


def _curves(study: dict[str, Any], drawings: dict[str, Drawing]) -> Iterator[Block]:
    yield Picture(drawing=drawings["curves"])
    without = [code(arm["label"]) for arm in study["arms"] if arm["runs"] and _no_history(arm)]
    if without:
        yield Text(text=f"Of {listed(without)} only the evaluations are known here, so no curves.")
    arms = [arm for arm in study["arms"] if arm["multiplier"]]
    if not arms:
        return
    columns = ("arm", "the control needs", "95 % interval", "the arm needs", "95 % interval", "seeds")
    yield table(columns, [multiplier_cells(arm["label"], arm["multiplier"]) for arm in arms])
    yield Text(
        text="Compute multipliers, read from the curves. “The control needs”: compute at which the control reaches the "
        "arm's final val bpb, over the arm's own; below 1 the arm wastes compute. “The arm needs”: the other way "
        "round; below 1 the arm saves compute. At equal budgets one of the two usually lies outside the measured "
        "range, and nothing is extrapolated. Along one run the learning rate's decay flatters the end of the curve, so "
        "a multiplier near 1 is understated."
    )


def _no_history(arm: dict[str, Any]) -> bool:
    return all(run["record"] is None for run in arm["runs"])


def multiplier_cells(label: str, multiplier: dict[str, Any]) -> list[Cell]:
    """A row of both multipliers with their intervals."""
    row = [cell(code(label))]
    for key in ("control_needs", "arm_needs"):
        found = multiplier[key]
        ends = found["interval"]
        row.append(cell(_multiplier(found), sort=found["estimate"]))
        row.append(cell(NA if ends is None else f"{times(ends[0])} to {times(ends[1])}", sort=ends and ends[0]))
    return [*row, cell(multiplier["control_needs"]["n"])]


def _multiplier(found: dict[str, Any]) -> str:
    if found["estimate"] is not None:
        return times(found["estimate"])
    n = found["n"]
    where = []
    if found["beyond"]:
        where.append(f"not reached by {_of(found['beyond'], n)}")
    if found["before"]:
        where.append(f"reached before the first evaluation by {_of(found['before'], n)}")
    return f"outside the measured range: {', '.join(where)}"


def _of(k: int, n: int) -> str:
    return f"{k} of {n} seeds" if k < n else "the one seed" if n == 1 else f"all {n} seeds"


def _currencies(study: dict[str, Any]) -> Iterator[Block]:
    columns = ["arm", "parameters", "FLOPs/token", "steps", "tokens", "FLOPs", "of the control's"]
    columns += ["training time", "tokens/s", "KV cache per token", "weights"]
    yield table(columns, [_currency_row(arm) for arm in study["arms"]])
    mismatch, budget = study["budget"]["mismatch"], study["budget"]
    if mismatch:
        text = f"**The budget does not hold** for {listed([code(entry['label']) for entry in mismatch])}."
    else:
        text = (
            f"The budget of {flops(budget['flops'])} FLOPs holds within {100 * budget['tolerance']:g} % in every arm."
        )
    if budget["kind"] != "flops":
        text += f" It was set in {budget['kind']} ({count(budget['amount'])}), not in FLOPs."
    planned = [code(arm["label"]) for arm in study["arms"] if not arm["cost"]["measured"]]
    if planned:
        text += f" For {listed(planned)} the figures are the planned ones: no run finished."
    yield Text(
        text=f"{text} KV cache (per token of context and sequence) and weights are counted in float32. Training time "
        "is the mean over seeds, evaluations left out; runs that shared the machine with others show it."
    )


def _currency_row(arm: dict[str, Any]) -> list[Cell]:
    cost = arm["cost"]
    kv = cost["kv_cache_bytes"]
    return [
        cell(code(arm["label"])),
        cell(count(cost["parameters"]), sort=cost["parameters"]),
        cell(count(cost["flops_per_token"]), sort=cost["flops_per_token"]),
        cell(count(cost["steps"]), sort=cost["steps"]),
        cell(count(cost["tokens"]), sort=cost["tokens"]),
        cell(flops(cost["flops"]), sort=cost["flops"]),
        cell(f"{100 * cost['flops_ratio']:.2f} %", sort=cost["flops_ratio"]),
        cell(duration(cost["train_s"]), sort=cost["train_s"]),
        cell(count(cost["tokens_per_s"]), sort=cost["tokens_per_s"]),
        cell(NA if kv is None else f"{count(kv)} B", sort=kv),
        cell(f"{cost['weights_mb']:.2f} MB", sort=cost["weights_mb"]),
    ]


def _published(drawings: dict[str, Drawing]) -> Iterator[Block]:
    yield Picture(drawing=drawings["published"])
    rows = []
    for _, row in results().iterrows():
        ends = (bpb(row["bpb_lo"]), bpb(row["bpb_hi"]))
        span = ends[0] if ends[0] == ends[1] else f"{ends[0]} to {ends[1]}"
        rows.append(
            [
                cell(row["number"], sort=row["number"]),
                cell(esc(row["name"])),
                cell(esc(row["tokenizer"])),
                cell(esc(row["data"])),
                cell(flops(row["flops_6ND"]), sort=row["flops_6ND"]),
                cell(span, sort=row["bpb_lo"]),
                cell(esc(row["grade"])),
                cell(esc(row["source"])),
            ]
        )
    columns = ("number", "result", "tokenizer", "data", "6 N D", "bpb", "grade", "source")
    yield table(columns, rows, text_columns=(1, 2, 3, 6, 7))
    yield Text(
        text="Published losses in nats per token, turned into bits per byte by the bytes per token of their tokenizer "
        "(grade A: known exactly, B: within a few per cent). They were measured on other texts of the corpus and by "
        "other rules (most do not count the end of a story), with other data, tokenizers and context: this places the "
        "study, it is no comparison at equal terms."
    )
