"""Runs of one configuration on their way to a CollectedArm."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from isoflop.baseline import Baseline, changes_between
from isoflop.collected import CollectedArm, CollectedRun, Role
from isoflop.plan import Plan
from isoflop.schema import plain


@dataclass(kw_only=True)
class Group:
    """Like CollectedArm, still growing. `seeds` may be filled in from the store or a commit.

    `missing` are seeds of params.yaml that were not found in the workspace.
    """

    name: str
    role: Role
    committed: bool
    config: dict[str, Any]
    predicted: dict[str, Any]
    same_as: list[str] = field(default_factory=list)
    seeds: frozenset[int] = frozenset()
    missing: list[int] = field(default_factory=list)
    runs: dict[int, CollectedRun] = field(default_factory=dict)

    @classmethod
    def of_plan(cls, plan: Plan, role: Role, seeds: Iterable[int], *, committed: bool) -> Group:
        return cls(
            name=plan.arm,
            role=role,
            committed=committed,
            config=plan.config,
            predicted=plain(plan.predicted),
            seeds=frozenset(seeds),
        )

    @classmethod
    def of_evaluation(cls, evaluation: Mapping[str, Any], *, committed: bool) -> Group:
        """Of a run that no arm of params.yaml stands for."""
        return cls(
            name=evaluation["arm"],
            role="earlier",
            committed=committed,
            config=evaluation["config"],
            predicted=evaluation["predicted"],
        )

    def origins(self) -> list[str]:
        """Where its runs come from, each place once."""
        return sorted({run.origin for run in self.runs.values()})

    def code(self) -> set[str]:
        """Digests of the code that trained its runs, where that is known."""
        return {run.record["provenance"]["code_digest"] for run in self.runs.values() if run.record}

    def arm(self, config_hash: str, control: Group, baseline: Baseline) -> CollectedArm:
        return CollectedArm(
            label=baseline.label(self.name, self.config),
            name=self.name,
            role=self.role,
            committed=self.committed,
            changes=changes_between(control.config, self.config),
            config=self.config,
            config_hash=config_hash,
            predicted=self.predicted,
            same_as=self.same_as,
            runs=[self.runs[seed] for seed in sorted(self.runs)],
            missing_seeds=[seed for seed in self.missing if seed not in self.runs],
        )
