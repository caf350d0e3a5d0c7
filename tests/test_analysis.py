"""Numbers of the study against values computed by hand; what is not known is None, never NaN."""

from __future__ import annotations

import dataclasses
import json
import math
from typing import Any

import pytest
from scipy.stats import ttest_rel

from isoflop.analysis import analyse, curves_table, runs_table, summary
from isoflop.collected import Collected
from isoflop.errors import IsoflopError
from studies import EIGHT, FLOOR, change_run, diverged, exclude, from_git, make_study, table, without_seed

THREE = {"base": [1.50, 1.51, 1.52], "mqa": [1.53, 1.52, 1.55]}


def arm(study: dict[str, Any], label: str) -> dict[str, Any]:
    return next(each for each in study["arms"] if each["label"] == label)


def with_fields(study: Collected, target: str, **fields: Any) -> Collected:
    arms = [dataclasses.replace(each, **fields) if each.label == target else each for each in study.arms]
    return dataclasses.replace(study, arms=arms)


def test_means_and_the_paired_difference_by_hand() -> None:
    study = analyse(make_study(bpb=THREE))
    assert arm(study, "base")["bpb"] == {"n": 3, "mean": pytest.approx(1.51), "sd": pytest.approx(0.01)}
    contrast = arm(study, "mqa")["comparison"]["contrast"]
    # Differences 0.03, 0.01, 0.03: mean 0.07 / 3, sd 0.0115470, times t(0.975, 2) = 4.302653 / sqrt(3).
    assert contrast["difference"] == pytest.approx(0.07 / 3)
    half = 4.302653 * 0.0115470 / math.sqrt(3)
    assert contrast["interval"] == pytest.approx([0.07 / 3 - half, 0.07 / 3 + half], abs=1e-6)
    assert contrast["p"] == pytest.approx(ttest_rel(THREE["mqa"], THREE["base"]).pvalue)
    assert arm(study, "mqa")["comparison"]["noise_floors"] == pytest.approx(0.07 / 3 / 0.01)
    assert arm(study, "mqa")["comparison"]["by_seed"][1] == {"seed": 1, "difference": pytest.approx(0.01)}


def test_excess_over_the_floor_and_other_currencies_by_hand() -> None:
    study = analyse(make_study(bpb=THREE))
    assert study["floor_bpb"] == pytest.approx(FLOOR)
    assert arm(study, "mqa")["excess"] == pytest.approx((1.53 + 1.52 + 1.55) / 3 - FLOOR)
    # Keys and values, 4 layers, KV heads of 32 dimensions, 4 bytes.
    assert arm(study, "base")["cost"]["kv_cache_bytes"] == 2 * 4 * 4 * 32 * 4
    assert arm(study, "mqa")["cost"]["kv_cache_bytes"] == 2 * 4 * 1 * 32 * 4
    assert arm(study, "base")["cost"]["weights_mb"] == pytest.approx(885_888 * 4 / 1e6)
    seconds = [run["record"]["train_s"] for run in arm(study, "mqa")["runs"]]
    assert arm(study, "mqa")["cost"]["train_s"] == pytest.approx(sum(seconds) / 3)


def test_without_a_floor_there_is_no_excess() -> None:
    study = analyse(make_study(fallback=False))
    assert study["floor_bpb"] is None
    assert arm(study, "mqa")["excess"] is None


@pytest.mark.parametrize("step", [None, 40])
def test_a_diverged_seed_is_counted_and_left_out(step: int | None) -> None:
    made = make_study(bpb=THREE)
    if step is None:  # finished as far as train knew, but its bits per byte are not a number
        made = change_run(made, "mqa", 1, evaluation={"bpb": math.nan})
    else:
        made = diverged(made, "mqa", 1, step=step)
    study = analyse(made)
    told = arm(study, "mqa")
    assert [run["seed"] for run in told["diverged"]] == [1]
    assert told["diverged"][0]["step"] == step
    assert told["bpb"]["n"] == 2
    assert told["bpb"]["mean"] == pytest.approx(1.54)
    assert told["comparison"]["pairs"]["seeds"] == [0, 2]
    json.dumps(study, allow_nan=False)


