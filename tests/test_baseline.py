"""The committed params.yaml, labels, and life without git."""

from __future__ import annotations

import copy
import subprocess
from pathlib import Path
from typing import Any

import pytest

from conftest import params_text
from isoflop import git
from isoflop.baseline import Baseline, committed_config, read_baseline
from isoflop.params import parse_params


def committed() -> Baseline:
    return Baseline(rev="r", params=parse_params(params_text(), "params.yaml"))


def config_of(name: str, **changes: Any) -> dict[str, Any]:
    base = committed()
    assert base.params is not None
    config = copy.deepcopy(committed_config(base.params, name))
    for key, value in changes.items():
        section, leaf = key.split("__")
        config[section][leaf] = value
    config["model"]["vocab_size"] = 256  # a plan's configuration is complete
    return config


def test_labels_tell_what_an_experiment_changed() -> None:
    base = committed()
    assert base.label("base", config_of("base")) == "base"
    assert base.label("mqa", config_of("mqa")) == "mqa"
    assert base.label("base", config_of("base", model__n_kv_head=2)) == "base · n_kv_head=2"
    changed = config_of("mqa", train__lr=3e-5, model__n_layer=2)
    assert base.label("mqa", changed) == "mqa · n_layer=2, lr=3e-05"
    assert base.label("new", config_of("base", model__n_layer=2)) == "new"


def test_a_budget_in_another_unit_is_told_by_what_is_set() -> None:
    config = config_of("base")
    config["train"]["budget"] = {"flops": None, "tokens": None, "steps": 100.0}
    assert committed().label("base", config) == "base · budget.steps=100"


def repository(folder: Path, *texts: str) -> list[str]:
    """A repository with a commit per text of params.yaml; their hashes."""
    run = ["git", "-C", str(folder), "-c", "user.name=t", "-c", "user.email=t@example.org"]
    subprocess.run([*run, "init", "-q"], check=True)
    revs = []
    for text in texts:
        (folder / "params.yaml").write_text(text)
        subprocess.run([*run, "add", "-A"], check=True)
        subprocess.run([*run, "commit", "-qm", "x"], check=True)
        revs.append(
            subprocess.run([*run, "rev-parse", "HEAD"], check=True, capture_output=True, text=True).stdout.strip()
        )
    return revs


def test_the_baseline_is_the_commit_that_dvc_names_else_head(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DVC_EXP_BASELINE_REV", raising=False)
    first, second = repository(tmp_path, params_text(), params_text(("seeds: [0, 1, 2]", "seeds: [7]")))
    (tmp_path / "params.yaml").write_text("not: valid")
    head = read_baseline()
    assert head.rev == second
    assert head.params is not None
    assert head.params.seeds == [7]
    monkeypatch.setenv("DVC_EXP_BASELINE_REV", first)
    named = read_baseline()
    assert named.rev == first
    assert named.params is not None
    assert named.params.seeds == [0, 1, 2]


def test_a_committed_file_that_is_not_valid_is_no_control(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DVC_EXP_BASELINE_REV", raising=False)
    repository(tmp_path, "model: 3\n")
    found = read_baseline()
    assert found.params is None
    assert "params.yaml as committed is not valid" in str(found.problem)
    assert found.label("base", {}) == "base"


def test_without_a_repository_the_file_as_it_stands_is_the_baseline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    (tmp_path / "params.yaml").write_text(params_text())
    found = read_baseline()
    assert found.rev is None
    assert found.params is not None


def test_without_git_every_answer_is_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert git.revision() is None
    assert git.is_dirty("src") is None
    assert git.file_at("HEAD", Path("params.yaml")) is None
