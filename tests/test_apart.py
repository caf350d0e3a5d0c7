"""Tuned settings and ladders: what stands for an arm, what is shown and never compared, and what the report says."""

from __future__ import annotations

import dataclasses
import json
import math
from typing import Any

import numpy as np
import pytest

from conftest import ROOT
from conftest import params_text as repository_params
from isoflop.analysis import analyse, curves_table, runs_table, set_apart, summary
from isoflop.collected import Collected
from isoflop.errors import IsoflopError
from isoflop.params import parse_params
from isoflop.reporting import build_report
from isoflop.reporting.figures import draw_figures
from isoflop.reporting.html import to_page
from isoflop.reporting.markdown import to_markdown
from isoflop.study import applied, read_study
from studies import ARMS, EIGHT, change_run, diverged, from_git, make_study, table, without_seed

GRID: dict[str, dict[str, Any]] = {
    "base": {},
    "base__low": {"train.lr": 0.003},
    "mqa": {"model.n_kv_head": 1},
    "mqa__low": {"model.n_kv_head": 1, "train.lr": 0.003},
}
TEST = {"base": [1.50, 1.51], "base__low": [1.46, 1.47], "mqa": [1.52, 1.53], "mqa__low": [1.54, 1.56]}
# val chooses base and mqa__low, against what test would choose.
VAL = {"base": [1.60, 1.62], "base__low": [1.61, 1.63], "mqa": [1.66, 1.70], "mqa__low": [1.67, 1.65]}


def tuned(val: dict[str, list[float]] = VAL, arms: dict[str, Any] = GRID, **fields: Any) -> Collected:
    """Two arms with two learning rates each, two seeds; the last val bpb of each run is given."""
    made = make_study(arms, [0, 1], bpb=TEST, tuned=["train.lr"], **fields)
    for label, values in val.items():
        for seed, value in enumerate(values):
            made = with_val(made, label, seed, value)
    return made


def with_val(made: Collected, label: str, seed: int, value: float) -> Collected:
    run = next(run for arm in made.arms if arm.label == label for run in arm.runs if run.seed == seed)
    rows = [dict(row) for row in run.history]
    rows[-1]["val/bpb"] = value
    return change_run(made, label, seed, history=rows)


def with_fields(made: Collected, target: str, **fields: Any) -> Collected:
    arms = [dataclasses.replace(arm, **fields) if arm.label == target else arm for arm in made.arms]
    return dataclasses.replace(made, arms=arms)


def text_of(made: Collected) -> str:
    study = json.loads(json.dumps(analyse(set_apart(made)), allow_nan=False))
    report = build_report(study, {}, [], [])
    assert "<script>" in to_page(report), "both forms can be written"
    return to_markdown(report)


def section(text: str, title: str) -> str:
    return text.split(f"\n## {title}\n")[1].split("\n## ")[0]


def labels(arms: list[Any]) -> list[str]:
    return [arm.label for arm in arms]


def test_without_tuned_settings_and_ladder_nothing_changes() -> None:
    made = make_study(EIGHT)
    assert set_apart(made) == made
    study = analyse(set_apart(made))
    assert (study["tuned"], study["ladder"], study["aside"]) == (None, [], [])


# --- tuned settings


def test_val_chooses_and_test_is_compared() -> None:
    made = set_apart(tuned())
    assert labels(made.arms) == ["base", "mqa__low"]
    assert [(arm.label, arm.role) for arm in made.aside] == [("base__low", "candidate"), ("mqa", "candidate")]
    study = analyse(made)
    # 1.54 - 1.50 and 1.56 - 1.51, whatever the settings that were not chosen got on test.
    assert study["arms"][1]["comparison"]["contrast"]["difference"] == pytest.approx(0.045)
    assert study["arms"][1]["changes"] == {"model.n_kv_head": 1, "train.lr": 0.003}
    candidates = study["tuned"]["grids"][1]["candidates"]
    assert [entry["val"] for entry in candidates] == [pytest.approx(1.68), pytest.approx(1.66)]
    assert [entry["chosen"] for entry in candidates] == [False, True]
    assert set(summary(study)) == {"base", "mqa__low"}


def test_settings_that_were_not_chosen_move_nothing() -> None:
    lower = tuned()
    for seed in (0, 1):
        lower = change_run(lower, "mqa", seed, evaluation={"bpb": 0.9 + 0.3 * seed})
    kept, moved = analyse(set_apart(tuned())), analyse(set_apart(lower))
    assert moved["arms"] == kept["arms"]
    assert moved["noise"] == kept["noise"]


