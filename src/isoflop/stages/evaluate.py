"""evaluate@ARM-SEED: exact bits per byte of a finished run on the test split."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from typing import Any

import numpy as np

from isoflop import paths
from isoflop.config import EvalConfig
from isoflop.evaluation import Score, score, token_nats
from isoflop.files import write_json
from isoflop.machine import default_device
from isoflop.model.gpt import GPT
from isoflop.params import load_params
from isoflop.protocol import protocol, protocol_hash
from isoflop.runs import FinishedRun, finite, open_run
from isoflop.schema import plain
from isoflop.stages import run
from isoflop.tokens import TokenSet, open_tokens


def main() -> None:
    arm, seed = sys.argv[1], int(sys.argv[2])
    config = load_params(paths.PARAMS).eval
    finished = open_run(paths.RUNS / f"{arm}-{seed}", default_device())
    tokens = open_tokens(paths.TOKENS / finished.plan.tokenizer, finished.plan.tokens_digest)
    start = time.perf_counter()
    result = None if finished.model is None else evaluate(finished.model, tokens, config)
    contexts = [] if finished.model is None else list(by_context(finished.model, tokens, config))
    record = describe(finished, tokens, config, result)
    write_json(paths.EVALUATIONS / f"{finished.name}.json", record | {"bpb_by_context": contexts})
    found = "diverged" if record["bpb"] is None else f"{record['bpb']:.4f} bits per byte"
    print(f"{finished.name}: {found} ({time.perf_counter() - start:.1f} s)")


def evaluate(model: GPT, tokens: TokenSet, config: EvalConfig) -> Score:
    """Score the test split at the model's context. Raises AssertionError if the tokens miss bytes of the split."""
    stream, meta = np.asarray(tokens.split("test")), tokens.meta
    stride = max(1, int(model.context * config.stride))
    nats = token_nats(model, stream, stride=stride, batch_size=config.batch_size)
    result = score(nats, stream, np.asarray(meta.token_bytes, np.int32), meta.eos)
    assert result.bytes == meta.splits["test"].bytes, "token lengths must add up to the bytes of the split"
    return result


def by_context(model: GPT, tokens: TokenSet, config: EvalConfig) -> Iterator[dict[str, Any]]:
    """The same split at each of `eval.contexts`, rotations stretched by `eval.rope_scaling` beyond block_size."""
    for context in config.contexts:
        longer = context > model.config.block_size and model.config.positions == "rope"
        scaling = config.rope_scaling if longer else "none"
        model.stretch(context, scaling)
        yield {"context": context, "scaling": scaling, "bpb": finite(evaluate(model, tokens, config).bpb)}


def describe(finished: FinishedRun, tokens: TokenSet, config: EvalConfig, result: Score | None) -> dict[str, Any]:
    """The content of experiments/eval/<arm>-<seed>.json. It is in git: the same run gives the same bytes, no times."""
    plan, record, test = finished.plan, finished.record, tokens.meta.splits["test"]
    whole = result is not None and finite(result.nats) is not None
    return {
        **{key: record[key] for key in ("arm", "seed", "run_uid", "run_key", "config_hash")},
        "data_digest": plan.data_digest,
        "tokens_digest": plan.tokens_digest,
        "status": record["status"] if whole else "diverged",
        "protocol": protocol(config),
        "protocol_hash": protocol_hash(config),
        "context": plan.model.block_size,
        "bpb": result.bpb if result and whole else None,
        "bits": result.bits if result and whole else None,
        "nats": result.nats if result and whole else None,
        "tokens": test.tokens,
        "bytes": test.bytes,
        "stories": test.stories,
        "floor_bpb": None if test.floor_bits is None else test.floor_bits / test.bytes,
        "bpb_by_position": result.by_position if result and whole else [],
        "story_bits": [round(float(b), 4) for b in result.story_bits] if result and whole else [],
        "story_bytes": [int(b) for b in result.story_bytes] if result and whole else [],
        "tokenizer": plan.tokenizer,
        "config": plan.config,
        "predicted": plain(plan.predicted),
        "flops": record["flops"],
        "steps": record["steps"],
        "train_tokens": record["tokens"],
        "parameters": record["parameters"],
        "flops_per_token": plan.predicted.flops_per_token,
    }


if __name__ == "__main__":
    run(main)