@pytest.mark.parametrize("dead", [("base",), ("mqa",), ("base", "mqa")])
def test_all_seeds_diverged(dead: tuple[str, ...]) -> None:
    made = make_study()
    for label in dead:
        for seed in (0, 1, 2):
            made = diverged(made, label, seed)
    study = analyse(made)
    assert arm(study, "mqa")["comparison"]["verdict"]["word"] == "no verdict"
    assert arm(study, "mqa")["comparison"]["contrast"]["difference"] is None
    assert arm(study, dead[0])["cost"]["measured"] is False
    assert arm(study, dead[0])["cost"]["flops_ratio"] == pytest.approx(1, abs=0.01)
    assert study["budget"]["mismatch"] == []
    json.dumps(study, allow_nan=False)


def test_only_the_control() -> None:
    study = analyse(make_study({"base": {}}))
    assert [each["comparison"] for each in study["arms"]] == [None]
    assert study["noise"]["n"] == 3
    assert summary(study)["base"]["difference"] is None
    assert study["predictions"] == []


def test_one_seed_has_no_spread_and_no_verdict() -> None:
    study = analyse(make_study(seeds=[0]))
    assert arm(study, "mqa")["bpb"]["sd"] is None
    assert study["noise"]["sd"] is None
    assert study["noise"]["seeds_needed"] is None
    assert arm(study, "mqa")["comparison"]["verdict"]["word"] == "no verdict"
    assert arm(study, "mqa")["multiplier"]["control_needs"]["interval"] is None


def test_arms_with_different_seeds_are_paired_where_they_meet() -> None:
    made = without_seed(without_seed(make_study(bpb=THREE), "base", 0), "mqa", 2)
    study = analyse(made)
    assert arm(study, "mqa")["comparison"]["pairs"]["seeds"] == [1]
    assert arm(study, "mqa")["comparison"]["contrast"]["difference"] == pytest.approx(0.01)
    assert arm(study, "base")["missing"] == [0]


def test_a_missing_seed_found_in_the_store_is_not_missing() -> None:
    made = with_fields(make_study(), "base", missing_seeds=[1, 7])
    assert arm(analyse(made), "base")["missing"] == [7]


@pytest.mark.parametrize(("ratio", "flagged"), [(1.009, False), (1.02, True), (0.98, True)])
def test_the_budget_holds_within_one_per_cent(ratio: float, flagged: bool) -> None:
    made = make_study()
    flops = made.arms[0].runs[0].evaluation["flops"]
    for seed in (0, 1, 2):
        made = change_run(made, "mqa", seed, evaluation={"flops": ratio * flops})
    mismatch = analyse(made)["budget"]["mismatch"]
    assert [entry["label"] for entry in mismatch] == (["mqa"] if flagged else [])
    if flagged:
        assert mismatch[0]["ratio"] == pytest.approx(ratio)


def test_exploratory_arms_never_move_a_planned_verdict() -> None:
    arms = {name: EIGHT[name] for name in ("base", "gqa", "mqa", "wide")}
    effects = {"gqa": 0.002, "mqa": 0.012, "wide": 0.05}
    alone = analyse(make_study({name: arms[name] for name in ("base", "gqa", "mqa")}, effects=effects))
    roles = {"wide": "exploratory"}
    beside = analyse(make_study(arms, effects=effects, roles=roles))
    for label in ("gqa", "mqa"):
        assert arm(beside, label)["comparison"] == arm(alone, label)["comparison"]
    assert arm(beside, "wide")["comparison"]["exploratory"] is True
    planned = analyse(make_study(arms, effects=effects))
    assert arm(planned, "mqa")["comparison"]["p_difference"] != arm(alone, "mqa")["comparison"]["p_difference"]


def test_predictions_are_scored_against_planned_arms_only() -> None:
    predictions = [
        {"arm": "mqa", "direction": "worse", "size": 0.02, "confidence": 0.7},
        {"arm": "nobody", "direction": "same"},
    ]
    values = {"base": [1.5, 1.51, 1.52], "mqa": [1.55, 1.5601, 1.57]}
    scored = analyse(make_study(bpb=values, predictions=predictions))["predictions"]
    assert scored[0]["score"] == {
        "outcome": "hit",
        "predicted": 0.02,
        "off": pytest.approx(0.0300333, abs=1e-6),
        "inside": False,
    }
    assert scored[1]["label"] is None
    assert scored[1]["score"] is None
    exploratory = analyse(make_study(bpb=values, predictions=predictions, roles={"mqa": "exploratory"}))
    assert exploratory["predictions"][0]["score"] is None


