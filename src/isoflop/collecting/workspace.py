"""One run of this workspace: its files, read and checked against the plan of its arm."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from isoflop import paths
from isoflop.collected import CollectedRun
from isoflop.files import read_json
from isoflop.plan import Plan
from isoflop.tracking.contents import RunFiles, read_rows
from isoflop.tracking.sync import RunLink

# What the analysis reads. A file without one of them was cut short, or written by another version.
EVALUATION = (
    *("run_uid", "config_hash", "data_digest", "protocol_hash", "protocol", "status", "bpb", "floor_bpb", "flops"),
    *("steps", "train_tokens", "parameters", "flops_per_token", "config", "predicted", "seed", "arm"),
    *("bpb_by_position", "story_bits", "story_bytes"),
)
RECORD = ("run_uid", "status", "diverged_at", "first_loss", "machine", "provenance", "timing")


def run_files(arm: str, seed: int) -> RunFiles:
    """Where the files of a run lie."""
    run = f"{arm}-{seed}"
    return RunFiles(
        folder=paths.RUNS / run,
        evaluation=paths.EVALUATIONS / f"{run}.json",
        samples=paths.SAMPLES / f"{run}.md",
    )


def read_run(plan: Plan, seed: int, protocol_hash: str, links: Mapping[str, RunLink]) -> CollectedRun | str | None:
    """The run; or why it is not compared, as the end of a sentence; None where nothing of it is here."""
    files = run_files(plan.arm, seed)
    if not files.evaluation.exists() and not (files.folder / "run.json").exists():
        return None
    record = whole(_read(files.folder / "run.json"), RECORD)
    if record is None:
        return "its run.json is missing or half written"
    evaluation = whole(_read(files.evaluation), EVALUATION)
    if evaluation is None:
        return "its evaluation is missing or half written"
    if evaluation["run_uid"] != record["run_uid"]:
        return "its evaluation belongs to another run of this arm and seed"
    if evaluation["config_hash"] != plan.config_hash or evaluation["data_digest"] != plan.data_digest:
        return "its evaluation belongs to another configuration or corpus"
    if evaluation["protocol_hash"] != protocol_hash:
        return "it was evaluated by another protocol than params.yaml asks for"
    link = links.get(record["run_uid"])
    return CollectedRun(
        seed=seed,
        origin="workspace",
        evaluation=evaluation,
        record=record,
        history=_history(files.folder),
        run_id=link.run_id if link else None,
        experiment_id=link.experiment_id if link else None,
    )


def whole(content: dict[str, Any] | None, keys: tuple[str, ...]) -> dict[str, Any] | None:
    """The content of a JSON file, or None where it lacks something."""
    return content if content is not None and all(key in content for key in keys) else None


def _read(path: Path) -> dict[str, Any] | None:
    """A JSON file, or None where it is missing, half written or not a mapping."""
    try:
        content = read_json(path)
    except (OSError, ValueError):
        return None
    return content if isinstance(content, dict) else None


def _history(folder: Path) -> list[dict[str, float]]:
    """Rows of history.csv with those of timing.csv; none where they cannot be read: curves are not the result."""
    rows: dict[int, dict[str, float]] = {}
    for name in ("history.csv", "timing.csv"):
        try:
            for step, metrics in read_rows((folder / name).read_text(encoding="utf-8")):
                rows.setdefault(step, {"step": step}).update(metrics)
        except (OSError, ValueError, KeyError, TypeError):
            continue
    return [rows[step] for step in sorted(rows)]
