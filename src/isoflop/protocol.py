"""How an evaluation is made, as far as two of them must agree in it to be compared."""

from __future__ import annotations

from isoflop.config import EvalConfig
from isoflop.files import digest_of

RULE = "nats of all tokens incl. end-of-story / (ln 2 * story bytes); each token once; sliding window"


def protocol(config: EvalConfig) -> dict[str, str | float]:
    """What is scored and how; the arm's own block size and tokenizer are not part of it."""
    return {"split": "test", "stride": config.stride, "rule": RULE}


def protocol_hash(config: EvalConfig) -> str:
    """16 hex digits; equal for evaluations that may be compared."""
    return digest_of(protocol(config))
