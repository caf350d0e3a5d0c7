"""All runs of a study, sorted into arms, and which of them is the control."""

from __future__ import annotations

import json

from isoflop import git, paths
from isoflop.baseline import Baseline, read_baseline
from isoflop.collected import Collected, CollectedArm, CollectedRun, Excluded, Role
from isoflop.collecting.earlier import complete, earlier_groups, same_budget
from isoflop.collecting.groups import Group
from isoflop.collecting.workspace import EVALUATION, read_run, run_files, whole
from isoflop.errors import IsoflopError
from isoflop.params import Params, resolve_arm
from isoflop.plan import Plan, make_plan
from isoflop.protocol import protocol_hash
from isoflop.schema import plain
from isoflop.tokens import read_meta
from isoflop.tracking.queries import all_runs
from isoflop.tracking.sync import SyncResult, sync

ORDER: dict[Role, int] = {"control": 0, "planned": 1, "exploratory": 2, "earlier": 3}


def collect(params: Params) -> Collected:
    """Bring the store up to date and gather all that is comparable with the control.

    Raises IsoflopError where params.yaml has arms without a plan: the pipeline has not run.
    """
    gathering = _Gathering(params, read_baseline())
    gathering.workspace()
    gathering.store()
    return gathering.result()


class _Gathering:
    def __init__(self, params: Params, baseline: Baseline) -> None:
        self.params, self.baseline = params, baseline
        self.root = paths.main_checkout()
        self.groups: dict[str, Group] = {}  # by config_hash
        self.excluded: list[Excluded] = []
        self.plans = {name: Plan.read(paths.PLANS / f"{name}.yaml") for name in params.arms}
        self.data_digest = self.plans[params.report.control].data_digest
        self.protocol = protocol_hash(params.eval)
        files = [run_files(name, seed) for name in params.arms for seed in params.seeds]
        self.synced: SyncResult = sync(self.root, [each for each in files if (each.folder / "run.json").is_file()])
        self.committed = self._committed_plans()
        self.note = ""

    def _committed_plans(self) -> dict[str, Plan]:
        """The committed arms, resolved against the tokens at hand; an arm whose tokens are not here is left out."""
        plans = {}
        for name in self.baseline.params.arms if self.baseline.params else ():
            assert self.baseline.params is not None
            arm = resolve_arm(self.baseline.params, name)
            try:
                plans[name] = make_plan(arm, read_meta(paths.TOKENS / arm.tokenizer))
            except IsoflopError:
                continue
        return plans

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
            role: Role = "planned" if planned else "exploratory"
            group = Group.of_plan(plan, role, self.params.seeds, committed=planned)
            self.groups[plan.config_hash] = group
            for seed in self.params.seeds:
                self._add_workspace_run(group, plan, seed)

    def _add_workspace_run(self, group: Group, plan: Plan, seed: int) -> None:
        run = read_run(plan, seed, self.protocol, self.synced.links)
        if isinstance(run, CollectedRun):
            group.runs[seed] = run
            return
        group.missing.append(seed)
        if run is not None:
            self.excluded.append(Excluded(label=plan.arm, seed=seed, reason=run))

    # --- the store and the commit

    def store(self) -> None:
        """Runs that the workspace lacks: of its own configurations and the control's, then earlier ones of the study.

        A configuration is the same in every study, so its runs may come from any (this one's first);
        configurations that nobody asked for come from this study only.
        """
        found = all_runs(self.root, data_digest=self.data_digest, protocol_hash=self.protocol)
        ours = [each for each in found if each.tags.get("study") == self.params.study.name]
        wanted = self._committed_control()
        self.excluded += complete(self.groups, ours)
        complete(self.groups, found)
        if wanted is not None:
            self._fill_from_commit(wanted)
        control = self._choose_control(wanted)
        committed = {plan.config_hash for plan in self.committed.values()}
        earlier, excluded = earlier_groups(ours, self.groups, control.predicted.flops, committed)
        self.groups |= earlier
        self.excluded += excluded
        self.groups[control.config_hash].role = "control"

    def _committed_control(self) -> Plan | None:
        """Plan of the committed control, for which there is a group from now on; None where it has none.

        Where no arm of params.yaml stands for it any more, all its committed seeds tell how far chance moves a run;
        missing is still only what params.yaml asks for now.
        """
        if self.baseline.params is None:
            return None
        plan = self.committed.get(self.baseline.params.report.control)
        if plan is not None and plan.config_hash not in self.groups:
            seeds = {*self.params.seeds, *self.baseline.params.seeds}
            group = Group.of_plan(plan, "control", seeds, committed=True)
            group.missing = list(self.params.seeds)
            self.groups[plan.config_hash] = group
        return plan

    def _fill_from_commit(self, plan: Plan) -> None:
        """Seeds of the control that neither workspace nor store has: a fresh clone has their evaluations in git."""
        assert self.baseline.params is not None
        group = self.groups[plan.config_hash]
        for seed in self.baseline.params.seeds:
            if seed in group.seeds and seed not in group.runs and (run := self._from_commit(plan, seed)):
                group.runs[seed] = run

    def _choose_control(self, wanted: Plan | None) -> Plan:
        """The committed control where it has runs, else the control as it stands; `note` says which."""
        own = self.plans[self.params.report.control]
        if self.baseline.params is None:
            self.note = f"The control is {own.arm} as it stands ({self.baseline.problem})."
            return own
        name = self.baseline.params.report.control
        at = f"commit {self.baseline.rev[:8]}" if self.baseline.rev else "params.yaml as it stands"
        other_budget = wanted is not None and not same_budget(wanted.predicted.flops, own.predicted.flops)
        if wanted is None or other_budget or not self.groups[wanted.config_hash].runs:
            if wanted is not None and all(wanted.config_hash != plan.config_hash for plan in self.plans.values()):
                del self.groups[wanted.config_hash]
            why = "was given another compute budget" if other_budget else (
                "has no runs on these stories, under this protocol, here or in the store"
            )  # fmt: skip
            self.note = f"The control is {own.arm} as it stands: {name} as of {at} {why}."
            return own
        origins = self.groups[wanted.config_hash].origins()
        if origins == ["workspace"]:
            # No hash of a commit here: the report must not change because it was committed.
            self.note = f"The control is {name} as committed; its runs come from this workspace."
        else:
            places = {"workspace": "this workspace", "store": "the MLflow store", "git": f"the evaluations in {at}"}
            where = " and ".join(places[origin] for origin in origins)
            self.note = f"The control is {name} as of {at}; its runs come from {where}."
        return wanted

    def _from_commit(self, plan: Plan, seed: int) -> CollectedRun | None:
        """An evaluation that was committed with the control: all that a fresh clone has of it."""
        path = paths.EVALUATIONS / f"{plan.arm}-{seed}.json"
        text = git.file_at(self.baseline.rev, path) if self.baseline.rev else None
        try:
            evaluation = whole(json.loads(text or ""), EVALUATION)
        except ValueError:
            return None
        wanted = {"config_hash": plan.config_hash, "data_digest": self.data_digest, "protocol_hash": self.protocol}
        if evaluation is None or any(evaluation[key] != value for key, value in wanted.items()):
            return None
        return CollectedRun(
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
        control = next(group for group in self.groups.values() if group.role == "control")
        arms: list[CollectedArm] = [group.arm(key, control, self.baseline) for key, group in self.groups.items()]
        meta = read_meta(paths.TOKENS / control.config["tokenizer"])
        return Collected(
            params=self.params,
            arms=sorted(arms, key=lambda arm: ORDER[arm.role]),
            control_note=self.note,
            excluded=self.excluded,
            source=dict(meta.source),
            splits={name: plain(split) for name, split in meta.splits.items()},
            duplicates=dict(meta.duplicates),
            warnings=[self.synced.warning] if self.synced.warning else [],
            baseline_rev=self.baseline.rev,
            tracking_uri=self.synced.uri,
        )
