"""Arms that change nothing: simulated, split from real seeds, and trained."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console

from conftest import ROOT
from isoflop import placebo
from isoflop.errors import IsoflopError
from isoflop.machine import this_machine
from isoflop.placebo import Placebo, show, simulate
from isoflop.power.outlook import Noise
from isoflop.statistics.verdicts import Comparison, compare
from isoflop.study import read_study
from test_training import plan_of, trained, without_times

FOUR = {0: 1.50, 1: 1.51, 2: 1.49, 5: 1.505}


def run(*, sd: float = 0.005, margin: float = 0.01, studies: int = 300, **fields: Any) -> Placebo:
    values: dict[str, Any] = {"seeds": 3, "arms": 2, "correlation": 0.0, "random": 0, "own": {}} | fields
    return simulate(Noise(sd=sd, interval=None, source=""), margin, studies=studies, **values)


@pytest.mark.slow
@pytest.mark.parametrize(("seeds", "arms", "sd"), [(3, 1, 0.005), (5, 3, 0.005), (2, 2, 0.05), (5, 2, 0.001)])
def test_the_rule_keeps_its_promises(seeds: int, arms: int, sd: float) -> None:
    found = run(seeds=seeds, arms=arms, sd=sd, studies=1000)
    assert found.kept
    equal, _, both = found.trials
    assert sum(equal.words.values()) == 1000 * arms
    assert both.promises[0].studies == 2 * 1000 * arms
    assert equal.promises[0].found <= 0.05 + 3 * (0.05 * 0.95 / 1000) ** 0.5


def test_a_rule_that_is_too_quick_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def hasty(control: Any, arms: Any, *, margin: float) -> dict[str, Comparison]:
        return compare(control, arms, margin=margin, confidence=0.8)

    monkeypatch.setattr(placebo, "compare", hasty)
    found = run()
    assert not found.kept
    assert [promise.kept for trial in found.trials for promise in trial.promises] == [False, False, False]


def test_the_same_arguments_give_the_same_counts_and_units_do_not_matter() -> None:
    one = run(studies=60)
    assert run(studies=60) == one
    scaled = run(studies=60, sd=0.05, margin=0.1)
    assert [trial.words for trial in scaled.trials] == [trial.words for trial in one.trials]
    assert run(studies=60, random=1) != one


def test_less_noise_shows_equivalence_more_often() -> None:
    def equivalent(found: Placebo) -> int:
        return found.trials[0].words.get("equivalent", 0)

    assert equivalent(run(sd=0.001, studies=60)) > equivalent(run(sd=0.005, studies=60))
    assert equivalent(run(correlation=0.95, studies=60)) > equivalent(run(studies=60))


def test_the_controls_own_seeds_are_split_in_every_way() -> None:
    # Four seeds: the half with the first of them decides, 3 ways; five seeds: 2 of 5 against 2 of the rest, 10.
    assert sum(run(studies=1, own=FOUR).splits.values()) == 3
    assert sum(run(studies=1, own=FOUR | {6: 1.52}).splits.values()) == 10
    assert run(studies=1, own={seed: FOUR[seed] for seed in (0, 1, 2)}).splits == {}


def test_a_split_is_judged_like_any_arm(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[Mapping[int, float], Mapping[int, float]]] = []

    def spy(control: Any, arms: Any, *, margin: float) -> dict[str, Comparison]:
        if "half" in arms:
            seen.append((control, arms["half"]))
        return compare(control, arms, margin=margin)

    monkeypatch.setattr(placebo, "compare", spy)
    run(studies=1, own=FOUR)
    assert seen == [
        ({0: 1.50, 1: 1.51}, {0: 1.49, 1: 1.505}),
        ({0: 1.50, 1: 1.49}, {0: 1.51, 1: 1.505}),
        ({0: 1.50, 1: 1.505}, {0: 1.51, 1: 1.49}),
    ]


def test_what_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    show(run(studies=40, own=FOUR), Console(width=120))
    text = capsys.readouterr().out
    assert "40 studies per truth: 2 arms beside the control, 3 seeds each" in text
    assert text.count("kept") + text.count("BROKEN") == 3
    assert "split in two in 3 ways" in text
    assert "it takes four finished ones" not in text


def test_the_command_ends_with_1_where_a_promise_is_broken(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Nobody:
        @staticmethod
        def finished(_: Any) -> dict[int, float]:
            return {}

    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(placebo, "known_runs", lambda _: Nobody())
    monkeypatch.setattr(placebo, "plan_of", lambda *_: None)
    monkeypatch.setattr("sys.argv", ["placebo", "--sd", "0.004", "--studies", "150", "--json"])
    placebo.main()
    found = json.loads(capsys.readouterr().out)
    assert found["kept"] is True
    assert found["noise"]["sd"] == 0.004
    monkeypatch.setattr(placebo, "ALPHA", 0.0)
    with pytest.raises(SystemExit, match="1"):
        placebo.main()


@pytest.mark.parametrize(
    ("argv", "words"), [(["--seeds", "1"], "one seed gives no verdict"), (["--correlation", "1"], r"lie in \[0, 1\)")]
)
def test_impossible_values_are_refused(argv: list[str], words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr("sys.argv", ["placebo", "--sd", "0.004", *argv])
    with pytest.raises(IsoflopError, match=words):
        placebo.main()


# --- the arm that is really trained


def test_the_placebo_study_changes_nothing_that_reaches_the_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    study = read_study("placebo")
    assert study.arms == {"base": {}, "placebo": {"train.log_points": 50}}
    machine = this_machine("float32", tmp_path / "machine.json")
    plans = plan_of(), plan_of(("log_points: 7", "log_points: 3"))
    assert plans[0].config != plans[1].config
    runs = [trained(plan, machine, tmp_path / str(i)) for i, plan in enumerate(plans)]
    for name, weight in runs[0][0].state_dict().items():
        assert torch.equal(weight, runs[1][0].state_dict()[name]), name
    # What is measured on val is the same as well; only the training loss is meant over other steps.
    val = [
        {step: row["val/bpb"] for step, row in without_times(progress.rows) if "val/bpb" in row} for _, progress in runs
    ]
    assert val[0] == val[1]
    assert len(runs[0][1].rows) > len(runs[1][1].rows)
