"""evaluate@ARM-SEED: exact bits per byte of a finished run on the test split."""

from __future__ import annotations

import sys
import time
from typing import Any

import numpy as np

from isoflop import paths
from isoflop.config import EvalConfig
from isoflop.evaluation import Score, score, token_nats
from isoflop.files import write_json
from isoflop.machine import default_device
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
    result = None if finished.model is None else evaluate(finished, tokens, config)
    record = describe(finished, tokens, config, result, seconds=time.perf_counter() - start)
    write_json(paths.EVALUATIONS / f"{finished.name}.json", record)
    print(f"{finished.name}: " + ("diverged" if record["bpb"] is None else f"{record['bpb']:.4f} bits per byte"))


def evaluate(finished: FinishedRun, tokens: TokenSet, config: EvalConfig) -> Score:
    """Score the test split. Raises AssertionError if the tokens do not add up to the split's bytes."""
    assert finished.model is not None
    stream, meta = np.asarray(tokens.split("test")), tokens.meta
    stride = max(1, int(finished.plan.model.block_size * config.stride))
    nats = token_nats(finished.model, stream, stride=stride, batch_size=config.batch_size)
    result = score(nats, stream, np.asarray(meta.token_bytes, np.int32), meta.eos)
    assert result.bytes == meta.splits["test"].bytes, "token lengths must add up to the bytes of the split"
    return result


def describe(
    finished: FinishedRun, tokens: TokenSet, config: EvalConfig, result: Score | None, *, seconds: float
) -> dict[str, Any]:
    """The content of experiments/eval/<arm>-<seed>.json."""
    plan, record, test = finished.plan, finished.record, tokens.meta.splits["test"]
    whole = result is not None and finite(result.nats) is not None
    return {
        **{key: record[key] for key in ("arm", "seed", "study", "run_uid", "run_key", "config_hash")},
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
        "changes": plan.changes,
        "config": plan.config,
        "predicted": plain(plan.predicted),
        "flops": record["flops"],
        "steps": record["steps"],
        "train_tokens": record["tokens"],
        "parameters": record["parameters"],
        "flops_per_token": plan.predicted.flops_per_token,
        "eval_s": round(seconds, 3),
    }


if __name__ == "__main__":
    run(main)
