"""What is gathered, what is left out and why: a real workspace, a real repository, a real store."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from isoflop.analysis import analyse
from isoflop.collected import Collected, CollectedArm
from isoflop.collecting import collect
from isoflop.collecting.earlier import MAX_EARLIER, OTHER_BUDGET, OTHER_CODE, TOO_MANY, UNASKED
from isoflop.protocol import protocol_hash
from isoflop.stages import collect as collect_stage
from isoflop.stages import report as report_stage
from isoflop.tracking.database import ensure_store
from isoflop.tracking.queries import all_runs
from studies import ARMS, EIGHT, params_text
from workspace import Workspace

# mlflow's models of its tables use a loader option that sqlalchemy 2.1 deprecates; nothing here can change that.
pytestmark = pytest.mark.filterwarnings("ignore:The ``noload`` loader strategy:DeprecationWarning")


def text_of(arms: Any, seeds: Any, **study: Any) -> str:
    """params.yaml with short histories: the store takes its time for each point."""
    text = params_text(arms, seeds, **study)
    assert "log_points: 100" in text
    return text.replace("log_points: 100", "log_points: 8")


KV2 = {"base": {"model.n_kv_head": 2}, "mqa": {"model.n_kv_head": 1}}
BPB = {("base", 0): 1.50, ("base", 1): 1.51, ("mqa", 0): 1.53, ("mqa", 1): 1.52}


@pytest.fixture(scope="session")
def empty_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One freshly made database, to be copied: making one takes seconds."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("MLFLOW_TRACKING_URI", raising=False)
        root = tmp_path_factory.mktemp("store")
        ensure_store(root)
    return root / "mlflow.db"


@pytest.fixture
def space(tmp_path: Path, empty_store: Path, monkeypatch: pytest.MonkeyPatch) -> Workspace:
    """Two arms with two seeds each, committed; their runs are here, the store is empty."""
    for name in ("MLFLOW_TRACKING_URI", "DVC_ROOT", "DVC_EXP_BASELINE_REV"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    shutil.copy(empty_store, tmp_path / "mlflow.db")
    made = Workspace(tmp_path, text_of(ARMS, [0, 1]))
    for (arm, seed), bpb in BPB.items():
        made.run(arm, seed, bpb)
    made.commit()
    return made


def gather(space: Workspace) -> Collected:
    return collect(space.params)


def arm(found: Collected, label: str) -> CollectedArm:
    return next(each for each in found.arms if each.label == label)


def values(found: CollectedArm) -> dict[int, float | None]:
    return {run.seed: run.bpb for run in found.runs}


def origins(found: CollectedArm) -> dict[int, str]:
    return {run.seed: run.origin for run in found.runs}


def left_out(found: Collected) -> list[tuple[str, int, str]]:
    return [(entry.label, entry.seed, entry.reason) for entry in found.excluded]


def experiment(space: Workspace, **fields: Any) -> Workspace:
    """What `dvc exp run -S model.n_kv_head=2` leaves: base trained anew, its committed runs in the store only."""
    gather(space)
    for seed in (0, 1):
        space.remove("base", seed)
    space.set_params(text_of(KV2, fields.pop("seeds", [0, 1])))
    for seed in space.params.seeds:
        space.run("base", seed, 1.6 + 0.01 * seed, **fields)
    return space


def without_store(space: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same files where there is no store. Elsewhere, because mlflow holds a database that is deleted open."""
    elsewhere = space.root.with_name(f"{space.root.name}_elsewhere")
    shutil.copytree(space.root, elsewhere, ignore=shutil.ignore_patterns("mlflow.db*", "mlartifacts"))
    monkeypatch.chdir(elsewhere)
    space.root = elsewhere


# --- the workspace


