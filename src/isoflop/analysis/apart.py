"""Arms that are shown but not compared with the control: settings that val did not choose, rungs of a ladder.

A grid is told by configurations, not by names: arms that differ in the settings of `study.tuned` alone. So the
committed control, whose runs lie in the store, has its grid as well, and an experiment that changes every arm
of a grid makes a grid of its own.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

from isoflop.analysis.values import bpb, finished, labels, last_val
from isoflop.baseline import changes_between
from isoflop.collected import Candidate, Collected, CollectedArm, Grid
from isoflop.files import digest_of

BUDGET_TOLERANCE = 0.01


def set_apart(collected: Collected) -> Collected:
    """One arm of each grid, and every arm at the control's budget, stays in `arms`; the others move to `aside`."""
    # Labels that are unique among all arms, wherever they end up.
    unique = zip(collected.arms, labels(collected.arms), strict=True)
    collected = dataclasses.replace(collected, arms=[dataclasses.replace(a, label=label) for a, label in unique])
    collected = _choose_settings(collected)
    named = {name for family in collected.params.study.ladder.values() for name in family}
    budget = collected.arms[0].predicted["flops"]
    stay: list[CollectedArm] = []
    rungs: list[CollectedArm] = []
    for arm in collected.arms:
        apart = bool(named & names(arm)) and abs(arm.predicted["flops"] / budget - 1) > BUDGET_TOLERANCE
        if apart and arm.role not in ("control", "earlier"):
            rungs.append(dataclasses.replace(arm, role="rung"))
        else:
            stay.append(arm)
    return dataclasses.replace(collected, arms=stay, aside=[*collected.aside, *rungs])


def names(arm: CollectedArm) -> set[str]:
    """What params.yaml may call this arm."""
    return {arm.name, *arm.same_as, *arm.stands_for}


def _choose_settings(collected: Collected) -> Collected:
    keys = collected.params.study.tuned
    if not keys:
        return collected
    chosen: list[CollectedArm] = []
    aside: list[CollectedArm] = []
    grids: list[Grid] = []
    for members in _grids(collected.arms, keys):
        grid, best = _choose(members, keys)
        grids.append(grid)
        chosen.append(best)
        aside += [dataclasses.replace(arm, role="candidate") for arm in members if arm.config_hash != best.config_hash]
    control = chosen[0]
    compared = [dataclasses.replace(arm, changes=changes_between(control.config, arm.config)) for arm in chosen]
    note = collected.control_note
    if control.config_hash != collected.arms[0].config_hash:
        note += f" {control.label} stands for it: of its settings the best on val."
    return dataclasses.replace(collected, arms=compared, aside=aside, grids=grids, control_note=note)


def _grids(arms: Sequence[CollectedArm], keys: Sequence[str]) -> Iterator[list[CollectedArm]]:
    """Arms that differ in the tuned settings alone, in the order of their first; the control's grid comes first.

    Planned arms are never chosen over by exploratory or earlier ones, so these make grids of their own. Only the
    control's grid takes in what was committed with it and is now found in the store.
    """
    control = _without(arms[0], keys)
    grids: dict[tuple[str, str], list[CollectedArm]] = {}
    for arm in arms:
        rest = _without(arm, keys)
        with_control = rest == control and arm.committed
        kind = "planned" if with_control or arm.role in ("control", "planned") else arm.role
        grids.setdefault((rest, kind), []).append(arm)
    yield from grids.values()


def _without(arm: CollectedArm, keys: Sequence[str]) -> str:
    """Digest of the configuration without the tuned settings."""
    config = copy.deepcopy(arm.config)
    for key in keys:
        *folders, leaf = key.split(".")
        section = config
        for folder in folders:
            section = section[folder]
        section.pop(leaf, None)
    return digest_of(config)


def _choose(members: Sequence[CollectedArm], keys: Sequence[str]) -> tuple[Grid, CollectedArm]:
    """The setting with the lowest last val bpb, meant over the seeds that all eligible settings finished.

    A setting at which a seed diverged is not eligible: the mean of those that survived would flatter it. Where val
    cannot choose, the first stands, and the grid says why.
    """
    first = members[0]
    eligible = [arm for arm in members if arm.runs and not _diverged(arm)]
    vals = {arm.config_hash: last_vals(arm) for arm in eligible}
    seeds = sorted(set.intersection(*(set(found) for found in vals.values()))) if vals else []
    means = {key: sum(found[seed] for seed in seeds) / len(seeds) for key, found in vals.items()} if seeds else {}
    best, problem = first, None
    if means:
        best = min(eligible, key=lambda arm: means[arm.config_hash])
    elif len(members) > 1:
        problem = "no setting is without a diverged seed" if not eligible else "its settings share no seed with val bpb"
    grid = Grid(
        role=first.role,
        candidates=[
            Candidate(
                label=arm.label,
                settings={key: _setting(arm, key) for key in keys},
                val=means.get(arm.config_hash),
                diverged=_diverged(arm),
                chosen=arm.config_hash == best.config_hash,
            )
            for arm in members
        ],
        seeds=seeds,
        problem=problem,
    )
    others = [name for arm in members for name in (arm.name, *arm.same_as)]
    return grid, dataclasses.replace(best, role=first.role, stands_for=others)


def last_vals(arm: CollectedArm) -> dict[int, float]:
    """The last val bpb of each finished seed, where it is known."""
    found = {run.seed: last_val(run) for run in finished(arm)}
    return {seed: value for seed, value in found.items() if value is not None}


def _diverged(arm: CollectedArm) -> list[int]:
    return [run.seed for run in arm.runs if bpb(run) is None]


def _setting(arm: CollectedArm, key: str) -> Any:
    value: Any = arm.config
    for part in key.split("."):
        value = value[part]
    return value
