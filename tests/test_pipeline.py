"""The pipeline as a user runs it: a fresh clone, DVC, MLflow, nothing replaced."""

from __future__ import annotations

import csv
import json
import os
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest

from conftest import ROOT

pytestmark = pytest.mark.slow

TINY = {
    "source: tinystories ": "source: grammar ",
    "max_bytes: 12000000": "max_bytes: 60000",
    "val_bytes: 65536": "val_bytes: 3000",
    "test_bytes: 262144": "test_bytes: 6000",
    "n_layer: 4": "n_layer: 1",
    "d_model: 128": "d_model: 32",
    "d_ff: 384": "d_ff: 64",
    "block_size: 128": "block_size: 32",
    "n_tokens: 400": "n_tokens: 20",
    "log_points: 100": "log_points: 6",
    "evals: 8": "evals: 3",
    "seeds: [0, 1, 2]": "seeds: [0, 1]",
}
BUDGET = re.compile(r"flops: \S+")
WARMUP = re.compile(r"warmup_steps: \d+")


class Clone:
    """A clone of this repository with a tiny study committed in it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.env = {
            **{k: v for k, v in os.environ.items() if not k.startswith(("DVC_", "MLFLOW_"))},
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "OMP_NUM_THREADS": "1",
            **{
                f"GIT_{who}_{what}": "test@example.org" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")
            },
        }

    def run(self, *command: str, check: bool = True) -> str:
        done = subprocess.run(
            command, cwd=self.root, env=self.env, capture_output=True, text=True, check=False, timeout=900
        )
        output = done.stdout + done.stderr
        assert not check or done.returncode == 0, f"{' '.join(command)}\n{output}"
        return output

    def edit_params(self, changes: dict[str, str]) -> None:
        text = (self.root / "params.yaml").read_text()
        for old, new in changes.items():
            assert old in text, old
            text = text.replace(old, new, 1)
        text = WARMUP.sub("warmup_steps: 2", BUDGET.sub("flops: 2.0e+9", text, count=1), count=1)
        (self.root / "params.yaml").write_text(text)

    def commit(self) -> None:
        self.run("git", "add", "-A")
        self.run("git", "commit", "-qm", "tiny")

    def stored(self) -> list[dict[str, str]]:
        """Runs of the MLflow store, read without MLflow: tags, status and the number of points of each."""
        with sqlite3.connect(f"file:{self.root / 'mlflow.db'}?mode=ro", uri=True) as database:
            runs = database.execute(
                "select run_uuid, name, status from runs where lifecycle_stage = 'active'"
            ).fetchall()
            found = []
            for run_id, name, status in runs:
                tags = dict(database.execute("select key, value from tags where run_uuid = ?", (run_id,)).fetchall())
                points = database.execute("select count(*) from metrics where run_uuid = ?", (run_id,)).fetchone()[0]
                test = database.execute(
                    "select value from metrics where run_uuid = ? and key = 'test/bpb'", (run_id,)
                ).fetchall()
                found.append({**tags, "name": name, "run_status": status, "points": points, "test": test})
        database.close()
        return found

    @property
    def report(self) -> str:
        return (self.root / "reports/quickstart/report.md").read_text()


def stages_of(output: str) -> set[str]:
    return set(re.findall(r"Running stage '([^']+)'", output))


def tree_of(repository: Path, target: Path) -> None:
    """What git would see of the working tree; everything but caches where there is no git."""
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", "-z"], cwd=repository, capture_output=True, check=False
    )
    if listed.returncode == 0:
        for name in filter(None, listed.stdout.decode().split("\0")):
            if (repository / name).is_file():
                (target / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(repository / name, target / name)
    else:
        skip = shutil.ignore_patterns(".venv", "__pycache__", "mlflow.db*", "mlartifacts", ".isoflop", "cache", "tmp")
        shutil.copytree(repository, target, dirs_exist_ok=True, ignore=skip)


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Clone:
    root = tmp_path_factory.mktemp("clone")
    tree_of(ROOT, root)
    # Results of the committed study are of other parameters.
    for folder in ("reports/quickstart", "experiments/eval", "experiments/plan", "experiments/samples"):
        shutil.rmtree(root / folder, ignore_errors=True)
    (root / "dvc.lock").unlink(missing_ok=True)
    made = Clone(root)
    made.run("git", "init", "-qb", "main")
    made.edit_params(TINY)
    made.commit()
    made.run("dvc", "repro")
    made.commit()
    return made


ALL = {f"{arm}-{seed}" for arm in ("base", "mqa") for seed in (0, 1)}


def test_repro_ends_in_a_report_and_one_truthful_run_per_arm_and_seed(clone: Clone) -> None:
    assert "mqa" in clone.report
    assert "Does sharing key and value heads cost anything" in clone.report
    for name in ("report.html", "runs.csv", "curves.csv", "summary.json"):
        assert (clone.root / "reports/quickstart" / name).stat().st_size > 100
    stored = clone.stored()
    assert sorted(run["name"] for run in stored) == ["base-s0", "base-s1", "mqa-s0", "mqa-s1"]
    for run in stored:
        assert (run["run_status"], run["fallback"], run["corpus"]) == ("FINISHED", "false", "grammar")
        evaluation = json.loads((clone.root / f"experiments/eval/{run['arm']}-{run['seed']}.json").read_text())
        assert run["test"] == [(pytest.approx(evaluation["bpb"]),)]
        assert evaluation["run_uid"] == run["run_uid"]
        assert evaluation["bpb"] > evaluation["floor_bpb"] > 0


def test_a_second_repro_does_nothing_but_look_at_the_store(clone: Clone) -> None:
    before = clone.stored()
    assert stages_of(clone.run("dvc", "repro")) == {"collect"}
    assert clone.stored() == before
    assert clone.run("git", "status", "--porcelain") == ""


def test_an_experiment_retrains_what_changed_and_is_compared_with_the_committed_control(clone: Clone) -> None:
    try:
        output = clone.run("dvc", "exp", "run", "-S", "model.n_kv_head=2")
        ran = stages_of(output)
        assert {stage for stage in ran if stage.startswith("train")} == {"train@base-0", "train@base-1"}
        assert not {s for s in ran if "mqa" in s and not s.startswith("plan")}, ran
        assert "base · n_kv_head=2" in clone.report
        with (clone.root / "reports/quickstart/runs.csv").open() as handle:
            rows = {(row["arm"], row["seed"]): row for row in csv.DictReader(handle)}
        assert set(rows) == {(label, s) for label in ("base", "base · n_kv_head=2", "mqa") for s in ("0", "1")}
        assert rows["base", "0"]["role"] == "control"
        assert rows["base", "0"]["origin"] == "store"
        assert rows["base · n_kv_head=2", "0"]["role"] == "exploratory"
        assert sorted(run["name"] for run in clone.stored()) == sorted(
            ["base-s0", "base-s1", "mqa-s0", "mqa-s1", "base · n_kv_head=2-s0", "base · n_kv_head=2-s1"]
        )
    finally:
        clone.run("git", "checkout", "-q", "HEAD", "--", ".")  # DVC has staged dvc.lock
        clone.run("dvc", "checkout", "-q")


def test_queued_experiments_log_to_the_one_store(clone: Clone) -> None:
    known = {run["run_uid"] for run in clone.stored()}
    clone.run("dvc", "exp", "run", "--queue", "-n", "wide", "-S", "+arms.wide={model.d_ff: 96}", "-S", "~arms.mqa")
    clone.run("dvc", "exp", "run", "--queue", "-n", "seeds", "-S", "seeds=[5]", "-S", "~arms.mqa")
    clone.run("dvc", "queue", "start", "-j", "2")
    try:
        deadline = time.monotonic() + 600
        while re.search(r"Queued|Running|Active: [1-9]", status := clone.run("dvc", "queue", "status")):
            assert time.monotonic() < deadline, status
            time.sleep(3)
    finally:
        clone.run("dvc", "queue", "stop", check=False)
    logs = "".join(clone.run("dvc", "queue", "logs", name, check=False) for name in ("wide", "seeds"))
    assert status.count("Success") == 2, status + logs
    new = [run for run in clone.stored() if run["run_uid"] not in known]
    assert {(run["arm"], run["seed"], run["dvc_exp_name"]) for run in new} == {
        ("wide", "0", "wide"),
        ("wide", "1", "wide"),
        ("base", "5", "seeds"),
    }
    assert all(run["run_status"] == "FINISHED" and run["test"] for run in new)
    assert not list(clone.root.glob(".dvc/tmp/exps/*/mlflow.db"))


def test_another_study_and_another_arm_train_nothing_that_stands(clone: Clone) -> None:
    before = clone.stored()
    renamed = {"name: quickstart": "name: another", "checkpoint_s: 20": "checkpoint_s: 5"}
    added = {"  mqa: {model.n_kv_head: 1}": "  mqa: {model.n_kv_head: 1}\n  narrow: {model.d_ff: 48}"}
    try:
        clone.edit_params(renamed)
        ran = stages_of(clone.run("dvc", "repro"))
        assert ran == {"plan@base", "plan@mqa", "collect", "report"}
        assert clone.stored() == before, "the runs stay those of the study that they were trained for"
        with (clone.root / "reports/another/runs.csv").open() as handle:
            rows = list(csv.DictReader(handle))
        assert {f"{row['arm']}-{row['seed']}" for row in rows} == ALL
        assert {row["origin"] for row in rows} == {"workspace"}
        clone.edit_params(added)
        trained = {stage for stage in stages_of(clone.run("dvc", "repro")) if stage.startswith("train")}
        assert trained == {"train@narrow-0", "train@narrow-1"}
        assert {run["study"] for run in clone.stored() if run["arm"] == "narrow"} == {"another"}
    finally:
        clone.run("git", "checkout", "-q", "HEAD", "--", ".")  # DVC has staged dvc.lock
        clone.run("git", "clean", "-qfd")
        clone.run("dvc", "checkout", "-q")


def test_one_stage_is_made_anew_without_what_lies_before_it(clone: Clone) -> None:
    assert stages_of(clone.run("dvc", "repro", "-s", "-f", "tokenize@byte")) == {"tokenize@byte"}


def test_a_run_restored_from_the_cache_fills_an_emptied_store(clone: Clone) -> None:
    before = {run["run_uid"]: run for run in clone.stored() if run["name"] in ("base-s0", "mqa-s1")}
    (clone.root / "mlflow.db").unlink()
    shutil.rmtree(clone.root / "mlartifacts")
    shutil.rmtree(clone.root / "experiments/runs")
    clone.run("dvc", "checkout")
    assert stages_of(clone.run("dvc", "repro")) <= {"collect", "report"}
    after = {run["run_uid"]: run for run in clone.stored()}
    assert set(after) >= set(before)
    for uid, run in before.items():
        for key in ("name", "run_status", "arm", "seed", "config_hash", "data_digest", "points", "test"):
            assert after[uid][key] == run[key], key


def test_killed_in_the_middle_and_resumed_to_the_same_weights(clone: Clone) -> None:
    slow = {"train.budget.flops=null", "train.budget.steps=4000", "train.checkpoint_s=0.2", "seeds=[7]", "~arms.mqa"}
    settings = [item for value in sorted(slow) for item in ("-S", value)]
    weights = clone.root / "experiments/runs/base-7/model.safetensors"
    try:
        clone.run("dvc", "exp", "run", *settings)
        whole = weights.read_bytes()
        history = (weights.parent / "history.csv").read_text()
        command = [sys.executable, "-m", "isoflop.stages.train", "base", "7"]
        shutil.rmtree(weights.parent)
        process = subprocess.Popen(command, cwd=clone.root, env={**clone.env, "PYTHONPATH": "src"})
        folder = clone.root / ".isoflop/checkpoints"
        deadline = time.monotonic() + 120
        while not list(folder.glob("*/0*.pt")):
            assert time.monotonic() < deadline
            assert process.poll() is None, "it ended before it could be killed"
            time.sleep(0.05)
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert not weights.exists()
        clone.run("dvc", "repro", "-s", "-f", "train@base-7")
        assert weights.read_bytes() == whole
        assert (weights.parent / "history.csv").read_text() == history
        assert json.loads((weights.parent / "run.json").read_text())["timing"]["resumed"] == 1
        assert not list(folder.iterdir())
    finally:
        clone.run("git", "checkout", "-q", "HEAD", "--", ".")  # DVC has staged dvc.lock
        clone.run("dvc", "checkout", "-q")


def test_in_a_fresh_clone_the_committed_evaluations_are_the_control(clone: Clone, tmp_path: Path) -> None:
    fresh = Clone(tmp_path / "fresh")
    clone.run("git", "clone", "-q", str(clone.root), str(fresh.root))
    output = fresh.run("dvc", "exp", "run", "-S", "model.n_kv_head=2", "-S", "seeds=[0]", "-S", "~arms.mqa")
    assert "train@base-0" in stages_of(output)
    with (fresh.root / "reports/quickstart/runs.csv").open() as handle:
        rows = list(csv.DictReader(handle))
    assert {(row["arm"], row["seed"], row["role"], row["origin"]) for row in rows} == {
        ("base", "0", "control", "git"),
        ("base", "1", "control", "git"),
        ("base · n_kv_head=2", "0", "exploratory", "workspace"),
    }
    assert "the evaluations in commit" in fresh.report


def test_without_git_the_pipeline_runs(clone: Clone, tmp_path: Path) -> None:
    bare = Clone(tmp_path / "zip")
    shutil.copytree(clone.root, bare.root, ignore=shutil.ignore_patterns(".git", "mlflow.db*", "mlartifacts"))
    bare.env |= {"PATH": str(Path(sys.executable).parent) + os.pathsep + "/no/git/here", "PYTHONPATH": "src"}
    bare.env["GIT_CEILING_DIRECTORIES"] = str(tmp_path)
    bare.run("dvc", "config", "--local", "core.no_scm", "true")
    dvc = shutil.which("dvc", path=bare.env["PATH"])
    assert dvc is not None
    # The shell that runs a stage's command needs its own path, but not one with git on it.
    output = bare.run(dvc, "repro")
    assert stages_of(output) >= {"collect"}
    assert "mqa" in bare.report
