"""run.json: who a run is, what came out, and on what it was made."""

from __future__ import annotations

import hashlib
import os
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from isoflop import git
from isoflop.files import digest_of
from isoflop.machine import Machine
from isoflop.plan import Plan
from isoflop.runs import finite
from isoflop.schema import plain
from isoflop.training import Progress

if TYPE_CHECKING:
    from isoflop.occasion import Occasion

# Names, tags and the view that MLflow has of a run: a change there leaves the weights as they are.
WITHOUT_EFFECT = ("isoflop.tracking", "isoflop.occasion", "isoflop.params", "isoflop.baseline", "isoflop.git")


def run_key(plan: Plan, seed: int) -> str:
    """What the run computes: configuration, data and seed. Two runs with one key should agree."""
    return digest_of([plan.config_hash, plan.data_digest, plan.tokens_digest, seed])


def resume_key(plan: Plan, seed: int, machine: Machine) -> str:
    """What must agree for a checkpoint to continue a run to the same bits: also the code and the machine."""
    return digest_of([run_key(plan, seed), plain(plan.predicted), code_digest(), machine.describe()])


def code_digest() -> str:
    """Hash of the modules of this package that are loaded and can change the weights."""
    digest = hashlib.sha256()
    modules = {n: m for n, m in sys.modules.items() if n.startswith("isoflop") and getattr(m, "__file__", None)}
    for name in sorted(name for name in modules if not name.startswith(WITHOUT_EFFECT)):
        digest.update(name.encode() + b"\0" + Path(str(modules[name].__file__)).read_bytes())
    return digest.hexdigest()[:16]


def provenance() -> dict[str, Any]:
    """Git revision (null without git), whether the tree has changes, DVC's name for the experiment."""
    return {
        "git_rev": git.revision(),
        "git_dirty": git.is_dirty("src", "params.yaml"),
        "dvc_exp_name": os.environ.get("DVC_EXP_NAME") or None,
        "code_digest": code_digest(),
    }


def identity(plan: Plan, seed: int, run_uid: str, study: str, occasion: Occasion) -> dict[str, Any]:
    """The part of run.json that is known before the first step. `study` is the one the run was begun for."""
    return {
        "arm": plan.arm,
        "label": occasion.label,
        "seed": seed,
        "study": study,
        "run_uid": run_uid,
        "run_key": run_key(plan, seed),
        "config_hash": plan.config_hash,
        "data_digest": plan.data_digest,
        "tokens_digest": plan.tokens_digest,
        "changes": occasion.changes,
        "corpus": {"source": plan.corpus.source, "fallback": plan.corpus.fallback},
        "provenance": provenance(),
    }


def outcome(plan: Plan, progress: Progress, machine: Machine, started: datetime) -> dict[str, Any]:
    """The part of run.json that is known when the run has ended."""
    tokens = progress.step * plan.tokens_per_step
    seconds = progress.train_s
    speed = tokens / seconds if seconds > 0 else None
    return {
        "status": "finished" if progress.diverged_at is None else "diverged",
        "diverged_at": progress.diverged_at,
        "steps": progress.step,
        "tokens": tokens,
        "flops": float(tokens * plan.predicted.flops_per_token),
        "first_loss": finite(progress.first_loss),
        "final": {name: finite(progress.last(name)) for name in ("val/bpb", "train/loss")},
        "parameters": plan.predicted.parameters,
        "machine": machine.describe(),
        "timing": {
            "started": started.isoformat(timespec="milliseconds"),
            "ended": datetime.now(UTC).isoformat(timespec="milliseconds"),
            "train_s": round(seconds, 3),
            "eval_s": round(progress.eval_s, 3),
            "tokens_per_s": speed,
            "mfu": speed and speed * plan.predicted.flops_per_token / machine.peak_flops,
            "resumed": progress.resumed,
        },
    }
