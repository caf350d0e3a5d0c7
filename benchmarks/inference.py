"""Evaluation and sampling, measured in one process with the threads that a run of a study has."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from measure import Worker, our_environment, quietly, spread, workers
from shapes import DEFAULT, common


@contextmanager
def trained(shape: str, tokens: Path, cores: int, seconds: float) -> Iterator[Worker]:
    """A worker with the settings of params.yaml whose model has been trained for `seconds`."""
    spec = DEFAULT | common(shape, tokens)
    with workers([spec], [our_environment(cores)]) as (worker,):
        if "error" in worker.ready:
            raise RuntimeError(worker.ready["error"])
        worker.ask("train", seconds=seconds)
        yield worker


def measure_evaluation(shape: str, tokens: Path, cores: int, *, repeats: int, train_s: float) -> dict[str, Any]:
    """Tokens/s, every token counted once, over the training step's in the same process; bf16 against float32."""
    with trained(shape, tokens, cores, train_s) as worker:
        rates: dict[str, list[float]] = {name: [] for name in ("train", "evaluate", "validate", "float32", "bf16")}
        bpb: dict[str, float] = {}
        others = []
        for _ in range(repeats):
            # Precisions first: between them and the test's score, the model must be the same.
            for name in ("float32", "bf16"):
                answer = quietly(worker, "bpb", precision=name)
                rates[name].append(answer["tokens"] / answer["seconds"])
                bpb[name] = answer["bpb"]
            answer = quietly(worker, "evaluate")
            rates["evaluate"].append(answer["tokens"] / answer["seconds"])
            processed = answer["processed"] / answer["tokens"]
            bpb["evaluate"] = answer["bpb"]
            answer = quietly(worker, "validate")
            rates["validate"].append(answer["tokens"] / answer["seconds"])
            answer = quietly(worker, "train", seconds=2.0)
            rates["train"].append(answer["tokens"] / answer["seconds"])
            others.append(answer["others"])
        found = {name: spread(values) for name, values in rates.items()}
        return {
            "ratio": found["evaluate"]["median"] / found["train"]["median"],
            "ratio_processed": processed * found["evaluate"]["median"] / found["train"]["median"],
            "validate_ratio": found["validate"]["median"] / found["train"]["median"],
            "others": max(others),
            "bpb": bpb,
            "bf16_bpb_difference": bpb["bf16"] - bpb["float32"],
            "tokens_per_s": found,
            **worker.ready,
        }


def measure_sampling(shape: str, tokens: Path, cores: int, *, repeats: int) -> dict[str, Any]:
    """Seconds per token with the cache, early and late, alone and in a batch, against computing all anew."""
    with trained(shape, tokens, cores, 1.0) as worker:
        found = quietly(worker, "sample", repeats=repeats, batch=32, tokens=32)
        return found | {
            "late_over_early": found["late"] / found["early"],
            "batch_speedup": found["early"] / found["batch"],
            "recompute_over_cache": found["recompute"] / found["late"],
            **worker.ready,
        }