def test_a_prediction_of_a_double_is_that_of_the_arm_it_resolves_to() -> None:
    made = make_study(predictions=[{"arm": "twin", "direction": "worse"}])
    assert analyse(with_fields(made, "mqa", same_as=["twin"]))["predictions"][0]["label"] == "mqa"


def test_a_prediction_that_cannot_be_read_names_its_value() -> None:
    with pytest.raises(IsoflopError, match=r"study\.predictions\.0\.size = 'much' must be bits per byte"):
        make_study(predictions=[{"arm": "mqa", "direction": "worse", "size": "much"}])
    with pytest.raises(IsoflopError, match=r"study\.predictions\.0\.direction = 'sideways' must be better, worse"):
        make_study(predictions=[{"arm": "mqa", "direction": "sideways"}])


def test_an_arm_that_changes_nothing_needs_exactly_the_controls_compute() -> None:
    made = make_study({"base": {}, "twin": {}}, bpb={"base": [1.5, 1.51], "twin": [1.5, 1.51]}, seeds=[0, 1])
    for seed in (0, 1):
        twin = next(run for run in made.arms[0].runs if run.seed == seed)
        made = change_run(made, "twin", seed, history=twin.history, evaluation=twin.evaluation)
    told = arm(analyse(made), "twin")
    assert told["multiplier"]["control_needs"]["estimate"] == pytest.approx(1)
    assert told["multiplier"]["arm_needs"]["estimate"] == pytest.approx(1)
    assert told["story_noise"]["se"] == pytest.approx(0, abs=1e-12)
    assert told["comparison"]["contrast"]["difference"] == pytest.approx(0, abs=1e-12)


def test_of_committed_evaluations_only_numbers_are_known() -> None:
    study = analyse(from_git(make_study(), "base"))
    base = arm(study, "base")
    assert base["bpb"]["n"] == 3
    assert base["cost"]["train_s"] is None
    assert base["cost"]["flops"] > 0
    assert arm(study, "mqa")["multiplier"] is None
    assert arm(study, "mqa")["comparison"]["contrast"]["difference"] is not None
    assert study["facts"]["unrecorded"] == ["base, seed 0", "base, seed 1", "base, seed 2"]
    assert study["facts"]["origins"] == {"git": 3, "workspace": 3}


def test_labels_that_collide_are_told_apart_by_configuration() -> None:
    made = with_fields(make_study(), "mqa", label="base", role="earlier")
    study = analyse(made)
    hashes = [each.config_hash[:4] for each in made.arms]
    assert [each["label"] for each in study["arms"]] == [f"base ({hashes[0]})", f"base ({hashes[1]})"]
    assert set(table(runs_table(made))["arm"]) == {each["label"] for each in study["arms"]}
    assert set(summary(study)) == {f"base ({hashes[0]})"}, "earlier arms are rows of their own experiments"


def test_damaged_story_bits_cost_the_story_noise_and_nothing_else() -> None:
    made = change_run(make_study(), "mqa", 0, evaluation={"story_bits": [1.0, 2.0]})
    told = arm(analyse(made), "mqa")
    assert told["story_noise"] is None
    assert told["bpb"]["n"] == 3


def test_paths_and_passwords_stay_out() -> None:
    assert analyse(make_study())["facts"]["tracking_uri"] is None
    server = dataclasses.replace(make_study(), tracking_uri="https://me:secret@host:8080/ml?x=1")
    assert analyse(server)["facts"]["tracking_uri"] == "https://host:8080/ml"
    assert "somewhere" not in json.dumps(analyse(make_study()))


def test_facts_see_what_differs_between_runs() -> None:
    made = make_study()
    run = made.arms[1].runs[0]
    assert run.record is not None
    machine = run.record["machine"] | {"precision": "float32"}
    provenance = run.record["provenance"] | {"code_digest": "other", "git_rev": None, "git_dirty": True}
    made = change_run(made, "mqa", 0, record={"machine": machine, "provenance": provenance})
    facts = analyse(made)["facts"]
    assert facts["dirty"] == ["mqa, seed 0"]
    assert facts["code_digests"] == ["c0de" * 4, "other"]
    assert facts["git_revs"] == ["89abcdef" * 5, None]
    assert [(m["precision"], m["runs"]) for m in facts["machines"]] == [("bf16", 5), ("float32", 1)]
    assert facts["same_learning_rate"] is True
    assert analyse(make_study({"base": {}, "slow": {"train.lr": 0.001}}))["facts"]["same_learning_rate"] is False