def test_the_best_setting_of_the_control_stands_for_the_control() -> None:
    made = set_apart(tuned(VAL | {"base__low": [1.58, 1.59]}))
    assert [(arm.label, arm.role) for arm in made.arms] == [("base__low", "control"), ("mqa__low", "planned")]
    assert made.arms[1].changes == {"model.n_kv_head": 1}, "told against the control that stands"
    assert "base__low stands for it" in made.control_note
    assert analyse(made)["control"] == "base__low"


def test_a_prediction_of_an_arm_is_that_of_its_best_setting() -> None:
    predictions = [{"arm": "mqa", "direction": "worse", "size": 0.045}]
    study = analyse(set_apart(tuned(predictions=predictions)))
    assert study["predictions"][0]["label"] == "mqa__low"
    assert study["predictions"][0]["score"]["off"] == pytest.approx(0.0)


def test_the_mean_is_over_the_seeds_that_all_settings_finished() -> None:
    # With both seeds mqa would win (1.66 against 1.665); over seed 0 alone mqa__low does.
    val = VAL | {"mqa": [1.68, 1.64], "mqa__low": [1.67, 1.66]}
    assert labels(set_apart(tuned(val)).arms) == ["base", "mqa"]
    made = set_apart(without_seed(tuned(val), "mqa__low", 1))
    assert labels(made.arms) == ["base", "mqa__low"]
    assert made.grids[1].seeds == [0]
    assert made.grids[1].candidates[0].val == pytest.approx(1.68)


def test_a_setting_at_which_a_seed_diverged_cannot_be_chosen() -> None:
    made = set_apart(diverged(tuned(), "mqa__low", 1))
    assert labels(made.arms) == ["base", "mqa"]
    low = made.grids[1].candidates[1]
    assert (low.val, low.diverged, low.chosen) == (None, [1], False)
    assert "seed 1 **diverged**" in section(text_of(diverged(tuned(), "mqa__low", 1)), "Settings tuned for each arm")


@pytest.mark.parametrize("kind", ["diverged", "git"])
def test_where_val_cannot_choose_the_first_stands_and_it_is_said(kind: str) -> None:
    made = tuned()
    for label in ("mqa", "mqa__low"):
        made = diverged(made, label, 0) if kind == "diverged" else from_git(made, label)
    assert labels(set_apart(made).arms) == ["base", "mqa"]
    why = "no setting is without a diverged seed" if kind == "diverged" else "its settings share no seed with val bpb"
    text = section(text_of(made), "Settings tuned for each arm")
    assert f"`mqa` was not tuned ({why})" in text
    assert "moved" not in text.replace("did not move", "")


def test_an_exploratory_setting_never_stands_for_a_planned_arm() -> None:
    made = set_apart(with_fields(tuned(), "mqa__low", role="exploratory", committed=False))
    assert [(arm.label, arm.role) for arm in made.arms] == [
        ("base", "control"),
        ("mqa", "planned"),
        ("mqa__low", "exploratory"),
    ]
    alone = {name: GRID[name] for name in ("base", "base__low", "mqa")}
    planned = set_apart(tuned({name: VAL[name] for name in alone}, alone))
    assert analyse(made)["arms"][:2] == analyse(planned)["arms"]


def test_the_committed_control_has_its_grid_although_it_lies_in_the_store() -> None:
    better = VAL | {"base__low": [1.58, 1.59]}
    made = set_apart(with_fields(tuned(better), "base__low", role="earlier", committed=True))
    assert [(arm.label, arm.role) for arm in made.arms] == [("base__low", "control"), ("mqa__low", "planned")]
    stray = set_apart(with_fields(tuned(better), "base__low", role="earlier", committed=False))
    assert {arm.label: arm.role for arm in stray.arms} == {
        "base": "control",
        "mqa__low": "planned",
        "base__low": "earlier",
    }


def test_the_report_says_whether_the_best_setting_moved() -> None:
    moved = section(text_of(tuned()), "Settings tuned for each arm")
    assert (
        "**The best setting moved**: the control is best at `lr` = 0.006 and `mqa__low` is best at `lr` = 0.003."
        in (moved)
    )
    assert "| `mqa` | 0.006 | 1.6800 | +0.0200 | 2 | not the best |" in moved
    assert "| `mqa__low` | 0.003 | 1.6600 |  | 2 | **chosen** |" in moved
    assert "`mqa__low` is best at the edge of its grid (`lr` = 0.003, the lowest tried)" in moved
    assert "`base` is best at the edge of its grid (`lr` = 0.006, the highest tried)" in moved
    same = section(text_of(tuned(VAL | {"mqa": [1.60, 1.61]})), "Settings tuned for each arm")
    assert "**The best setting did not move**: it is `lr` = 0.006 for the control and every tuned arm." in same


