"""One arm as plain data: its seeds, what it reached, what it cost."""

from __future__ import annotations

from itertools import pairwise
from statistics import median
from typing import Any

from isoflop.analysis.values import bpb, finished, last_val, mean, number, spread
from isoflop.collected import CollectedArm, CollectedRun
from isoflop.config import ModelConfig
from isoflop.model.cost import kv_cache_bytes_per_token

FLOAT32 = 4  # bytes: weights are saved in float32, and the KV cache is counted in it for every arm


def describe_arm(label: str, arm: CollectedArm, control: CollectedArm) -> dict[str, Any]:
    """Everything about one arm but its comparison. Missing seeds are those without any run."""
    seeds = {run.seed for run in arm.runs}
    values = spread(arm)
    floor = number(arm.runs[0].evaluation["floor_bpb"]) if arm.runs else None
    return {
        "label": label,
        "name": arm.name,
        "role": arm.role,
        "changes": arm.changes,
        "same_as": arm.same_as,
        "config_hash": arm.config_hash,
        "config": arm.config,
        "bpb": {"n": values.n, "mean": values.mean, "sd": values.sd},
        "excess": None if values.mean is None or floor is None else values.mean - floor,
        "diverged": [_diverged(run) for run in arm.runs if bpb(run) is None],
        "missing": [seed for seed in arm.missing_seeds if seed not in seeds],
        "predicted": dict(arm.predicted),
        "cost": _cost(arm, control),
        "stability": _stability(arm),
        "runs": [_run(run) for run in arm.runs],
    }


def flops_of(arm: CollectedArm) -> float:
    """Training FLOPs of a complete run; as planned where no run is complete."""
    runs = finished(arm)
    return float(runs[0].evaluation["flops"]) if runs else float(arm.predicted["flops"])


def _cost(arm: CollectedArm, control: CollectedArm) -> dict[str, Any]:
    """Compute and the other currencies. Times and speeds are means over the finished runs whose record is known."""
    runs = finished(arm)
    timing = [run.record["timing"] for run in runs if run.record]
    seen = runs[0].evaluation if runs else {}
    return {
        "measured": bool(runs),
        "parameters": seen.get("parameters", arm.predicted["parameters"]),
        "flops_per_token": seen.get("flops_per_token", arm.predicted["flops_per_token"]),
        "steps": seen.get("steps", arm.predicted["steps"]),
        "tokens": seen.get("train_tokens", arm.predicted["tokens"]),
        "flops": flops_of(arm),
        "flops_ratio": flops_of(arm) / flops_of(control),
        "kv_cache_bytes": _kv_cache(arm),
        "weights_mb": arm.predicted["parameters"] * FLOAT32 / 1e6,
        "train_s": mean([number(t["train_s"]) for t in timing]),
        "eval_s": mean([number(t["eval_s"]) for t in timing]),
        "tokens_per_s": mean([number(t["tokens_per_s"]) for t in timing]),
        "mfu": mean([number(t["mfu"]) for t in timing]),
        "peak_flops": mean([number(run.record["machine"]["peak_flops"]) for run in runs if run.record]),
        "first_loss": mean([number(run.record["first_loss"]) for run in runs if run.record]),
    }


def _kv_cache(arm: CollectedArm) -> int | None:
    """None for a model of the store that this code no longer describes."""
    try:
        return kv_cache_bytes_per_token(ModelConfig(**arm.config["model"]), FLOAT32)
    except TypeError:
        return None


def _stability(arm: CollectedArm) -> dict[str, Any]:
    """Gradient norms (before clipping) and loss rises over the rows after warmup, all finished seeds together."""
    train = arm.config["train"]
    norms: list[float] = []
    rises: list[float] = []
    for run in finished(arm):
        rows = [row for row in run.history if row["step"] > train["warmup_steps"]]
        norms += _column(rows, "train/grad_norm")
        losses = _column(rows, "train/loss")
        rises += [after - before for before, after in pairwise(losses)]
    clip = train["grad_clip"]
    return {
        "rows": len(norms),
        "grad_norm_median": median(norms) if norms else None,
        "grad_norm_max": max(norms, default=None),
        "clipped": sum(norm > clip for norm in norms) / len(norms) if norms and clip else None,
        "largest_rise": max([0.0, *rises]) if rises else None,
    }


def _column(rows: list[dict[str, float]], name: str) -> list[float]:
    return [value for row in rows if (value := number(row.get(name))) is not None]


def _diverged(run: CollectedRun) -> dict[str, Any]:
    step = run.record["diverged_at"] if run.record else None
    return {"seed": run.seed, "step": step, "last_bpb": last_val(run)}


def _run(run: CollectedRun) -> dict[str, Any]:
    evaluation, record = run.evaluation, run.record
    value = bpb(run)
    facts = {
        "seed": run.seed,
        "origin": run.origin,
        "status": "finished" if value is not None else "diverged",
        "bpb": value,
        "val_bpb": last_val(run),
        "run_uid": evaluation["run_uid"],
        "run_id": run.run_id,
        "experiment_id": run.experiment_id,
        "flops": number(evaluation["flops"]),
    }
    if record is None:
        return facts | {"record": None}
    return facts | {
        "record": {
            **record["provenance"],
            "diverged_at": record["diverged_at"],
            "machine": record["machine"],
            "started": record["timing"]["started"],
            "resumed": record["timing"]["resumed"],
            "train_s": number(record["timing"]["train_s"]),
            "tokens_per_s": number(record["timing"]["tokens_per_s"]),
            "mfu": number(record["timing"]["mfu"]),
            "first_loss": number(record["first_loss"]),
        }
    }
