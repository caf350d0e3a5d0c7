"""The table of arms: every arm and every setting is in it, once, with its exact cost; rates are not checked."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
import typing
from typing import Any

import pytest

from conftest import ROOT
from isoflop.config import ModelConfig
from isoflop.model import cost
from isoflop.params import load_params
from isoflop.study import read_study

sys.path.insert(0, str(ROOT / "benchmarks"))
import arms


@pytest.fixture(scope="module")
def found() -> list[arms.Candidate]:
    before = os.getcwd()
    os.chdir(ROOT)
    try:
        return arms.candidates()
    finally:
        os.chdir(before)


def test_every_arm_of_every_study_is_in_the_table(found: list[arms.Candidate], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    studies = [path.stem for path in (ROOT / "experiments").glob("*.yaml")]
    expected = {f"{study}.{arm}" for study in studies for arm in read_study(study).arms}
    named = [name for candidate in found for name in candidate.names]
    assert found[0].names[0] == "base"
    assert expected < set(named)
    assert len(named) == len(set(named))


def test_what_trains_alike_is_measured_once(found: list[arms.Candidate]) -> None:
    assert len({candidate.key for candidate in found}) == len(found)
    names = {name: candidate for candidate in found for name in candidate.names}
    assert names["mtp=1"] is names["mtp.mtp_light"], "another weight of a loss"
    assert names["base"] is names["placebo.placebo"], "another spacing of the history"
    assert names["base"] is not names["train.optimizer=adamw"]


def test_every_value_that_a_setting_of_the_model_can_take_is_in_the_table(found: list[arms.Candidate]) -> None:
    hints = typing.get_type_hints(ModelConfig)
    for key in ("norm", "positions", "mlp", "qk_norm", "tie_embeddings"):
        values = {True, False} if hints[key] is bool else set(typing.get_args(hints[key]))
        assert {getattr(candidate.config, key) for candidate in found} == values, key
    assert {kind for candidate in found for kind in candidate.config.attention} == {"softmax", "linear"}
    for key in ("n_kv_head", "window", "mtp", "dropout", "bias", "vocab_size"):
        assert len({repr(getattr(candidate.config, key)) for candidate in found}) > 1, key


@pytest.mark.slow
def test_costs_are_exact_and_relative_to_base(tmp_path: Any) -> None:
    output = tmp_path / "there" / "arms.json"
    command = [sys.executable, "benchmarks/arms.py", "--rounds", "1", "--seconds", "0", "--json", str(output)]
    done = subprocess.run(
        [*command, "--only", "qk_norm=true", "kv_heads.mqa", "attention=[linear]"],
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    rows = json.loads(output.read_text())["arms"]
    shown = done.stdout.replace("\n", " ")
    assert "attention=[linear]" in shown
    assert [row["names"][0] for row in rows] == ["base", "qk_norm=true", "n_kv_head=1", "attention=[linear]"]
    model = load_params(ROOT / "params.yaml").model
    base = ModelConfig(**vars(model), vocab_size=256)
    changes: list[dict[str, Any]] = [{}, {"qk_norm": True}, {"n_kv_head": 1}, {"attention": ["linear"]}]
    for row, change in zip(rows, changes, strict=True):
        config = dataclasses.replace(base, **change)
        assert row["parameters"] == cost.parameters(config)
        assert row["flops_per_token"] == cost.flops_per_token(config)
        expected = cost.flops_per_token(config) / cost.flops_per_token(base) * row["tokens_per_s_relative"]
        assert row["flops_per_s_relative"] == pytest.approx(expected)
    assert rows[0]["tokens_per_s_relative"] == 1