def test_a_study_as_committed(space: Workspace) -> None:
    found = gather(space)
    assert [(each.label, each.role) for each in found.arms] == [("base", "control"), ("mqa", "planned")]
    assert values(found.arms[0]) == {0: 1.50, 1: 1.51}
    assert values(found.arms[1]) == {0: 1.53, 1: 1.52}
    assert found.arms[1].changes == {"model.n_kv_head": 1}
    assert found.control_note == "The control is base as committed; its runs come from this workspace."
    assert found.excluded == []
    assert found.warnings == []
    run = found.arms[0].runs[0]
    assert run.history[-1]["val/bpb"] == pytest.approx(1.52)
    assert run.history[0]["time/tokens_per_s"] > 0, "timing.csv is part of it"
    assert run.run_id
    assert run.record is not None


def test_nothing_changes_where_nothing_changed(space: Workspace) -> None:
    first = json.dumps(analyse(gather(space)))
    assert json.dumps(analyse(gather(space))) == first
    space.commit()
    assert json.dumps(analyse(gather(space))) == first, "a commit alone changes nothing"


def test_arms_that_resolve_to_one_configuration_are_one(space: Workspace) -> None:
    space.set_params(text_of({"twin": {"model.n_kv_head": 4}, **ARMS, "zmqa": {"model.n_kv_head": 1}}, [0, 1]))
    text = (space.root / "params.yaml").read_text().replace("control: twin", "control: base")
    space.set_params(text)
    found = gather(space)
    assert [each.label for each in found.arms] == ["base", "mqa"]
    assert [each.same_as for each in found.arms] == [["twin"], ["zmqa"]]


@pytest.mark.parametrize(
    ("field", "reason"),
    [
        ("run_uid", "its evaluation belongs to another run of this arm and seed"),
        ("config_hash", "its evaluation belongs to another configuration or corpus"),
        ("data_digest", "its evaluation belongs to another configuration or corpus"),
        ("protocol_hash", "it was evaluated by another protocol than params.yaml asks for"),
    ],
)
def test_a_stale_evaluation_is_left_out_and_named(space: Workspace, field: str, reason: str) -> None:
    space.change(space.evaluation("mqa", 1), **{field: "f" * 16})
    found = gather(space)
    assert left_out(found) == [("mqa", 1, reason)]
    assert values(arm(found, "mqa")) == {0: 1.53}
    assert arm(found, "mqa").missing_seeds == [1]
    assert values(found.arms[0]) == {0: 1.50, 1: 1.51}


@pytest.mark.parametrize("content", ['{"run_uid": "a', "[]", "", '{"run_uid": "a"}', "null"])
@pytest.mark.parametrize("which", ["evaluation", "record"])
def test_a_half_written_file_costs_its_run_only(space: Workspace, which: str, content: str) -> None:
    getattr(space, which)("mqa", 0).write_text(content)
    found = gather(space)
    what = "its evaluation" if which == "evaluation" else "its run.json"
    assert left_out(found) == [("mqa", 0, f"{what} is missing or half written")]
    assert values(arm(found, "mqa")) == {1: 1.52}
    assert arm(found, "mqa").missing_seeds == [0]


def test_a_run_whose_curves_are_damaged_still_has_its_result(space: Workspace) -> None:
    (space.record("mqa", 0).parent / "history.csv").write_text("step,val/bpb\n10,ab")
    (space.record("mqa", 1).parent / "history.csv").unlink()
    found = gather(space)
    assert values(arm(found, "mqa")) == {0: 1.53, 1: 1.52}
    assert all("val/bpb" not in row for run in arm(found, "mqa").runs for row in run.history)
    assert found.warnings, "the store could not take it"


def test_a_deleted_seed_is_missing(space: Workspace) -> None:
    space.remove("mqa", 1)
    found = gather(space)
    assert arm(found, "mqa").missing_seeds == [1]
    assert left_out(found) == []
    told = analyse(found)["arms"][1]
    assert told["missing"] == [1]
    assert told["comparison"]["pairs"]["seeds"] == [0]


