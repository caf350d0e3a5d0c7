"""Runs of the MLflow store: what the workspace lacks, and configurations that it no longer has."""

from __future__ import annotations

from collections.abc import Iterable

from isoflop.collected import CollectedRun, Excluded
from isoflop.collecting.groups import Group
from isoflop.collecting.workspace import EVALUATION, RECORD, whole
from isoflop.tracking.queries import FoundRun

BUDGET_TOLERANCE = 0.01
MAX_EARLIER = 8  # configurations; more make a report that nobody reads

UNASKED = "its seed is not among those of params.yaml"
OTHER_CODE = "it was trained by other code than the runs of this arm beside it"
OTHER_BUDGET = "it was trained with another compute budget"
TOO_MANY = f"only the {MAX_EARLIER} latest earlier configurations are compared"


def complete(groups: dict[str, Group], found: Iterable[FoundRun]) -> list[Excluded]:
    """Add runs to the groups that their configurations have, for seeds of the group without a run; the latest first.

    A planned arm's verdict rests on the seeds that were asked for, however many more the store happens to hold:
    the others are returned, to be named.
    """
    left_out: dict[tuple[str, int], Excluded] = {}
    for each in found:
        group = groups.get(each.config_hash)
        if group is None or each.seed in group.runs:
            continue
        if each.seed not in group.seeds:
            excluded = Excluded(label=each.label, seed=each.seed, reason=UNASKED)
            left_out[each.config_hash, each.seed] = excluded
        elif group.code() and each.tags.get("code_digest") not in group.code():
            left_out[each.config_hash, each.seed] = Excluded(label=each.label, seed=each.seed, reason=OTHER_CODE)
        elif run := stored_run(each):
            group.runs[each.seed] = run
    return [left_out[key] for key in sorted(left_out)]


def earlier_groups(
    found: Iterable[FoundRun], known: dict[str, Group], budget: float, committed: set[str]
) -> tuple[dict[str, Group], list[Excluded]]:
    """Configurations that no group stands for yet, the latest ones at this budget (FLOPs), and what was left out.

    Of several runs of one configuration and seed the latest whose evaluation can be read counts. Budgets are
    compared, and configurations counted, before any evaluation is read: a store may hold thousands of runs.
    """
    groups: dict[str, Group] = {}
    left_out: dict[tuple[str, int], Excluded] = {}
    for each in found:
        key = each.config_hash
        if key in known or (key in groups and each.seed in groups[key].runs):
            continue
        reason = OTHER_BUDGET if not _same_budget(each, budget) else None
        if reason is None and key not in groups and len(groups) == MAX_EARLIER:
            reason = TOO_MANY
        if reason:
            left_out.setdefault((key, each.seed), Excluded(label=each.label, seed=each.seed, reason=reason))
        elif run := stored_run(each):
            group = groups.setdefault(key, Group.of_evaluation(run.evaluation, committed=key in committed))
            group.runs[each.seed] = run
    return groups, [left_out[key] for key in sorted(left_out)]


def stored_run(found: FoundRun) -> CollectedRun | None:
    """A run of the store; None where its evaluation is gone, of something else, or written by another version."""
    evaluation = whole(found.evaluation, EVALUATION)
    if evaluation is None or evaluation["seed"] != found.seed:
        return None
    if any(evaluation[key] != found.tags[key] for key in ("config_hash", "data_digest")):
        return None
    return CollectedRun(
        seed=found.seed,
        origin="store",
        evaluation=evaluation,
        record=whole(found.record, RECORD),
        history=found.history(),
        run_id=found.run_id,
        experiment_id=found.experiment_id,
    )


def same_budget(flops: float, budget: float) -> bool:
    """Whether two amounts of compute may be called equal."""
    return abs(flops / budget - 1) <= BUDGET_TOLERANCE


def _same_budget(found: FoundRun, budget: float) -> bool:
    flops = found.planned_flops
    if flops is None:  # its params are not all in the store
        evaluation = whole(found.evaluation, EVALUATION)
        flops = None if evaluation is None else float(evaluation["predicted"]["flops"])
    return flops is not None and same_budget(flops, budget)