def test_grids_of_different_size_are_flagged() -> None:
    three = {**GRID, "mqa__high": {"model.n_kv_head": 1, "train.lr": 0.012}}
    text = text_of(tuned(VAL | {"mqa__high": [1.9, 1.9]}, three))
    assert "`mqa__low` was chosen among other settings than the control" in text
    assert "was chosen among other settings" not in text_of(tuned())
    alone = text_of(tuned(arms={name: GRID[name] for name in ("base", "base__low", "mqa")}, val={}))
    assert "`mqa` was not tuned (trained with one setting): a disadvantage" in alone
    nobody = text_of(tuned(arms={name: GRID[name] for name in ("base", "mqa", "mqa__low")}, val={}))
    assert "Whether the best setting moves cannot be said: the control was not tuned itself" in nobody


def test_the_threat_of_one_recipe_gives_way_to_that_of_choosing() -> None:
    assert "**One recipe.**" in text_of(make_study())
    text = text_of(tuned())
    assert "**Chosen on val.**" in text
    assert "**One recipe.**" not in text


# --- ladder


SIZES = {"s": (96, 256), "m": (128, 384), "l": (192, 512)}
BUDGETS = {"a": 1e12, "b": 4e12, "c": 1.6e13}


def ladder_arms(family: str, **changes: Any) -> dict[str, dict[str, Any]]:
    """Three sizes at three budgets; the middle of mha is the default, called base."""
    arms = {}
    for budget, flops in BUDGETS.items():
        for size, (d_model, d_ff) in SIZES.items():
            name = "base" if (family, budget, size) == ("mha", "b", "m") else f"{family}_{budget}_{size}"
            own = {"model.d_model": d_model, "model.d_ff": d_ff, "train.budget.flops": flops, "train.warmup_steps": 10}
            arms[name] = {} if name == "base" else own | changes
    return arms


def ladder(*, best: float = 9e5, seeds: int = 2) -> Collected:
    """One family whose bpb is an exact parabola in ln(parameters), lowest at `best`, 1.2 lower by budget."""
    arms = {"base": {}, **{name: own for name, own in ladder_arms("mha").items() if name != "base"}}
    made = make_study(arms, range(seeds), ladder={"mha": list(ladder_arms("mha"))})
    for arm in made.arms:
        budget = math.log(arm.predicted["flops"] / 4e12)
        for seed in range(seeds):
            value = 1.2 + 0.02 * math.log(arm.predicted["parameters"] / best) ** 2 - 0.05 * budget
            made = change_run(made, arm.label, seed, evaluation={"bpb": value + 0.001 * seed})
    return made


def test_other_budgets_are_rungs_and_never_compared() -> None:
    made = set_apart(ladder())
    assert labels(made.arms) == ["base", "mha_b_s", "mha_b_l"]
    assert {arm.role for arm in made.aside} == {"rung"}
    assert len(made.aside) == 6
    study = analyse(made)
    assert study["budget"]["mismatch"] == []
    assert set(summary(study)) == {"base", "mha_b_s", "mha_b_l"}
    assert len(table(runs_table(made))) == 18
    assert set(table(curves_table(made))["arm"]) == set(ladder_arms("mha"))


def test_rungs_move_no_verdict() -> None:
    arms = {"base": {}, "mqa": {"model.n_kv_head": 1}}
    with_rung = {**arms, "mqa_a": {"model.n_kv_head": 1, "train.budget.flops": 1e12}}
    alone = analyse(set_apart(make_study(arms)))
    beside = analyse(set_apart(make_study(with_rung, ladder={"mqa": ["mqa", "mqa_a"]})))
    assert [arm["comparison"] for arm in beside["arms"]] == [arm["comparison"] for arm in alone["arms"]]
    assert beside["noise"] == alone["noise"]


def test_an_arm_at_another_budget_without_a_ladder_still_breaks_the_budget() -> None:
    made = make_study({"base": {}, "mqa": {"model.n_kv_head": 1, "train.budget.flops": 1e12}})
    study = analyse(set_apart(made))
    assert [entry["label"] for entry in study["budget"]["mismatch"]] == ["mqa"]


