"""What a model is made of and whether it works as it should: `python -m isoflop.inspect <arm or run>`.

An arm of params.yaml is inspected with fresh weights (seed 0); a run (`base-0`, or its folder) and a folder imported
by `isoflop.convert` with the weights they hold. `--json` prints the same as JSON.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from isoflop import convert, paths
from isoflop.anatomy import causality, circuits, mean_nats, stages
from isoflop.config import ModelConfig
from isoflop.errors import IsoflopError
from isoflop.inspection import render
from isoflop.model import cost
from isoflop.model.gpt import GPT
from isoflop.params import Arm, load_params, resolve_arm
from isoflop.runs import open_run
from isoflop.schema import plain
from isoflop.stages import run
from isoflop.tokens import open_tokens

FLOAT32 = 4  # bytes
KNOWN = {"byte": 256, "gpt2": 50257}  # vocabularies; a bpe has exactly the size that its entry asks for
SAMPLE = 2048  # tokens on which the loss is measured, in at most 8 windows


@dataclass(frozen=True, kw_only=True)
class Subject:
    """What is inspected. `tokens` is the folder of its token files and the digest they must have, where known."""

    name: str
    kind: str  # arm | run | imported
    weights: str
    seed: int  # of the fresh weights that the initial loss is measured with
    model: GPT
    tokens: tuple[Path, str | None] | None


def find(name: str) -> Subject:
    """The arm, run or folder that `name` means. Raises IsoflopError that says what there is."""
    folder = Path(name)
    if (folder / convert.CONFIG).is_file():
        return Subject(
            name=name, kind="imported", weights="imported", seed=0, model=convert.read_imported(folder), tokens=None
        )
    if (folder / "run.json").is_file():
        return _run(folder)
    params = load_params(paths.PARAMS)
    if name in params.arms:
        return _arm(resolve_arm(params, name))
    if (paths.RUNS / name / "run.json").is_file():
        return _run(paths.RUNS / name)
    runs = ", ".join(sorted(path.parent.name for path in paths.RUNS.glob("*/run.json"))) or "none yet"
    raise IsoflopError(
        f"{name}: neither an arm of params.yaml ({', '.join(params.arms)}), nor a run in {paths.RUNS} ({runs}), nor a "
        f"folder with run.json or {convert.CONFIG}"
    )


def _arm(arm: Arm) -> Subject:
    config = ModelConfig(**vars(arm.model), vocab_size=arm.tokenizer_spec.vocab_size or KNOWN[arm.tokenizer_spec.kind])
    folder = paths.TOKENS / arm.tokenizer
    return Subject(
        name=arm.name, kind="arm", weights="fresh, seed 0", seed=0, model=fresh(config, 0), tokens=(folder, None)
    )


def _run(folder: Path) -> Subject:
    finished = open_run(folder, torch.device("cpu"))
    plan = finished.plan
    if finished.model is None:
        raise IsoflopError(
            f"{folder}: the run diverged and has no weights; `python -m isoflop.inspect {plan.arm}` shows its arm"
        )
    tokens = (paths.TOKENS / plan.tokenizer, plan.tokens_digest)
    return Subject(
        name=finished.name, kind="run", weights="trained", seed=finished.seed, model=finished.model, tokens=tokens
    )


def fresh(config: ModelConfig, seed: int) -> GPT:
    """The model as training begins with it, in evaluation mode."""
    model = GPT(config)
    model.initialise(seed)
    return model.eval()


def describe(subject: Subject, context: int | None = None) -> dict[str, Any]:
    """All of it as plain data; `context` is the length at which the KV cache is counted (default: block_size)."""
    model, config = subject.model, subject.model.config
    ids_T = random_ids(config, config.block_size)
    found = causality(model, ids_T)
    return {
        "name": subject.name,
        "kind": subject.kind,
        "weights": subject.weights,
        "model": plain(config),
        "parameters": parameters(model),
        "shapes": [{"stage": stage, "shape": list(shape)} for stage, shape in stages(model, ids_T[None])],
        "causality": plain(found) | {"causal": found.causal},
        "loss": loss(subject),
        "memory": memory(config, context or config.block_size),
        "circuits": [plain(circuit) for circuit in circuits(model)],
    }


def parameters(model: GPT) -> dict[str, Any]:
    """Counts and percentages by part; a tied head counts with the embedding."""
    table = cost.parameter_table(model.config)
    total = sum(parameter.numel() for parameter in model.parameters())
    assert total == sum(table.values())
    return {
        "total": total,
        "parts": {part: {"count": count, "percent": 100 * count / total} for part, count in table.items()},
        "flops_per_token": cost.flops_per_token(model.config),
    }


def memory(config: ModelConfig, context: int) -> dict[str, int]:
    """Bytes in float32: weights, and the KV cache of one sequence of `context` tokens.

    Raises IsoflopError for a context that the model cannot have.
    """
    if context < 1:
        raise IsoflopError(f"--context = {context}: must be at least 1 token")
    if config.positions == "learned" and context > config.block_size:
        raise IsoflopError(
            f"--context = {context}: goes beyond model.block_size = {config.block_size}, where the learned positions "
            "end; give a shorter one"
        )
    return {
        "weights": FLOAT32 * cost.parameters(config),
        "context": context,
        "kv_cache": cost.kv_cache_bytes(config, context, FLOAT32),
    }


def loss(subject: Subject) -> dict[str, Any]:
    """Nats per token of fresh weights beside ln V, the loss of a uniform guess; of trained ones on real text too."""
    config = subject.model.config
    ids_NT, source = windows(subject)
    model = subject.model if subject.kind == "arm" else fresh(config, subject.seed)
    return {
        "initial": mean_nats(model, ids_NT),
        "ln_v": math.log(config.vocab_size),
        "now": mean_nats(subject.model, ids_NT) if subject.kind == "run" and source != "random ids" else None,
        "tokens": ids_NT.shape[0] * (ids_NT.shape[1] - 1),
        "on": source,
    }


def windows(subject: Subject) -> tuple[Tensor, str]:
    """(N, T + 1) ids, evenly spaced in the val split where its tokens are there and fit, else random; and which."""
    config = subject.model.config
    t = config.block_size
    n = max(1, min(8, SAMPLE // t))
    if subject.tokens is not None:
        folder, digest = subject.tokens
        try:
            tokens = open_tokens(folder, digest)
        except IsoflopError:  # no tokens yet, or those of another corpus
            pass
        else:
            stream = tokens.split("val")
            if tokens.meta.vocab_size == config.vocab_size and len(stream) > t:
                starts = np.linspace(0, len(stream) - t - 1, n).astype(int)
                ids_NT = np.stack([stream[start : start + t + 1] for start in starts]).astype(np.int64)
                return torch.from_numpy(ids_NT), f"val of {folder}"
    return torch.stack([random_ids(config, t + 1, seed) for seed in range(n)]), "random ids"


def random_ids(config: ModelConfig, length: int, seed: int = 0) -> Tensor:
    """(length,) ids, uniform over the vocabulary."""
    return torch.randint(config.vocab_size, (length,), generator=torch.Generator().manual_seed(seed))


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m isoflop.inspect", description=__doc__)
    parser.add_argument("subject", metavar="arm-or-run", help="an arm, a run such as base-0, or a folder")
    parser.add_argument("--context", type=int, help="tokens at which the KV cache is counted (default: block_size)")
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    given = parser.parse_args(arguments)
    found = describe(find(given.subject), given.context)
    if given.json:
        print(json.dumps(found, indent=1, allow_nan=False))
    else:
        render(found)


if __name__ == "__main__":
    run(main)
