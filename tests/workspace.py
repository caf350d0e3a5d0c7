"""A working folder as the pipeline leaves it behind `evaluate`: real files, small, known in their numbers."""

from __future__ import annotations

import csv
import math
import shutil
import subprocess
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from isoflop import paths
from isoflop.baseline import read_baseline
from isoflop.files import digest_of, read_json, write_json, write_text
from isoflop.params import Params, parse_params, resolve_arm
from isoflop.plan import Plan, make_plan
from isoflop.protocol import protocol, protocol_hash
from isoflop.recorder import HISTORY, TIMING
from isoflop.tokens import SplitMeta, TokenMeta, write_meta
from studies import make_study, one_run

GIT = ("git", "-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "commit.gpgsign=false")


class Workspace:
    """params.yaml, tokens, plans and runs under `root`, which must be the working directory."""

    def __init__(self, root: Path, text: str) -> None:
        self.root = root
        self.params = self.set_params(text)

    def set_params(self, text: str) -> Params:
        """Another params.yaml, with the plans of its arms."""
        write_text(self.root / paths.PARAMS, text)
        self.params = parse_params(text, "params.yaml")
        write_meta(self.root / paths.TOKENS / "byte" / "meta.json", token_meta())
        for name in self.params.arms:
            self.plan(name).write(self.root / paths.PLANS / f"{name}.yaml")
        return self.params

    def plan(self, name: str) -> Plan:
        return make_plan(resolve_arm(self.params, name), token_meta())

    def commit(self) -> str:
        """Commit everything but the runs; the hash of the commit."""
        if not (self.root / ".git").is_dir():
            subprocess.run([*GIT, "init", "-q"], cwd=self.root, check=True)
            write_text(self.root / ".gitignore", "/experiments/runs\n/data\n/mlflow.db*\n/mlartifacts\n")
        subprocess.run([*GIT, "add", "-A"], cwd=self.root, check=True)
        subprocess.run([*GIT, "commit", "-qm", "x", "--allow-empty"], cwd=self.root, check=True)
        done = subprocess.run([*GIT, "rev-parse", "HEAD"], cwd=self.root, check=True, capture_output=True, text=True)
        return done.stdout.strip()

    def run(
        self,
        arm: str,
        seed: int,
        bpb: float | None = 1.5,
        *,
        uid: str | None = None,
        started: str | None = None,
        val: float | None = None,
        evaluation: Mapping[str, Any] | None = None,
    ) -> str:
        """A run of the arm as planned, with its evaluation (None for bpb: diverged). Its uid.

        `val` is the last val bpb of its history, `evaluation` replaces values of its evaluation.
        """
        plan, made = self.plan(arm), one_run(self.params, arm, seed, 1.5 if bpb is None else bpb)
        assert made.record is not None
        uid = uid or digest_of([arm, seed, plan.config_hash, bpb], 32)
        identity = {"arm": arm, "seed": seed, "run_uid": uid}
        identity |= {"config_hash": plan.config_hash, "run_key": digest_of([plan.config_hash, seed])}
        identity |= {"data_digest": plan.data_digest, "tokens_digest": plan.tokens_digest}
        record, scored = made.record | identity, made.evaluation | identity
        record |= {"study": self.params.study.name, "changes": self.params.arms[arm]}
        record |= {"label": read_baseline().label(arm, plan.config)}
        scored |= {"protocol": protocol(self.params.eval), "protocol_hash": protocol_hash(self.params.eval)}
        if started:
            record["timing"] = record["timing"] | {"started": started, "ended": started}
        if bpb is None:
            record |= {"status": "diverged", "diverged_at": 40}
            scored |= {"status": "diverged", "bpb": None, "bits": None, "nats": None}
            scored |= {"bpb_by_position": [], "story_bits": [], "story_bytes": []}
        rows = [dict(row) for row in made.history]
        if val is not None:
            rows[-1]["val/bpb"] = val
        folder = self.root / paths.RUNS / f"{arm}-{seed}"
        write_text(folder / "config.yaml", plan.to_yaml(seed=seed))
        _write_rows(folder / "history.csv", HISTORY, rows)
        _write_rows(folder / "timing.csv", TIMING, rows)
        write_json(folder / "run.json", record)
        write_json(self.evaluation(arm, seed), scored | dict(evaluation or {}))
        return uid

    def evaluation(self, arm: str, seed: int) -> Path:
        return self.root / paths.EVALUATIONS / f"{arm}-{seed}.json"

    def remove(self, arm: str, seed: int) -> None:
        """Delete a run's files; the store keeps what it has."""
        shutil.rmtree(self.root / paths.RUNS / f"{arm}-{seed}", ignore_errors=True)
        self.evaluation(arm, seed).unlink(missing_ok=True)

    def record(self, arm: str, seed: int) -> Path:
        return self.root / paths.RUNS / f"{arm}-{seed}" / "run.json"

    def change(self, path: Path, **fields: Any) -> None:
        """Replace values of a JSON file."""
        write_json(path, read_json(path) | fields)


@cache
def token_meta() -> TokenMeta:
    """meta.json of the byte tokenizer, with the splits of the made-up studies."""
    study = make_study({"base": {}}, [0])
    splits = {
        name: SplitMeta(**{key: split.get(key, "0" * 64) for key in SplitMeta.__dataclass_fields__})
        for name, split in study.splits.items()
    }
    return TokenMeta(
        name="byte",
        kind="byte",
        vocab_size=256,
        eos=255,
        dtype="uint8",
        token_bytes=np.array([1] * 255 + [0], np.int32),
        tokens_digest="e" * 64,
        data_digest="d" * 64,
        splits=splits,
        duplicates=study.duplicates,
        skipped={},
        source=study.source,
    )


def _write_rows(path: Path, columns: tuple[str, ...], rows: list[dict[str, float]]) -> None:
    with path.open("w", newline="") as handle:
        writer = csv.writer(handle, lineterminator="\n")
        writer.writerow(["step", *columns])
        for row in rows:
            values = (row.get(name) for name in columns)
            writer.writerow([int(row["step"]), *("" if v is None or math.isnan(v) else v for v in values)])