def test_the_minimum_of_each_budget_is_found() -> None:
    (family,) = analyse(set_apart(ladder(best=9e5)))["ladder"]
    assert [round(budget["flops"] / 1e12) for budget in family["budgets"]] == [1, 4, 16]
    for budget in family["budgets"]:
        assert budget["fit"]["runs"] == 6
        assert budget["fit"]["minimum"] == pytest.approx(9e5, rel=0.02)
        low, high = budget["fit"]["interval"]
        assert low <= budget["fit"]["minimum"] <= high
    middle = family["budgets"][1]["fit"]
    assert middle["minimum_bpb"] == pytest.approx(1.2005, abs=0.002)
    assert middle["minimum_band"][0] < middle["minimum_bpb"] < middle["minimum_band"][1]


def test_a_minimum_outside_the_sizes_is_not_given() -> None:
    text = section(text_of(ladder(best=2e5)), "Ladder of sizes and budgets")
    assert text.count("not inside: the smallest size is best") == 3


def test_two_sizes_are_too_few_for_a_parabola() -> None:
    made = ladder()
    made = dataclasses.replace(made, arms=[arm for arm in made.arms if not arm.name.endswith("_l")])
    (family,) = analyse(set_apart(made))["ladder"]
    assert all(budget["fit"] is None for budget in family["budgets"])
    assert family["budgets"][0]["problem"] == "2 of the 3 sizes that a parabola needs"
    assert family["absent"] == ["mha_a_l", "mha_b_l", "mha_c_l"]
    assert "No family has three sizes at one budget" in text_of(made)


def test_diverged_and_missing_seeds_of_a_rung_are_named() -> None:
    made = without_seed(diverged(ladder(seeds=3), "mha_a_s", 1), "mha_c_l", 2)
    text = section(text_of(made), "Ladder of sizes and budgets")
    assert "`mha_a_s`: seed 1 **diverged** and left the fit." in text
    assert "`mha_c_l`: no run of seed 2." in text
    assert "| `mha_a_s` | 467,808 |" in text
    assert text.count("| 2 of 3 |") == 2


def test_the_multiplier_over_final_values_by_hand() -> None:
    """bpb falls by 0.1 per factor 4; the arm is 0.05 better: at its middle budget it does what takes twice as much."""
    arms: dict[str, dict[str, Any]] = {"base": {}, "mqa": dict(ARMS["mqa"])}
    for budget, flops in (("a", 1e12), ("c", 1.6e13)):
        arms[f"base_{budget}"] = {"train.budget.flops": flops}
        arms[f"mqa_{budget}"] = {"model.n_kv_head": 1, "train.budget.flops": flops}
    families = {"mha": ["base_a", "base", "base_c"], "mqa": ["mqa_a", "mqa", "mqa_c"]}
    made = make_study(arms, [0, 1], ladder=families)
    for arm in made.arms:
        for run in arm.runs:
            value = 1.5 - 0.1 * math.log(run.evaluation["flops"] / 4e12, 4) - 0.05 * arm.name.startswith("mqa")
            made = change_run(made, arm.label, run.seed, evaluation={"bpb": value})
    first, second = analyse(set_apart(made))["ladder"]
    assert first["multiplier"] is None
    # What the control reaches at its largest budget takes mqa half of that: sqrt(4) less.
    assert second["multiplier"]["arm_needs"]["estimate"] == pytest.approx(0.5, rel=0.01)
    assert second["multiplier"]["control_needs"]["estimate"] is None
    assert second["multiplier"]["control_needs"]["beyond"] == 2


def test_the_figure_shows_families_budgets_and_minima() -> None:
    made = set_apart(ladder())
    study = json.loads(json.dumps(analyse(made)))
    drawn = draw_figures(study, table(curves_table(made)))
    assert "ladder" in drawn
    assert "a fitted parabola" in drawn["ladder"].caption
    assert "On the right" in drawn["ladder"].caption
    text = to_markdown(build_report(study, drawn, [], []))
    assert "(figures/ladder.png)" in text
    assert "**The verdicts hold at one budget.**" in text
    assert "ladder" not in draw_figures(
        json.loads(json.dumps(analyse(make_study()))), table(curves_table(make_study()))
    )


def test_a_family_at_one_budget_and_one_size_has_no_figure() -> None:
    made = make_study(ladder={"mha": ["base"], "mqa": ["mqa"]})
    study = json.loads(json.dumps(analyse(set_apart(made))))
    assert "ladder" not in draw_figures(study, table(curves_table(made)))
    assert "1 of the 3 sizes" in json.dumps(study["ladder"])