def test_a_seed_that_the_store_still_has_is_not_missing(space: Workspace) -> None:
    gather(space)
    space.remove("mqa", 1)
    found = gather(space)
    assert values(arm(found, "mqa")) == {0: 1.53, 1: 1.52}
    assert origins(arm(found, "mqa")) == {0: "workspace", 1: "store"}
    assert arm(found, "mqa").missing_seeds == []


def test_a_diverged_run_is_there_and_has_no_result(space: Workspace) -> None:
    space.run("mqa", 1, None)
    found = gather(space)
    assert values(arm(found, "mqa")) == {0: 1.53, 1: None}
    assert arm(found, "mqa").runs[1].diverged


def test_without_git_the_control_is_the_file_as_it_stands(space: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.rmtree(space.root / ".git")
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(space.root.parent))
    found = gather(space)
    assert [(each.label, each.role) for each in found.arms] == [("base", "control"), ("mqa", "planned")]
    assert found.baseline_rev is None


# --- from files to the report


def report_of(space: Workspace) -> str:
    """report.md as the two stages write it."""
    collect_stage.main()
    report_stage.main()
    return (space.root / "reports/kv_heads/report.md").read_text()


def test_one_evaluation_file_changes_the_report_and_nothing_else_does(space: Workspace) -> None:
    before = report_of(space)
    written = {path: path.read_bytes() for path in (space.root / "reports").rglob("*") if path.is_file()}
    assert report_of(space) == before
    assert written == {path: path.read_bytes() for path in (space.root / "reports").rglob("*") if path.is_file()}
    space.change(space.evaluation("mqa", 1), bpb=1.56)
    after = report_of(space)
    # Differences +0.03 and +0.01 become +0.03 and +0.05.
    assert ("+0.0200" in before, "+0.0400" in before) == (True, False)
    assert ("+0.0200" in after, "+0.0400" in after) == (False, True)
    assert "| `mqa` | 1 | finished | 1.5600 |" in after


