"""The S1 recipe (B 64, T 256) on one GPU: this repository against nanoGPT's model eager and Llama compiled."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from measure import our_environment, peer_environment, workers
from modes import Mode
from shapes import common

SIDE_BY_SIDE = (2, 4)  # seeds at a time on the one GPU
BF16: dict[str, Any] = {"side": "ours", "precision": "bf16", "optimizer": "adamw"}
MODES: dict[str, dict[str, Any]] = {
    "nanoGPT eager": {"side": "nanogpt", "precision": "autocast", "compile": False},
    "Llama compiled": {"side": "llama", "precision": "autocast", "compile": True, "attention": "sdpa"},
    "ours eager": BF16 | {"compile": False},
    "ours compiled": BF16 | {"compile": True},
    "ours CUDA graphs": BF16 | {"compile": True, "compile_mode": "reduce-overhead"},
}


def measure(tokens: Path, cores: int, *, rounds: int, seconds: float) -> dict[str, Any]:
    """Tokens/s, MFU (of a bf16 matmul's measured peak), and hours of seeds an hour for several at once."""
    told = common("s1", tokens, batch_size=64)
    found: dict[str, Any] = {}
    with workers([mode | told for mode in MODES.values()], _environments(MODES.values(), cores)) as built:
        table = {name: Mode(name, [worker]) for name, worker in zip(MODES, built, strict=True)}
        working = [mode for mode in table.values() if mode.error is None]
        for _ in range(rounds):
            for mode in working:
                mode.measure(seconds)
        found["single"] = {name: mode.record() for name, mode in table.items()}
    ours = max((mode for mode in working if mode.name.startswith("ours")), key=lambda mode: mode.rate)
    peers = max(mode.rate for mode in working if not mode.name.startswith("ours"))
    facts = ours.group[0].ready
    found |= {
        "best_ours": ours.name,
        "ratio": ours.rate / peers,
        "mfu": ours.rate * facts["flops_per_token"] / facts["peak_flops"],
        "seeds": {},
    }
    for count in SIDE_BY_SIDE:
        with workers([MODES[ours.name] | told] * count, [our_environment(1)] * count) as built:
            mode = Mode(ours.name, built)
            if mode.error is None:
                for _ in range(rounds):
                    mode.measure(seconds)
            found["seeds"][str(count)] = mode.record()
    return found


def _environments(modes: Any, cores: int) -> list[dict[str, str]]:
    return [our_environment(1) if mode["side"] == "ours" else peer_environment(cores) for mode in modes]
