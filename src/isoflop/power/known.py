"""Runs that stand already, wherever they are known: results by configuration, and how fast the last ones were."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from isoflop import paths
from isoflop.files import read_json
from isoflop.params import Params, resolve_arm
from isoflop.plan import Plan, make_plan
from isoflop.protocol import protocol, protocol_hash
from isoflop.tokens import read_meta
from isoflop.tracking.queries import FoundRun, all_runs

LAST = 8  # runs whose speed counts: enough to be steady, few enough to be of today's code and machine


@dataclass(frozen=True, kw_only=True)
class Speed:
    """How fast runs were trained."""

    flops_per_s: float
    source: str


@dataclass(frozen=True, kw_only=True)
class Known:
    """`results` is config_hash -> seed -> test bpb, None where the run diverged.

    `rates` are FLOPs per second, the latest run first; `rated` says of what they are.
    """

    results: Mapping[str, Mapping[int, float | None]] = field(default_factory=dict)
    rates: list[float] = field(default_factory=list)
    rated: str = "runs"

    def finished(self, plan: Plan) -> dict[int, float]:
        """Test bits per byte of the finished seeds of this configuration."""
        return {seed: bpb for seed, bpb in self.results.get(plan.config_hash, {}).items() if bpb is not None}

    def speed(self, flops_per_token: int, tokens_per_s: float | None) -> Speed | None:
        """Of the last runs (median), or the one given for a model of `flops_per_token`; None where nothing is known."""
        if tokens_per_s is not None:
            return Speed(flops_per_s=tokens_per_s * flops_per_token, source="given with --tokens-per-s")
        last = self.rates[:LAST]
        return Speed(flops_per_s=median(last), source=f"median of the last {len(last)} {self.rated}") if last else None


def plan_of(params: Params, name: str) -> Plan:
    """The arm against the tokens at hand; where there are none (a fresh clone), its plan as committed.

    Raises IsoflopError where neither fits.
    """
    arm = resolve_arm(params, name)
    folder, committed = paths.TOKENS / arm.tokenizer, paths.PLANS / f"{name}.yaml"
    if not (folder / "meta.json").is_file() and committed.is_file():
        plan = Plan.read(committed)
        shape = {key: getattr(plan.model, key) for key in vars(arm.model)}
        if (plan.tokenizer_spec, shape, plan.train) == (arm.tokenizer_spec, vars(arm.model), arm.train.config()):
            return plan
    return make_plan(arm, read_meta(folder))


def known_runs(params: Params) -> Known:
    """Runs on the stories of params.yaml's control, under its protocol: of the store, of git, of the reports.

    Of two results for one configuration and seed the store's latest counts.
    """
    data_digest = plan_of(params, params.report.control).data_digest
    root = paths.main_checkout()
    found: list[FoundRun] = []
    if os.environ.get("MLFLOW_TRACKING_URI") or (root / "mlflow.db").exists():  # else asking would make a store
        found = all_runs(root, data_digest=data_digest, protocol_hash=protocol_hash(params.eval))
    results: dict[str, dict[int, float | None]] = {}
    for each in found:
        results.setdefault(each.config_hash, {}).setdefault(each.seed, each.bpb)
    for config_hash, seed, bpb in (*_evaluations(params, data_digest), *_reports(params, data_digest)):
        results.setdefault(config_hash, {}).setdefault(seed, bpb)
    if rates := _rates(found):
        return Known(results=results, rates=rates)
    # A fresh clone: other people's machine is a better guess than none, where it is said.
    return Known(results=results, rates=list(_reported_rates()), rated="arms in reports, on the machine they ran on")


def _evaluations(params: Params, data_digest: str) -> Iterator[tuple[str, int, float | None]]:
    wanted = {"data_digest": data_digest, "protocol_hash": protocol_hash(params.eval)}
    for path in sorted(paths.EVALUATIONS.glob("*.json")):
        evaluation = _mapping(path)
        if all(evaluation.get(key) == value for key, value in wanted.items()) and "bpb" in evaluation:
            yield evaluation["config_hash"], evaluation["seed"], evaluation["bpb"]


def _reports(params: Params, data_digest: str) -> Iterator[tuple[str, int, float | None]]:
    for path in sorted(paths.REPORTS.glob("*/study.json")):
        study = _mapping(path)
        same = study.get("corpus", {}).get("data_digest") == data_digest
        if same and study.get("facts", {}).get("protocol") == protocol(params.eval):
            for arm in (*study["arms"], *study.get("aside", ())):
                yield from ((arm["config_hash"], each["seed"], each["bpb"]) for each in arm["runs"])


def _rates(found: list[FoundRun]) -> list[float]:
    """Of this workspace's runs, else of the store's: the latest first."""
    records = [_mapping(path) for path in paths.RUNS.glob("*/run.json")]
    records.sort(key=lambda record: str(record.get("timing", {}).get("started", "")), reverse=True)
    rates = [rate for record in records if (rate := _rate(record))]
    for each in found:
        if len(rates) >= LAST or records:
            break
        if rate := _rate(each.record or {}):
            rates.append(rate)
    return rates


def _reported_rates() -> Iterator[float]:
    """Means of the arms in the reports."""
    for path in sorted(paths.REPORTS.glob("*/study.json")):
        for cost in (arm.get("cost", {}) for arm in _mapping(path).get("arms", ())):
            if cost.get("train_s") and cost.get("measured"):
                yield cost["flops"] / cost["train_s"]


def _rate(record: dict[str, Any]) -> float | None:
    """None for a run that did not finish, was resumed, or says nothing of its time."""
    timing = record.get("timing", {})
    if record.get("status") != "finished" or not timing.get("train_s") or timing.get("resumed"):
        return None
    return float(record["flops"] / timing["train_s"])


def _mapping(path: Path) -> dict[str, Any]:
    """A JSON file, empty where it cannot be read: what is not known is not counted."""
    try:
        content = read_json(path)
    except (OSError, json.JSONDecodeError, UnicodeDecodeError):
        return {}
    return content if isinstance(content, dict) else {}