def test_a_deleted_seed_is_said_in_the_report(space: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "no run of seed" not in report_of(space)
    space.remove("mqa", 1)
    without_store(space, monkeypatch)
    text = report_of(space)
    assert "`mqa`: no run of seed 1, which params.yaml asks for" in text
    assert "There is no verdict on `mqa`" in text


# --- the control as committed


def test_an_experiment_is_compared_with_the_committed_control_of_the_store(space: Workspace) -> None:
    found = gather(experiment(space))
    assert [(each.label, each.role) for each in found.arms] == [
        ("base", "control"),
        ("mqa", "planned"),
        ("base · n_kv_head=2", "exploratory"),
    ]
    assert values(found.arms[0]) == {0: 1.50, 1: 1.51}
    assert set(origins(found.arms[0]).values()) == {"store"}
    assert values(found.arms[2]) == {0: 1.60, 1: 1.61}
    assert found.arms[2].changes == {"model.n_kv_head": 2}
    assert "its runs come from the MLflow store" in found.control_note


def test_a_diverged_seed_of_the_control_is_found_in_the_store(space: Workspace) -> None:
    space.run("base", 1, None)
    found = gather(experiment(space))
    assert values(found.arms[0]) == {0: 1.50, 1: None}
    assert analyse(found)["arms"][0]["diverged"][0]["seed"] == 1


def test_in_a_fresh_clone_the_committed_evaluations_are_the_control(space: Workspace, empty_store: Path) -> None:
    for seed in (0, 1):
        space.remove("base", seed)
    space.set_params(text_of(KV2, [0]))
    space.run("base", 0, 1.6)
    found = gather(space)
    assert values(found.arms[0]) == {0: 1.50, 1: 1.51}
    assert set(origins(found.arms[0]).values()) == {"git"}
    assert found.arms[0].runs[0].record is None
    assert "its runs come from the evaluations in commit" in found.control_note


def test_the_commit_fills_in_what_the_store_lacks(space: Workspace) -> None:
    space.remove("base", 1)
    gather(space)  # seed 0 goes into the store
    space.remove("base", 0)
    space.set_params(text_of(KV2, [0, 1]))
    found = gather(space)
    assert origins(found.arms[0]) == {0: "store", 1: "git"}
    assert "the evaluations in commit" in found.control_note
    assert "and the MLflow store" in found.control_note
    assert found.arms[0].missing_seeds == []


def test_a_seed_of_the_committed_control_that_is_nowhere_is_missing(space: Workspace) -> None:
    space.evaluation("base", 1).unlink()
    space.commit()
    space.remove("base", 1)
    found = gather(experiment(space))
    assert values(found.arms[0]) == {0: 1.50}
    assert found.arms[0].missing_seeds == [1]


@pytest.mark.parametrize("field", ["config_hash", "data_digest", "protocol_hash"])
def test_a_committed_evaluation_of_something_else_is_no_control(space: Workspace, field: str) -> None:
    for seed in (0, 1):
        space.change(space.evaluation("base", seed), **{field: "f" * 16})
    space.commit()
    for seed in (0, 1):
        space.remove("base", seed)
    space.set_params(text_of(KV2, [0, 1]))
    space.run("base", 0, 1.6)
    found = gather(space)
    assert found.arms[0].label == "base · n_kv_head=2"
    assert "has no runs on these stories" in found.control_note
    assert "base" not in [each.label for each in found.arms]


def test_a_run_of_another_study_is_the_control_where_its_configuration_is(space: Workspace) -> None:
    gather(space)
    for name, seed in BPB:
        space.remove(name, seed)
    space.set_params(text_of(ARMS, [0, 1], name="other"))
    for seed in (0, 1):
        space.evaluation("base", seed).unlink(missing_ok=True)
    found = gather(space)
    assert values(found.arms[0]) == {0: 1.50, 1: 1.51}
    assert set(origins(found.arms[0]).values()) == {"store"}


def test_another_study_compares_the_runs_that_stand_and_links_them_where_they_are(
    space: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = gather(space)
    space.set_params(text_of(ARMS, [0, 1], name="other"))
    found = gather(space)
    assert found.arms == before.arms, "the same runs, linked to the same places in MLflow"
    assert found.excluded == []
    without_store(space, monkeypatch)
    again = gather(space)
    assert [values(each) for each in again.arms] == [values(each) for each in before.arms]
    assert all(run.run_id for each in again.arms for run in each.runs)
    stored = all_runs(space.root, data_digest="d" * 64, protocol_hash=protocol_hash(space.params.eval))
    assert {each.tags["study"] for each in stored} == {"kv_heads"}, "the study that they were trained for"


def test_a_seed_that_the_user_removed_is_neither_shown_nor_missing(space: Workspace) -> None:
    gather(space)
    space.set_params(text_of(ARMS, [0]))
    found = gather(space)
    assert [values(each) for each in found.arms] == [{0: 1.50}, {0: 1.53}]
    assert [each.missing_seeds for each in found.arms] == [[], []]
    assert sorted(left_out(found)) == [("base", 1, UNASKED), ("mqa", 1, UNASKED)]


def test_a_seed_that_the_user_removed_is_no_gap_of_the_committed_control(space: Workspace) -> None:
    space.evaluation("base", 1).unlink()
    space.commit()
    space.remove("base", 1)
    found = gather(experiment(space, seeds=[0]))
    assert values(found.arms[0]) == {0: 1.50}
    assert found.arms[0].missing_seeds == [], "seed 1 is committed, and nobody asks for it now"
    assert values(arm(found, "mqa")) == {0: 1.53}


def test_all_committed_seeds_of_a_control_that_changed_tell_the_noise(space: Workspace) -> None:
    found = gather(experiment(space, seeds=[0]))
    assert values(found.arms[0]) == {0: 1.50, 1: 1.51}
    assert values(arm(found, "base · n_kv_head=2")) == {0: 1.60}
    assert values(arm(found, "mqa")) == {0: 1.53}


def test_a_seed_that_other_code_trained_does_not_fill_in(space: Workspace) -> None:
    record = json.loads(space.record("mqa", 1).read_text())
    space.change(space.record("mqa", 1), provenance=record["provenance"] | {"code_digest": "older"})
    gather(space)
    space.remove("mqa", 1)
    found = gather(space)
    assert values(arm(found, "mqa")) == {0: 1.53}
    assert arm(found, "mqa").missing_seeds == [1]
    assert left_out(found) == [("mqa", 1, OTHER_CODE)]


def test_a_committed_control_with_another_budget_is_no_control(space: Workspace) -> None:
    gather(space)
    text = (space.root / "params.yaml").read_text()
    assert "flops: 4000000000000.0" in text
    space.set_params(text.replace("flops: 4000000000000.0", "flops: 6000000000000.0"))
    for name, seed in BPB:
        space.run(name, seed, 1.4 + 0.01 * seed)
    found = gather(space)
    assert found.arms[0].label == "base · budget.flops=6e+12"
    assert "was given another compute budget" in found.control_note
    assert [each.role for each in found.arms] == ["control", "exploratory"]
    assert {reason for _, _, reason in left_out(found)} <= {OTHER_BUDGET}


# --- the rest of the store


def earlier(space: Workspace, changes: dict[str, Any], *runs: tuple[int, float], started: str | None = None) -> None:
    """Runs of `base` with other settings, in the store and not in the workspace."""
    now = (space.root / "params.yaml").read_text()
    space.set_params(text_of({"base": changes, "mqa": ARMS["mqa"]}, [seed for seed, _ in runs]))
    kept = {
        seed: space.evaluation("base", seed).read_text() for seed, _ in runs if space.evaluation("base", seed).exists()
    }
    records = {seed: space.record("base", seed).read_text() for seed in kept}
    for seed, bpb in runs:
        space.run("base", seed, bpb, started=started)
    gather(space)
    for seed, _ in runs:
        space.remove("base", seed)
    space.set_params(now)
    for seed in kept:
        space.run("base", seed, BPB["base", seed])
        space.evaluation("base", seed).write_text(kept[seed])
        space.record("base", seed).write_text(records[seed])


def test_an_earlier_configuration_never_moves_a_planned_verdict(space: Workspace) -> None:
    before = analyse(gather(space))
    earlier(space, {"train.weight_decay": 0.2}, (0, 1.40), (1, 1.49))
    found = gather(space)
    assert [(each.label, each.role) for each in found.arms] == [
        ("base", "control"),
        ("mqa", "planned"),
        ("base · weight_decay=0.2", "earlier"),
    ]
    assert values(found.arms[2]) == {0: 1.40, 1: 1.49}
    assert set(origins(found.arms[2]).values()) == {"store"}
    after = analyse(found)
    assert after["arms"][:2] == before["arms"]
    assert after["noise"] == before["noise"]
    assert after["arms"][2]["comparison"]["verdict"]["word"] != "no verdict"


def test_another_budget_is_left_out_and_named(space: Workspace) -> None:
    earlier(space, {"train.budget.flops": 5e12}, (0, 1.40))
    found = gather(space)
    assert [each.label for each in found.arms] == ["base", "mqa"]
    assert left_out(found) == [("base · budget.flops=5e+12", 0, OTHER_BUDGET)]


def test_a_budget_within_one_per_cent_is_compared(space: Workspace) -> None:
    earlier(space, {"train.budget.flops": 4.02e12}, (0, 1.40))
    assert [each.role for each in gather(space).arms] == ["control", "planned", "earlier"]


def test_seeds_that_nobody_asked_for_do_not_join_a_planned_arm(space: Workspace) -> None:
    before = analyse(gather(space))
    earlier(space, {}, (7, 1.2))
    found = gather(space)
    assert values(found.arms[0]) == {0: 1.50, 1: 1.51}
    assert left_out(found) == [("base", 7, UNASKED)]
    assert analyse(found)["arms"] == before["arms"]


def test_of_two_runs_of_one_seed_the_latest_counts_and_the_workspace_before_the_store(space: Workspace) -> None:
    earlier(space, {"train.weight_decay": 0.2}, (0, 1.40), started="2026-01-01T00:00:00+00:00")
    earlier(space, {"train.weight_decay": 0.2}, (0, 1.45), started="2026-01-02T00:00:00+00:00")
    earlier(space, {"train.weight_decay": 0.2}, (0, 1.43), started="2026-01-01T12:00:00+00:00")
    earlier(space, {}, (0, 9.0), started="2027-01-01T00:00:00+00:00")
    found = gather(space)
    assert values(arm(found, "base · weight_decay=0.2")) == {0: 1.45}
    assert values(found.arms[0]) == {0: 1.50, 1: 1.51}


def test_an_earlier_run_by_another_protocol_is_not_compared(space: Workspace) -> None:
    earlier(space, {"train.weight_decay": 0.2}, (0, 1.40))
    text = (space.root / "params.yaml").read_text()
    assert "stride: 0.5" in text
    space.set_params(text.replace("stride: 0.5", "stride: 0.25"))
    for (name, seed), bpb in BPB.items():
        space.run(name, seed, bpb)
    assert [each.label for each in gather(space).arms] == ["base", "mqa"]


def test_only_the_latest_earlier_configurations_are_compared(space: Workspace) -> None:
    for i in range(MAX_EARLIER + 2):
        started = f"2026-01-{i + 1:02d}T00:00:00+00:00"
        earlier(space, {"train.weight_decay": round(0.2 + 0.01 * i, 2)}, (0, 1.4), started=started)
    found = gather(space)
    late = [each.label for each in found.arms if each.role == "earlier"]
    assert len(late) == MAX_EARLIER
    assert "base · weight_decay=0.2" not in late
    assert f"base · weight_decay={0.2 + 0.01 * (MAX_EARLIER + 1):.2f}" in late
    assert sorted(left_out(found)) == [
        ("base · weight_decay=0.2", 0, TOO_MANY),
        ("base · weight_decay=0.21", 0, TOO_MANY),
    ]


def test_configurations_of_other_studies_are_not_compared(space: Workspace) -> None:
    earlier(space, {"train.weight_decay": 0.2}, (0, 1.40))
    space.set_params(text_of(ARMS, [0, 1], name="other"))
    for (name, seed), bpb in BPB.items():
        space.run(name, seed, bpb)
    assert [each.label for each in gather(space).arms] == ["base", "mqa"]


def test_a_store_that_fails_costs_the_earlier_runs_only(
    space: Workspace, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{space.root / 'params.yaml' / 'mlflow.db'}")
    found = gather(space)
    assert values(found.arms[0]) == {0: 1.50, 1: 1.51}
    assert [each.label for each in found.arms] == ["base", "mqa"]
    assert found.warnings
    assert "earlier runs cannot be looked up" in capsys.readouterr().err


# --- how long it takes

STAGE = """
import sys, time
from isoflop.stages import collect
collect.main()
heavy = {"mlflow", "sqlalchemy", "pandas", "scipy.stats", "torch", "matplotlib"}
print(sorted(heavy & sys.modules.keys()), time.process_time())
"""


def collect_in_another_process() -> tuple[str, float]:
    """What it imported of all that takes long to import, and its CPU time in seconds."""
    environment = os.environ | {"PYTHONPATH": str(Path(collect_stage.__file__).parents[2])}
    done = subprocess.run([sys.executable, "-c", STAGE], env=environment, capture_output=True, text=True, check=True)
    imported, seconds = done.stdout.rsplit(maxsplit=1)
    return imported, float(seconds)


def test_with_nothing_new_nothing_heavy_is_imported(space: Workspace) -> None:
    gather(space)
    assert collect_in_another_process()[0] == "[]"
    space.change(space.evaluation("mqa", 1), bpb=1.56)
    assert "mlflow" in collect_in_another_process()[0], "else this test would see nothing"


@pytest.mark.slow
def test_forty_runs_are_evaluated_anew_within_the_time_promised(space: Workspace) -> None:
    space.set_params(params_text(EIGHT, range(5)))
    for name in EIGHT:
        for seed in range(5):
            space.run(name, seed, 1.5)
    space.commit()
    gather(space)
    for name in EIGHT:
        for seed in range(5):
            space.change(space.evaluation(name, seed), bpb=1.4 + 0.01 * seed)
    # CPU time: how long the disk takes and who else runs is not what this promises.
    assert collect_in_another_process()[1] < 10
    changed = gather(space)
    assert all(values(each) == {seed: 1.4 + 0.01 * seed for seed in range(5)} for each in changed.arms)
    stored = all_runs(space.root, data_digest="d" * 64, protocol_hash=protocol_hash(space.params.eval))
    assert sorted(each.bpb for each in stored) == sorted([1.4 + 0.01 * seed for seed in range(5)] * 8)


def add_runs_of_no_use(space: Workspace, number: int) -> None:
    """Later than all others, each of another configuration: on another corpus, protocol, study, budget, or killed.

    Copied inside the database, because mlflow would take minutes.
    """
    evaluated = f"isoflop.evaluated.{protocol_hash(space.params.eval)}"
    with closing(sqlite3.connect(space.root / "mlflow.db")) as db, db:
        template = db.execute("select run_uuid from tags where key = 'label' and value = 'mqa'").fetchone()[0]
        for i in range(number):
            run_id = f"{i:032x}"
            for table in ("runs", "tags", "params", "metrics", "latest_metrics"):
                columns = [row[1] for row in db.execute(f"pragma table_info({table})")]
                new = ", ".join("?" if name == "run_uuid" else name for name in columns)
                names = ", ".join(columns)
                copy = f"insert into {table} ({names}) select {new} from {table} where run_uuid = ?"
                db.execute(copy, [run_id, template])
            tags = {"run_uid": f"copy{i}", "config_hash": f"{i:016x}", "seed": str(i % 5)}
            tags |= [{"data_digest": "x" * 64}, {}, {"study": "other"}, {}, {}][i % 5]
            for key, value in tags.items():
                db.execute("update tags set value = ? where key = ? and run_uuid = ?", [value, key, run_id])
            db.execute("update runs set start_time = start_time + ? where run_uuid = ?", [10**12 + i, run_id])
            if i % 5 == 1:
                db.execute("update tags set key = key || 'x' where key = ? and run_uuid = ?", [evaluated, run_id])
            elif i % 5 == 3:
                db.execute("update runs set status = 'KILLED' where run_uuid = ?", [run_id])
            elif i % 5 == 4:
                other = "update params set value = '5e12' where key = 'predicted.flops' and run_uuid = ?"
                db.execute(other, [run_id])


@pytest.mark.slow
def test_five_hundred_runs_in_the_store_change_nothing_and_take_little(space: Workspace) -> None:
    gather(space)
    for i in range(3):
        started = f"2026-01-{i + 1:02d}T00:00:00+00:00"
        earlier(space, {"train.weight_decay": round(0.2 + 0.01 * i, 2)}, (0, 1.4), (1, 1.41), started=started)
    space.remove("mqa", 1)  # to be found in the store, among all the others
    before = analyse(gather(space))
    assert [each["role"] for each in before["arms"]] == ["control", "planned", "earlier", "earlier", "earlier"]
    add_runs_of_no_use(space, 500)
    began = time.monotonic()
    found = gather(space)
    assert time.monotonic() - began < 30
    after = analyse(found)
    assert {reason for _, _, reason in left_out(found)} == {OTHER_BUDGET}
    assert len(after.pop("excluded")) == 100
    assert before.pop("excluded") == []
    assert after == before