# --- params.yaml and studies


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"tuned": ["model.d_ff"]}, r"study\.tuned .* holds 'model\.d_ff': only settings of train"),
        ({"tuned": ["train.budget.flops"]}, r"only settings of train other than its budget"),
        ({"tuned": ["train.checkpoint_s"]}, r"holds 'train\.checkpoint_s': only settings of train other than"),
        ({"tuned": ["train.lrr"]}, r"holds 'train\.lrr', which is unknown; did you mean train\.lr\?"),
        ({"ladder": {"a": ["base", "nix"]}}, r"study\.ladder\.a .* holds 'nix', which is not one of arms: base, mqa"),
        ({"ladder": {"a": ["base"], "b": ["base"]}}, r"study\.ladder has the arm 'base' in more than one family"),
    ],
)
def test_what_cannot_be_tuned_or_climbed_is_refused(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(IsoflopError, match=words):
        make_study(**fields)


def test_a_study_file_may_hold_both(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    study = read_study("kv_heads")
    names = list(study.arms)
    both = dataclasses.replace(study, tuned=["train.lr", "train.muon_lr"], ladder={"mha": names[:1], "mqa": names[1:2]})
    params = parse_params(applied(repository_params(), "kv_heads", both), "params.yaml")
    assert params.study.tuned == ["train.lr", "train.muon_lr"]
    assert params.study.ladder == {"mha": names[:1], "mqa": names[1:2]}
    again = parse_params(applied(repository_params(), "kv_heads", study), "params.yaml")
    assert (again.study.tuned, again.study.ladder) == ([], {})


# --- arms that repeat another


def test_an_arm_that_repeats_the_control_does_not_narrow_the_others() -> None:
    values = {"base": [1.50, 1.51, 1.52], "mqa": [1.53, 1.52, 1.55], "twin": [1.50, 1.51, 1.52]}
    arms = {"base": {}, "mqa": ARMS["mqa"], "twin": {"train.log_points": 50}}
    alone = analyse(make_study({name: arms[name] for name in ("base", "mqa")}, bpb=values))
    beside = analyse(make_study(arms, bpb=values))
    assert beside["arms"][1]["comparison"] == alone["arms"][1]["comparison"]
    twin = beside["arms"][2]["comparison"]
    assert twin["identical"] is True
    assert twin["verdict"]["word"] == "equivalent"
    assert twin["contrast"]["interval"] == [0.0, 0.0]
    assert alone["arms"][1]["comparison"]["identical"] is False


@pytest.mark.parametrize("role", ["planned", "exploratory"])
def test_an_arm_that_repeats_another_shares_its_comparison(role: str) -> None:
    values = {"base": [1.50, 1.51, 1.52], "mqa": [1.53, 1.52, 1.55], "twin": [1.53, 1.52, 1.55]}
    arms = {"base": {}, "mqa": ARMS["mqa"], "twin": {"model.n_kv_head": 1, "train.log_points": 50}}
    alone = analyse(make_study({name: arms[name] for name in ("base", "mqa")}, bpb=values))
    beside = analyse(make_study(arms, bpb=values, roles={"twin": role}))
    assert beside["arms"][1]["comparison"] == alone["arms"][1]["comparison"]
    assert beside["arms"][2]["comparison"] == alone["arms"][1]["comparison"] | {
        "arm": "twin",
        "exploratory": role == "exploratory",
    }


def test_one_seed_in_common_is_no_repetition() -> None:
    values = {"base": [1.5], "mqa": [1.5]}
    study = analyse(make_study(seeds=[0], bpb=values))
    assert study["arms"][1]["comparison"]["verdict"]["word"] == "no verdict"


def test_the_report_says_that_nothing_reached_the_weights() -> None:
    arms = {"base": {}, "placebo": {"train.log_points": 50}}
    values = {name: [1.50, 1.51, 1.52] for name in arms}
    predictions = [{"arm": "placebo", "direction": "same", "size": 0.0}]
    text = text_of(make_study(arms, bpb=values, predictions=predictions))
    assert "`placebo` gave exactly the result of the control `base`: the same bits per byte with every seed" in text
    assert "equivalent within 0.01 bpb (the same to the last digit)" in text
    assert "an interval of no width is not a measurement of noise" in text
    assert "| **hit** |" in text
    near = text_of(
        make_study(arms, bpb={"base": [1.5, 1.51, 1.52], "placebo": [1.5, 1.51, float(np.nextafter(1.52, 2))]})
    )
    assert "exactly the result" not in near
