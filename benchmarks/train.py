"""Tokens/s of the training step, one process and a whole study, against Hugging Face Llama in all of its modes."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from measure import our_environment, peer_environment, workers
from modes import Effort, Mode, final, heat, in_the_running
from shapes import DEFAULT, OUR_MODES, PEER_MODES, common

QUICK_PEERS = ("float32 eager sdpa", "float32 compiled sdpa", "autocast compiled explicit", "autocast eager explicit")
QUICK_OURS = ("float32 eager", "bf16 eager", "bf16 compiled")
# Modes are built and compared first in heats, by precision: all of them at once would not fit into memory.
HEATS = {"float32": 0, "autocast": 1, "bf16": 1, "pure-bf16": 2}
OUR_DEFAULT = "ours: default"


def measure(shape: str, tokens: Path, effort: Effort, cores: int) -> dict[str, Any]:
    """Both ratios of one shape, and every figure behind them."""
    specs = chosen(shape, tokens, effort)
    table = measure_single(specs, effort, cores)
    best_peer, best_ours = best(table, "peer: "), best(table, "ours: ", without=OUR_DEFAULT)
    single = {name: mode.record() for name, mode in table.items()}
    together = measure_study(specs, best_peer, best_ours, effort, cores)
    study = {name: mode.record() for name, mode in together.items()}
    rates = {name: mode.rate for name, mode in table.items()}
    # The peer's one process in its better hour: beside idle workers it was seen to fall behind its own single figure.
    one = max(together["peer, one process"].rate, rates[best_peer])
    return {
        "single_ratio": rates[best_ours] / rates[best_peer],
        "study_ratio": together[best_ours].rate / one,
        "study_ratio_to_parallel_peer": together[best_ours].rate / together[best_peer].rate,
        "single_ratio_default": rates[OUR_DEFAULT] / rates[best_peer],
        "study_ratio_default": together[OUR_DEFAULT].rate / one,
        "best_peer": best_peer,
        "best_ours": best_ours,
        "batch_share": {"single": single[best_ours]["batch_share"], "study": study[best_ours]["batch_share"]},
        "others": max(record["others"] for record in [*single.values(), *study.values()] if "others" in record),
        "single": single,
        "study": study,
    }


def chosen(shape: str, tokens: Path, effort: Effort) -> dict[str, dict[str, Any]]:
    """Name and worker's specification of each mode that this effort is for."""
    told = common(shape, tokens)
    found = {}
    for side, modes, quick in (("peer", PEER_MODES, QUICK_PEERS), ("ours", OUR_MODES, QUICK_OURS)):
        for name, mode in modes.items():
            if (name in quick or not effort.quick) and not (effort.eager and mode["compile"]):
                found[f"{side}: {name}"] = mode | told
    return found | {OUR_DEFAULT: DEFAULT | told}


def measure_single(specs: Mapping[str, dict[str, Any]], effort: Effort, cores: int) -> dict[str, Mode]:
    """Every mode in one process with all cores: heats, then the best together."""
    table: dict[str, Mode] = {}
    kept: list[Mode] = []
    with ExitStack() as stack:
        for number in sorted({_heat_of(spec) for spec in specs.values()}):
            names = [name for name, spec in specs.items() if _heat_of(spec) == number]
            environments = [our_environment(1) if n.startswith("ours") else peer_environment(cores) for n in names]
            built = stack.enter_context(workers([specs[name] for name in names], environments))
            modes = [Mode(name, [worker]) for name, worker in zip(names, built, strict=True)]
            heat(modes, effort)
            table |= {mode.name: mode for mode in modes}
            kept = in_the_running([*kept, *modes], always=[OUR_DEFAULT])
        final(kept, effort)
    return table


def _heat_of(spec: Mapping[str, Any]) -> int:
    return HEATS.get(spec.get("precision", ""), max(HEATS.values()))


def best(table: Mapping[str, Mode], side: str, without: str = "") -> str:
    """Name of the fastest mode of a side."""
    return max((n for n in table if n.startswith(side) and n != without), key=lambda name: table[name].rate)


def measure_study(
    specs: Mapping[str, dict[str, Any]], peer: str, ours: str, effort: Effort, cores: int
) -> dict[str, Mode]:
    """As many one-thread processes as there are cores, all at the same time: how the engine runs a study.

    The peer's best single process, which has all cores, runs in the same rounds; it is what the ratio is over.
    """
    groups: dict[str, Sequence[tuple[dict[str, Any], dict[str, str]]]] = {
        "peer, one process": [(specs[peer], peer_environment(cores))],
        peer: [(specs[peer], peer_environment(1))] * cores,
        ours: [(specs[ours], our_environment(cores))] * cores,
        OUR_DEFAULT: [(specs[OUR_DEFAULT], our_environment(cores))] * cores,
    }
    flat = [item for group in groups.values() for item in group]
    with workers([spec for spec, _ in flat], [environment for _, environment in flat]) as built:
        waiting = iter(built)
        table = {name: Mode(name, [next(waiting) for _ in group]) for name, group in groups.items()}
        for mode in table.values():
            if mode.error is not None:
                raise RuntimeError(f"{mode.name}: {mode.error}")
        heat(list(table.values()), dataclasses.replace(effort, heat_rounds=0))
        final(list(table.values()), effort)
    return table