def test_two_protocols_never_get_this_far() -> None:
    made = change_run(make_study(), "mqa", 0, evaluation={"protocol_hash": "another"})
    with pytest.raises(AssertionError, match="one protocol"):
        analyse(made)


def test_runs_table_has_every_run() -> None:
    made = diverged(make_study(bpb=THREE), "mqa", 1)
    runs = table(runs_table(made))
    assert len(runs) == 6
    assert list(runs["status"]) == ["finished"] * 4 + ["diverged", "finished"]
    dead = runs[runs["status"] == "diverged"].iloc[0]
    assert dead["diverged_at"] == 120
    assert math.isnan(dead["bpb"])
    assert set(runs["run_uid"]) == {run.evaluation["run_uid"] for each in made.arms for run in each.runs}
    assert "nan" not in runs_table(made).lower()
    assert ",120," in runs_table(made), "a step is a whole number though it is blank elsewhere"


def test_curves_table_has_every_row_and_leaves_nan_blank() -> None:
    made = diverged(make_study(), "mqa", 1)
    curves = table(curves_table(made))
    assert len(curves) == sum(len(run.history) for each in made.arms for run in each.runs)
    assert "nan" not in curves_table(made).lower()
    first = made.arms[0].runs[0].history[0]
    row = curves.iloc[0]
    assert (row["arm"], row["seed"], row["step"]) == ("base", 0, first["step"])
    assert row["train/loss"] == float(f"{first['train/loss']:.6g}")
    assert math.isnan(row["val/bpb"])


def test_curves_table_without_any_history_has_its_columns() -> None:
    made = from_git(from_git(make_study(), "base"), "mqa")
    assert list(table(curves_table(made))) == list(table(curves_table(make_study())))
    assert table(curves_table(made)).empty


def test_summary_is_small_and_rounded() -> None:
    study = analyse(make_study(bpb=THREE))
    assert summary(study) == {
        "base": {"bpb": 1.51, "sd": 0.01, "n": 3, "difference": None},
        "mqa": {"bpb": 1.53333, "sd": 0.01528, "n": 3, "difference": 0.02333},
    }


def test_what_was_left_out_is_passed_on() -> None:
    study = analyse(exclude(make_study(), ("old", 4, "it was trained with another compute budget")))
    assert study["excluded"] == [{"label": "old", "seed": 4, "reason": "it was trained with another compute budget"}]


def test_stability_counts_rows_after_warmup() -> None:
    made = make_study()
    warmup = made.params.train.warmup_steps
    rows = [dict(row) for row in made.arms[1].runs[0].history]
    for row in rows:
        row["train/grad_norm"] = 100.0 if row["step"] <= warmup else 0.5
        row["train/loss"] = 2.0
    rows[-1] |= {"train/grad_norm": 3.0, "train/loss": 2.25}
    for seed in (0, 1, 2):
        made = change_run(made, "mqa", seed, history=rows)
    late = sum(row["step"] > warmup for row in rows)
    found = arm(analyse(made), "mqa")["stability"]
    assert found == {
        "rows": 3 * late,
        "grad_norm_median": 0.5,
        "grad_norm_max": 3.0,
        "clipped": pytest.approx(1 / late),
        "largest_rise": 0.25,
    }


def test_positions_are_means_over_seeds_with_a_paired_interval() -> None:
    made = make_study(seeds=[0, 1])
    for label, values in {"base": (1.0, 1.2), "mqa": (1.1, 1.4)}.items():
        for seed, value in enumerate(values):
            part = [{"from": 0, "to": 32, "bpb": value}]
            made = change_run(made, label, seed, evaluation={"bpb_by_position": part})
    (part,) = arm(analyse(made), "mqa")["positions"]
    assert part["bpb"] == pytest.approx(1.25)
    assert part["difference"] == pytest.approx(0.15)
    # Differences 0.1 and 0.2: se 0.05, t(0.975, 1) = 12.7062.
    assert part["interval"] == pytest.approx([0.15 - 0.05 * 12.7062, 0.15 + 0.05 * 12.7062], abs=1e-5)
