"""Plan, train and evaluate as DVC calls them, one after the other in a working folder, without DVC and MLflow."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from conftest import params_text
from finished import SMALL
from isoflop import paths
from isoflop.config import TokenizerSpec
from isoflop.errors import IsoflopError
from isoflop.occasion import occasion
from isoflop.plan import Plan
from isoflop.recorder import Recorders
from isoflop.stages import evaluate as evaluate_stage
from isoflop.stages import plan as plan_stage
from isoflop.stages import train as train_stage
from isoflop.tokenizing import write_tokens
from rawfiles import data_config, make_raw

STORY = b"Once upon a time there was a cat. The cat sat on a mat, and then it ran away. "
STORIES = [STORY[i % 7 :] for i in range(20)]
QUICK = (
    *SMALL,
    ("flops: 4.0e+12", "flops: null"),
    ("steps: null", "steps: 6"),
    ("warmup_steps: 50", "warmup_steps: 1"),
    ("precision: auto", "precision: float32"),
)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with params.yaml and tokens; no repository, no store."""
    for name in ("DVC_ROOT", "DVC_EXP_BASELINE_REV"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(train_stage, "MlflowRecorder", lambda *_, **__: Recorders())
    monkeypatch.setattr(train_stage, "StopSignal", lambda: SimpleNamespace(stopped=False))
    make_raw(paths.RAW, STORIES, STORIES)
    write_tokens(paths.RAW, paths.TOKENS / "byte", TokenizerSpec(kind="byte"), data_config(300, 200))
    write_params()
    return tmp_path


def write_params(*replacements: tuple[str, str]) -> None:
    paths.PARAMS.write_text(params_text(*QUICK, *replacements), encoding="utf-8")


def run(stage: Any, monkeypatch: pytest.MonkeyPatch, *arguments: str) -> None:
    monkeypatch.setattr("sys.argv", [stage.__name__, *arguments])
    stage.main()


def planned(monkeypatch: pytest.MonkeyPatch, arm: str = "base") -> bytes:
    """The plan file, made anew: all that DVC compares before it trains."""
    run(plan_stage, monkeypatch, arm)
    return (paths.PLANS / f"{arm}.yaml").read_bytes()


def test_only_what_decides_the_weights_changes_the_plan(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = planned(monkeypatch)
    for same in (
        ("name: quickstart", "name: another"),
        ("checkpoint_s: 20", "checkpoint_s: 3"),
        ("  mqa: {model.n_kv_head: 1}", "  mqa: {model.n_kv_head: 1}\n  wide: {model.d_ff: 96}"),
        ("  base: {}", "  base: {model.n_kv_head: 4}"),
        ("seeds: [0, 1, 2]", "seeds: [7]"),
        ("control: base", "control: mqa"),
    ):
        write_params(same)
        assert planned(monkeypatch) == before, same
    for other in (("evals: 8", "evals: 2"), ("log_points: 100", "log_points: 3"), ("beta1: 0.9", "beta1: 0.8")):
        write_params(other)
        assert planned(monkeypatch) != before, other


def test_a_run_says_for_which_study_it_was_trained(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    planned(monkeypatch, "mqa")
    write_params(("name: quickstart", "name: another"))
    run(train_stage, monkeypatch, "mqa", "0")
    record = json.loads((paths.RUNS / "mqa-0" / "run.json").read_text())
    assert (record["study"], record["arm"], record["label"]) == ("another", "mqa", "mqa")
    assert record["changes"] == {"model.n_kv_head": 1}
    assert not list((paths.local() / "checkpoints").iterdir()), "a finished run leaves nothing to resume from"


def test_the_time_between_checkpoints_is_read_when_the_run_starts(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    planned(monkeypatch)
    write_params(("checkpoint_s: 20", "checkpoint_s: 3"))
    plan = Plan.read(paths.PLANS / "base.yaml")
    assert occasion(plan).checkpoint_s == 3.0
    write_params(("  base: {}", "  other: {}"), ("control: base", "control: other"))
    with pytest.raises(IsoflopError, match=r"params\.yaml: arms has no 'base'; it has other, mqa"):
        occasion(plan)


def test_a_run_evaluated_again_gives_the_same_file(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    planned(monkeypatch)
    run(train_stage, monkeypatch, "base", "0")
    file, written = paths.EVALUATIONS / "base-0.json", []
    for _ in range(2):
        run(evaluate_stage, monkeypatch, "base", "0")
        written.append(file.read_bytes())
    assert written[0] == written[1]
    assert json.loads(written[0])["bpb"] > 0
