"""What a study will take: seeds as the statistics say, cost counted by hand, what stands already not counted again."""

from __future__ import annotations

import dataclasses
import io
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from isoflop.analysis import analyse
from isoflop.collecting import collect
from isoflop.errors import IsoflopError
from isoflop.files import write_json
from isoflop.params import parse_params
from isoflop.power import __main__ as command
from isoflop.power.known import LAST, Known, known_runs, plan_of
from isoflop.power.outlook import Outlook, evaluation_flops, outlook
from isoflop.power.tables import show
from isoflop.statistics.intervals import noise_floor
from isoflop.statistics.sample_size import POWER, chances, seeds_needed, smallest_detectable
from studies import ARMS, params_text
from workspace import Workspace

# mlflow's models of its tables use a loader option that sqlalchemy 2.1 deprecates; nothing here can change that.
pytestmark = pytest.mark.filterwarnings("ignore:The ``noload`` loader strategy:DeprecationWarning")

BASE = {0: 1.50, 1: 1.51, 2: 1.52}  # sd 0.01


@pytest.fixture
def space(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workspace:
    """Two arms, three seeds, tokens and plans; no run, no store, no repository."""
    for name in ("MLFLOW_TRACKING_URI", "DVC_ROOT", "DVC_EXP_BASELINE_REV"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    monkeypatch.chdir(tmp_path)
    return Workspace(tmp_path, text_of(ARMS, [0, 1, 2]))


def text_of(arms: Any, seeds: list[int], **study: Any) -> str:
    return params_text(arms, seeds, **study).replace("log_points: 100", "log_points: 8")


def known_of(space: Workspace, *, base: dict[int, float | None] | None = None, mqa: int = 0) -> Known:
    results: dict[str, dict[int, float | None]] = {space.plan("base").config_hash: dict(base or BASE)}
    results[space.plan("mqa").config_hash] = {seed: 1.5 for seed in range(mqa)}
    return Known(results=results, rates=[1e11])


# --- seeds


def test_seeds_are_those_of_the_rule_at_the_noise_and_at_the_upper_end_of_its_interval(space: Workspace) -> None:
    found = outlook(space.params, known_of(space))
    floor = noise_floor(BASE)
    assert floor.interval is not None
    assert found.noise.sd == pytest.approx(0.01)
    assert found.noise.interval == floor.interval
    wanted = [seeds_needed(sd, 0.01, 1) for sd in (0.01, floor.interval.high)]
    assert [goal.seeds for goal in found.goals] == [
        wanted[0].difference,
        wanted[0].equivalence,
        wanted[1].difference,
        wanted[1].equivalence,
    ]
    assert found.goals[2].seeds is None, "noise six times the margin: more than 100"
    assert found.goals[2].bill is None


def test_the_menu_agrees_with_the_goals(space: Workspace) -> None:
    found = outlook(space.params, known_of(space))
    by_seeds = {choice.seeds: choice for choice in found.menu}
    assert {2, 3, 5, 10, found.goals[0].seeds, found.goals[1].seeds} <= set(by_seeds)
    assert by_seeds[3].smallest == pytest.approx(smallest_detectable(0.01, 3, 1))
    chance = [choice.chances.difference for choice in found.menu]
    assert chance == sorted(chance)
    needed = found.goals[0].seeds
    assert needed is not None
    assert chances(0.01, 0.01, needed, 1).difference >= POWER > chances(0.01, 0.01, needed - 1, 1).difference
    equal = found.goals[1].seeds
    assert equal is not None
    assert chances(0.01, 0.01, equal, 1).equivalence >= POWER > chances(0.01, 0.01, equal - 1, 1).equivalence


def test_only_the_ratio_of_noise_and_margin_counts(space: Workspace) -> None:
    def seeds(found: Outlook) -> list[int | None]:
        return [goal.seeds for goal in found.goals]

    one = outlook(space.params, known_of(space), sd=0.01, margin=0.02)
    assert seeds(one) == seeds(outlook(space.params, known_of(space), sd=0.1, margin=0.2))
    more = outlook(space.params, known_of(space), sd=0.02, margin=0.02)
    assert all(m is None or o is None or m > o for m, o in zip(seeds(more), seeds(one), strict=True))
    paired = outlook(space.params, known_of(space), sd=0.01, margin=0.02, correlation=0.8)
    assert all(p is None or o is None or p < o for p, o in zip(seeds(paired), seeds(one), strict=True))


def test_a_noise_floor_that_was_given_needs_no_runs(space: Workspace) -> None:
    found = outlook(space.params, Known(), sd=0.004)
    assert (found.noise.sd, found.noise.interval, found.speed) == (0.004, None, None)
    assert len(found.goals) == 2
    assert found.goals[0].bill is not None
    assert found.goals[0].bill.hours is None


@pytest.mark.parametrize(
    ("base", "words"),
    [
        ({}, "no finished seed of the control base"),
        ({0: 1.5}, "one finished seed of the control base"),
        ({0: 1.5, 1: None}, "one finished seed of the control base"),
        ({0: 1.5, 1: 1.5}, "2 seeds without any spread of the control base"),
    ],
)
def test_without_a_noise_floor_the_way_out_is_named(
    space: Workspace, base: dict[int, float | None], words: str
) -> None:
    known = Known(results={space.plan("base").config_hash: base})
    with pytest.raises(IsoflopError, match=words) as caught:
        outlook(space.params, known)
    assert "--sd" in str(caught.value)


# --- cost


def test_the_bill_by_hand(space: Workspace) -> None:
    found = outlook(space.params, known_of(space, mqa=2))
    five = next(choice for choice in found.menu if choice.seeds == 5).bill
    base, mqa = (space.plan(name).predicted.flops for name in ("base", "mqa"))
    assert five.runs == 2 + 3
    assert five.flops == pytest.approx(2 * base + 3 * mqa)
    scored = 2 * evaluation_flops(space.plan("base"), space.params.eval)
    scored += 3 * evaluation_flops(space.plan("mqa"), space.params.eval)
    assert five.hours == pytest.approx((2 * base + 3 * mqa + scored) / 1e11 / 3600)
    two = next(choice for choice in found.menu if choice.seeds == 2).bill
    assert (two.runs, two.flops, two.hours) == (0, 0.0, 0.0)


def test_an_evaluation_costs_a_forward_pass_for_each_token_scored(space: Workspace) -> None:
    plan, once = space.plan("base"), dataclasses.replace(space.params.eval, stride=0.5, contexts=[])
    forward = plan.predicted.flops_per_token / 3
    by_hand = forward * (plan.train.evals * plan.corpus.val_tokens + 2 * plan.corpus.test_tokens)
    assert evaluation_flops(plan, once) == pytest.approx(by_hand)
    more = dataclasses.replace(once, contexts=[64, 256])
    assert evaluation_flops(plan, more) == pytest.approx(by_hand + forward * 2 * 2 * plan.corpus.test_tokens)


def test_a_diverged_run_has_to_be_run_again(space: Workspace) -> None:
    found = outlook(space.params, known_of(space, base={**BASE, 3: None}, mqa=3))
    assert next(choice for choice in found.menu if choice.seeds == 4).bill.runs == 2


def test_arms_that_are_the_same_are_paid_once_and_arms_to_come_like_the_control(space: Workspace) -> None:
    twins = {**ARMS, "twin": {"model.n_kv_head": 1}, "same": {"model.n_kv_head": 4}}
    params = space.set_params(text_of(twins, [0, 1, 2]))
    found = outlook(params, known_of(space))
    assert found.arms == 1
    more = outlook(params, known_of(space), arms=3)
    assert more.arms == 3
    base, mqa = (space.plan(name).predicted.flops for name in ("base", "mqa"))
    three = next(choice for choice in more.menu if choice.seeds == 3).bill
    assert three.runs == 0 + 3 + 3 + 3
    assert three.flops == pytest.approx(3 * mqa + 6 * base)


def test_the_speed_is_the_median_of_the_last_runs_or_the_one_given(space: Workspace) -> None:
    rates = [3.0, 1.0, 2.0] + [100.0] * LAST
    known = Known(rates=rates)
    speed = known.speed(1000, None)
    assert speed is not None
    assert speed.flops_per_s == 100.0
    assert speed.source == f"median of the last {LAST} runs"
    few = Known(rates=rates[:3]).speed(1000, None)
    assert few is not None
    assert few.flops_per_s == 2.0
    given = Known().speed(1000, 50.0)
    assert given is not None
    assert given.flops_per_s == 50_000.0
    assert Known().speed(1000, None) is None


# --- what stands already


def test_runs_of_this_workspace_are_known_without_a_store(space: Workspace) -> None:
    for seed, bpb in BASE.items():
        space.run("base", seed, bpb)
    space.run("mqa", 0, None)
    known = known_runs(space.params)
    assert not (space.root / "mlflow.db").exists(), "asking makes no store"
    assert known.finished(space.plan("base")) == BASE
    assert known.results[space.plan("mqa").config_hash] == {0: None}
    assert len(known.rates) == 3, "a run that diverged says nothing of speed"
    record = json.loads(space.record("base", 2).read_text())
    assert known.rates[0] == pytest.approx(record["flops"] / record["timing"]["train_s"])


@pytest.mark.parametrize("field", ["config_hash", "data_digest", "protocol_hash"])
def test_runs_of_something_else_do_not_count(space: Workspace, field: str) -> None:
    for seed, bpb in BASE.items():
        space.run("base", seed, bpb, evaluation={field: "f" * 16})
    assert known_runs(space.params).finished(space.plan("base")) == {}


def test_a_resumed_run_says_nothing_of_speed(space: Workspace) -> None:
    space.run("base", 0, 1.5)
    record = json.loads(space.record("base", 0).read_text())
    space.change(space.record("base", 0), timing=record["timing"] | {"resumed": 1})
    assert known_runs(space.params).rates == []


def test_half_written_files_are_passed_over(space: Workspace) -> None:
    space.run("base", 0, 1.5)
    space.run("base", 1, 1.6)
    space.evaluation("base", 0).write_text('{"bpb": 1')
    space.record("base", 1).write_text("[")
    known = known_runs(space.params)
    assert known.finished(space.plan("base")) == {1: 1.6}


def test_runs_are_found_in_the_store_and_in_reports(space: Workspace) -> None:
    for seed, bpb in BASE.items():
        space.run("base", seed, bpb)
        space.run("mqa", seed, bpb + 0.01)
    study = analyse(collect(space.params))
    for name in ARMS:
        for seed in BASE:
            space.remove(name, seed)
    known = known_runs(space.params)
    assert known.finished(space.plan("base")) == BASE
    assert len(known.rates) == 6
    shutil.rmtree(space.root / "mlartifacts")
    (space.root / "mlflow.db").unlink()
    assert known_runs(space.params).finished(space.plan("base")) == {}
    write_json(space.root / "reports" / "kv_heads" / "study.json", study)
    reported = known_runs(space.params)
    assert reported.finished(space.plan("base")) == BASE
    cost = study["arms"][0]["cost"]
    assert reported.rates[0] == cost["flops"] / cost["train_s"]
    speed = reported.speed(1000, None)
    assert speed is not None
    assert speed.source == "median of the last 2 arms in reports, on the machine they ran on"
    study["corpus"]["data_digest"] = "another corpus"
    write_json(space.root / "reports" / "kv_heads" / "study.json", study)
    assert known_runs(space.params).finished(space.plan("base")) == {}


# --- the command


def run_command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *argv: str) -> str:
    monkeypatch.setattr("sys.argv", ["power", *argv])
    command.main()
    return capsys.readouterr().out


def test_the_command_prints_json(
    space: Workspace, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for seed, bpb in BASE.items():
        space.run("base", seed, bpb)
    found = json.loads(run_command(monkeypatch, capsys, "--json", "--margin", "0.02", "--arms", "2"))
    assert (found["margin"], found["arms"], found["control"]) == (0.02, 2, "base")
    assert found["noise"]["sd"] == pytest.approx(0.01)
    assert found["goals"][0]["seeds"] == seeds_needed(0.01, 0.02, 2).difference
    # Three runs stand, two arms have none.
    assert next(choice for choice in found["menu"] if choice["seeds"] == 3)["bill"]["runs"] == 6


def test_a_study_is_asked_about_before_it_is_applied(
    space: Workspace, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    study = {"question": "?", "reasoning": "", "margin": 0.05, "predictions": [], "control": "base", "seeds": [0, 1]}
    study |= {"arms": {"base": {}, "a": {"model.n_kv_head": 1}, "b": {"model.n_kv_head": 2}}, "params": {}}
    write_json(space.root / "experiments" / "wide.yaml", study)  # JSON is YAML
    before = (space.root / "params.yaml").read_text()
    found = json.loads(run_command(monkeypatch, capsys, "--study", "wide", "--sd", "0.01", "--json"))
    assert (found["study"], found["arms"], found["margin"], found["seeds"]) == ("wide", 2, 0.05, [0, 1])
    assert (space.root / "params.yaml").read_text() == before


def test_the_tables_say_what_was_found(space: Workspace) -> None:
    console = Console(record=True, width=120, file=io.StringIO())
    found = outlook(space.params, known_of(space, mqa=2))
    show(found, console)
    text = console.export_text()
    assert "noise floor 0.0100 bpb: 3 seeds of base" in text
    assert "more than 100" in text
    assert "3 (params.yaml)" in text
    assert str(found.goals[0].seeds) in text
    assert "1.00e11 FLOP/s" in text


@pytest.mark.parametrize("argv", [["--sd", "0"], ["--margin", "nan"], ["--arms", "0"], ["--power", "1"]])
def test_impossible_values_are_refused(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        command.arguments(argv)
    assert argv[0] in capsys.readouterr().err


def test_a_fresh_clone_has_plans_and_evaluations_but_no_tokens(space: Workspace) -> None:
    for seed, bpb in BASE.items():
        space.run("base", seed, bpb)
    plan = space.plan("base")
    shutil.rmtree(space.root / "data")
    shutil.rmtree(space.root / "experiments/runs")
    assert plan_of(space.params, "base") == plan
    known = known_runs(space.params)
    assert known.finished(plan) == BASE
    assert outlook(space.params, known).noise.sd == pytest.approx(0.01)
    # A plan of another configuration says nothing of this one: then the tokens are asked for.
    other = parse_params(text_of({"base": {"model.d_ff": 320}, **{"mqa": ARMS["mqa"]}}, [0]), "params.yaml")
    with pytest.raises(IsoflopError, match="dvc repro tokenize@byte"):
        plan_of(other, "base")
    (space.root / "experiments/plan/base.yaml").unlink()
    with pytest.raises(IsoflopError, match="dvc repro tokenize@byte"):
        plan_of(space.params, "base")
