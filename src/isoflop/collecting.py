"""Gather the runs of a study: from the workspace, from the MLflow store, from the commit an experiment began at.

Runs are comparable when the stories, the evaluation protocol and the compute budget (within 1 %) agree. What is
left out is listed with its reason.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from isoflop import git, paths
from isoflop.baseline import Baseline, changes_between, read_baseline
from isoflop.collected import Collected, CollectedArm, CollectedRun, Excluded, Role
from isoflop.errors import IsoflopError
from isoflop.files import read_json
from isoflop.params import Params, resolve_arm
from isoflop.plan import Plan, make_plan
from isoflop.protocol import protocol_hash
from isoflop.schema import plain
from isoflop.tokens import read_meta
from isoflop.tracking.contents import RunFiles, read_rows
from isoflop.tracking.queries import FoundRun, all_runs
from isoflop.tracking.sync import SyncResult, sync

BUDGET_TOLERANCE = 0.01


def collect(params: Params) -> Collected:
    """Bring the store up to date and gather all that is comparable with the control.

    Raises IsoflopError where params.yaml has arms without a plan: the pipeline has not run.
    """
    gathering = _Gathering(params, read_baseline())
    gathering.workspace()
    gathering.store()
    return gathering.result()


@dataclass
class _Group:
    """Runs of one configuration on their way to a CollectedArm."""

    name: str
    config: dict[str, Any]
    role: Role
    same_as: list[str] = field(default_factory=list)
    missing: list[int] = field(default_factory=list)
    runs: dict[int, CollectedRun] = field(default_factory=dict)


class _Gathering:
    def __init__(self, params: Params, baseline: Baseline) -> None:
        self.params, self.baseline = params, baseline
        self.root = paths.main_checkout()
        self.groups: dict[str, _Group] = {}  # by config_hash
        self.excluded: list[Excluded] = []
        self.plans = {name: Plan.read(paths.PLANS / f"{name}.yaml") for name in params.arms}
        self.data_digest = self.plans[params.report.control].data_digest
        self.protocol = protocol_hash(params.eval)
        self.synced: SyncResult = sync(self.root, list(self._run_files()))
        self.committed = self._committed_plans()

    # --- workspace

    def workspace(self) -> None:
        """Arms of params.yaml as it stands; two that resolve to one configuration are one."""
        committed = {plan.config_hash for plan in self.committed.values()}
        control = self.params.report.control
        for name in sorted(self.plans, key=lambda n: n != control):
            plan = self.plans[name]
            if plan.config_hash in self.groups:
                self.groups[plan.config_hash].same_as.append(name)
                continue
            planned = plan.config_hash in committed or not self.committed
            group = _Group(name, plan.config, "planned" if planned else "exploratory")
            self.groups[plan.config_hash] = group
            for seed in self.params.seeds:
                self._add_workspace_run(group, plan, seed)

    def _add_workspace_run(self, group: _Group, plan: Plan, seed: int) -> None:
        folder = paths.RUNS / f"{plan.arm}-{seed}"
        evaluation = _read(paths.EVALUATIONS / f"{plan.arm}-{seed}.json")
        record = _read(folder / "run.json")
        if evaluation is None or record is None:
            group.missing.append(seed)
            return
        reason = self._stale(plan, evaluation, record)
        if reason:
            self.excluded.append(Excluded(label=plan.arm, seed=seed, reason=reason))
            group.missing.append(seed)
            return
        link = self.synced.links.get(record["run_uid"])
        group.runs[seed] = CollectedRun(
            seed=seed,
            origin="workspace",
            evaluation=evaluation,
            record=record,
            history=_history(folder),
            run_id=link.run_id if link else None,
            experiment_id=link.experiment_id if link else None,
        )

    def _stale(self, plan: Plan, evaluation: dict[str, Any], record: dict[str, Any]) -> str | None:
        if evaluation.get("run_uid") != record.get("run_uid"):
            return "its evaluation belongs to another run of this arm and seed"
        if evaluation["config_hash"] != plan.config_hash or evaluation["data_digest"] != plan.data_digest:
            return "its evaluation belongs to another configuration or corpus"
        if evaluation["protocol_hash"] != self.protocol:
            return "it was evaluated by another protocol than params.yaml asks for"
        return None

    def _run_files(self) -> Iterator[RunFiles]:
        for name in self.params.arms:
            for seed in self.params.seeds:
                run = f"{name}-{seed}"
                if (paths.RUNS / run / "run.json").is_file():
                    yield RunFiles(
                        folder=paths.RUNS / run,
                        evaluation=paths.EVALUATIONS / f"{run}.json",
                        samples=paths.SAMPLES / f"{run}.md",
                    )

    # --- earlier runs

    def store(self) -> None:
        """Runs of this study in the MLflow store that the workspace does not have."""
        for found in all_runs(self.root, data_digest=self.data_digest, protocol_hash=self.protocol):
            if found.tags.get("study") == self.params.study.name and found.evaluation is not None:
                self._add_found(found, found.evaluation)

    def _add_found(self, found: FoundRun, evaluation: dict[str, Any]) -> None:
        group = self._group_of(evaluation)
        if evaluation["seed"] not in group.runs:
            group.runs[evaluation["seed"]] = CollectedRun(
                seed=evaluation["seed"],
                origin="store",
                evaluation=evaluation,
                record=found.record,
                history=found.history(),
                run_id=found.run_id,
                experiment_id=found.experiment_id,
            )

    def _group_of(self, evaluation: dict[str, Any]) -> _Group:
        key = evaluation["config_hash"]
        if key not in self.groups:
            self.groups[key] = _Group(evaluation["arm"], evaluation["config"], "earlier")
        return self.groups[key]

    # --- control

    def _committed_plans(self) -> dict[str, Plan]:
        """The committed arms, resolved against the tokens at hand; an arm whose tokens are not here is left out."""
        plans = {}
        for name in self.baseline.params.arms if self.baseline.params else ():
            assert self.baseline.params is not None
            arm = resolve_arm(self.baseline.params, name)
            try:
                plans[name] = make_plan(arm, read_meta(paths.TOKENS / arm.tokenizer), self.params.study.name)
            except IsoflopError:
                continue
        return plans

    def _control(self) -> tuple[str, str]:
        """config_hash of the control, and a sentence that says which it is."""
        own = self.params.report.control
        fallback = self.plans[own].config_hash
        if self.baseline.params is None:
            return fallback, f"The control is {own} as it stands ({self.baseline.problem})."
        name = self.baseline.params.report.control
        at = f"commit {self.baseline.rev[:8]}" if self.baseline.rev else "params.yaml as it stands"
        plan = self.committed.get(name)
        if plan is not None:
            group = self.groups.get(plan.config_hash)
            if group is None or not group.runs:
                self._from_commit(plan)
                group = self.groups.get(plan.config_hash)
            if group is not None and group.runs:
                origins = {run.origin for run in group.runs.values()}
                if origins == {"workspace"}:
                    # No hash of a commit here: the report must not change because it was committed.
                    return plan.config_hash, f"The control is {name} as committed; its runs come from this workspace."
                places = {"workspace": "this workspace", "store": "the MLflow store", "git": f"the evaluations in {at}"}
                where = " and ".join(places[origin] for origin in sorted(origins))
                return plan.config_hash, f"The control is {name} as of {at}; its runs come from {where}."
        return fallback, (
            f"The control is {own} as it stands: {name} as of {at} has no runs on these stories, "
            "under this protocol, here or in the store."
        )

    def _from_commit(self, plan: Plan) -> None:
        """The evaluations that were committed with the control: all that a fresh clone has of it."""
        if self.baseline.rev is None or self.baseline.params is None:
            return
        for seed in self.baseline.params.seeds:
            text = git.file_at(self.baseline.rev, paths.EVALUATIONS / f"{plan.arm}-{seed}.json")
            evaluation = json.loads(text) if text else None
            agrees = evaluation is not None and (
                evaluation["config_hash"] == plan.config_hash
                and evaluation["data_digest"] == self.data_digest
                and evaluation["protocol_hash"] == self.protocol
            )
            if evaluation is not None and agrees:
                self._group_of(evaluation).runs[seed] = CollectedRun(
                    seed=seed,
                    origin="git",
                    evaluation=evaluation,
                    record=None,
                    history=[],
                    run_id=None,
                    experiment_id=None,
                )

    # --- result

    def result(self) -> Collected:
        control_hash, note = self._control()
        control = self.groups[control_hash]
        control.role = "control"
        budget = self.plans[self.params.report.control].predicted.flops
        arms = [self._arm(control_hash, control, control)]
        for key, group in self.groups.items():
            if group is control:
                continue
            arm = self._arm(key, group, control)
            if group.role == "earlier" and not _same_budget(arm, control, budget):
                self.excluded += [
                    Excluded(label=arm.label, seed=run.seed, reason="it was trained with another compute budget")
                    for run in arm.runs
                ]
                continue
            arms.append(arm)
        order: dict[Role, int] = {"control": 0, "planned": 1, "exploratory": 2, "earlier": 3}
        meta = read_meta(paths.TOKENS / control.config["tokenizer"])
        return Collected(
            params=self.params,
            arms=sorted(arms, key=lambda arm: order[arm.role]),
            control_note=note,
            excluded=self.excluded,
            source=dict(meta.source),
            splits={name: plain(split) for name, split in meta.splits.items()},
            duplicates=dict(meta.duplicates),
            warnings=[self.synced.warning] if self.synced.warning else [],
            baseline_rev=self.baseline.rev,
            tracking_uri=self.synced.uri,
        )

    def _arm(self, key: str, group: _Group, control: _Group) -> CollectedArm:
        plan = next((p for p in self.plans.values() if p.config_hash == key), None)
        return CollectedArm(
            label=self.baseline.label(group.name, group.config),
            name=group.name,
            role=group.role,
            changes=changes_between(control.config, group.config),
            config=group.config,
            config_hash=key,
            predicted=plain(plan.predicted) if plan else _predicted(group),
            same_as=group.same_as,
            runs=[group.runs[seed] for seed in sorted(group.runs)],
            missing_seeds=group.missing,
        )


def _predicted(group: _Group) -> dict[str, Any]:
    evaluation = next(iter(group.runs.values())).evaluation
    predicted: dict[str, Any] = evaluation["predicted"]
    return predicted


def _same_budget(arm: CollectedArm, control: _Group, budget: float) -> bool:
    reference = next((run.evaluation["predicted"]["flops"] for run in control.runs.values()), budget)
    return bool(abs(arm.predicted["flops"] / reference - 1) <= BUDGET_TOLERANCE)


def _history(folder: Path) -> list[dict[str, float]]:
    rows: dict[int, dict[str, float]] = {}
    for name in ("history.csv", "timing.csv"):
        if (folder / name).is_file():
            for step, metrics in read_rows((folder / name).read_text(encoding="utf-8")):
                rows.setdefault(step, {"step": step}).update(metrics)
    return [rows[step] for step in sorted(rows)]


def _read(path: Path) -> dict[str, Any] | None:
    """A JSON file, or None where it is missing or half written."""
    try:
        return dict(read_json(path))
    except (OSError, ValueError):
        return None
