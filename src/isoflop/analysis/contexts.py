"""Bits per byte of an arm at the further contexts that `eval.contexts` asks for."""

from __future__ import annotations

from typing import Any

from isoflop.analysis.values import finished
from isoflop.collected import CollectedArm
from isoflop.statistics.intervals import noise_floor


def by_context(arm: CollectedArm) -> list[dict[str, Any]]:
    """Mean and sd over seeds at each context, shortest first; nothing where none was asked for.

    `scaling` says how rotations were stretched beyond the trained context.
    """
    found: dict[tuple[int, str], dict[int, float]] = {}
    for run in finished(arm):
        for entry in run.evaluation.get("bpb_by_context", []):
            if entry["bpb"] is not None:
                found.setdefault((entry["context"], entry["scaling"]), {})[run.seed] = entry["bpb"]
    told = []
    for (context, scaling), values in sorted(found.items()):
        noise = noise_floor(values)
        told.append({"context": context, "scaling": scaling, "bpb": noise.mean, "sd": noise.sd, "n": noise.n})
    return told
