"""The collected runs as flat tables (CSV): one row per run, and one row per point of every curve.

What is not known, NaN among it, is blank. Without pandas: importing it takes longer than all the rest.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from isoflop.analysis.values import bpb, labels, number
from isoflop.collected import Collected, CollectedArm, CollectedRun

CURVES = ("tokens", "flops", "val/bpb", "train/loss", "train/grad_norm", "train/lr", "time/tokens_per_s")
RUNS = (
    *("arm", "role", "seed", "status", "origin", "bpb", "parameters", "flops_per_token", "steps", "tokens", "flops"),
    *("train_s", "tokens_per_s", "mfu", "first_loss", "diverged_at", "run_uid", "run_id", "git_rev", "code_digest"),
)


def runs_table(collected: Collected) -> str:
    """One row per run, diverged ones included."""
    return _csv(RUNS, (_run_row(label, arm, run) for label, arm in _labelled(collected) for run in arm.runs))


def curves_table(collected: Collected) -> str:
    """One row per measured step of every run: `arm seed step` and the metrics, 6 significant digits."""
    rows = (
        {"arm": label, "seed": run.seed, "step": int(row["step"])} | _point(row)
        for label, arm in _labelled(collected)
        for run in arm.runs
        for row in run.history
    )
    return _csv(("arm", "seed", "step", *CURVES), rows)


def _labelled(collected: Collected) -> Iterator[tuple[str, CollectedArm]]:
    """Every arm that is shown, compared or not, with its label."""
    yield from zip(labels(collected.arms), collected.arms, strict=True)
    yield from ((arm.label, arm) for arm in collected.aside)


def _run_row(label: str, arm: CollectedArm, run: CollectedRun) -> dict[str, Any]:
    evaluation, record = run.evaluation, run.record or {}
    timing, provenance = record.get("timing", {}), record.get("provenance", {})
    return {
        "arm": label,
        "role": arm.role,
        "seed": run.seed,
        "status": "finished" if bpb(run) is not None else "diverged",
        "origin": run.origin,
        "bpb": bpb(run),
        "parameters": evaluation["parameters"],
        "flops_per_token": evaluation["flops_per_token"],
        "steps": evaluation["steps"],
        "tokens": evaluation["train_tokens"],
        "flops": evaluation["flops"],
        "train_s": timing.get("train_s"),
        "tokens_per_s": _short(timing.get("tokens_per_s")),
        "mfu": _short(timing.get("mfu")),
        "first_loss": _short(record.get("first_loss")),
        "diverged_at": record.get("diverged_at"),
        "run_uid": evaluation["run_uid"],
        "run_id": run.run_id,
        "git_rev": provenance.get("git_rev"),
        "code_digest": provenance.get("code_digest"),
    }


def _point(row: Mapping[str, float]) -> dict[str, float | int | None]:
    values = {name: _short(row.get(name)) for name in CURVES}
    tokens = values["tokens"]
    return {**values, "tokens": None if tokens is None else int(tokens)}


def _csv(columns: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def _short(value: float | None) -> float | None:
    known = number(value)
    return None if known is None else float(f"{known:.6g}")
