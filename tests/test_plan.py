"""Plans: predictions by hand, identity, refusals, and reading back what was written."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import Any

import pytest

from conftest import params_text
from isoflop.errors import IsoflopError
from isoflop.params import parse_params, resolve_arm
from isoflop.plan import Plan, make_plan
from isoflop.tokens import SplitMeta, TokenMeta


def meta(**tokens: int) -> TokenMeta:
    """Token files of a byte tokenizer with so many tokens in each split."""
    sizes = {"train": 1_000_000, "val": 1_000, "test": 2_000} | tokens
    splits = {
        name: SplitMeta(stories=1, tokens=n, bytes=n - 1, sha256="0", floor_bits=None) for name, n in sizes.items()
    }
    values: dict[str, Any] = {
        "name": "byte",
        "kind": "byte",
        "vocab_size": 256,
        "eos": 255,
        "dtype": "uint8",
        "token_bytes": [1] * 255 + [0],
        "tokens_digest": "t",
        "data_digest": "d",
        "splits": splits,
        "duplicates": {},
        "skipped": {},
        "source": {"source": "grammar", "fallback": True},
    }
    return TokenMeta(**values)


def plan_of(*replacements: tuple[str, str], arm: str = "base", **tokens: int) -> Plan:
    params = parse_params(params_text(*replacements), "params.yaml")
    return make_plan(resolve_arm(params, arm), meta(**tokens))


STEPS = (("    steps: null", "    steps: 100"),)


def with_steps(*more: tuple[str, str], **kwargs: Any) -> Plan:
    text = params_text()
    flops = next(line for line in text.splitlines() if line.startswith("    flops: "))
    return plan_of((flops, "    flops: null"), *STEPS, *more, **kwargs)


def test_predictions_by_hand() -> None:
    p = with_steps().predicted
    assert (p.parameters, p.non_embedding_parameters) == (885_888, 853_120)
    assert p.flops_per_token == 5_708_544
    batch = resolve_arm(parse_params(params_text(), "p"), "base").train.batch_size
    assert (p.steps, p.tokens) == (100, 100 * batch * 128)
    assert p.flops == p.tokens * 5_708_544
    assert p.epochs == pytest.approx(p.tokens / 1e6, abs=1e-4)
    assert p.first_loss == pytest.approx(math.log(256), abs=1e-4)


def test_every_arm_of_the_committed_study_spends_the_budget_within_one_percent() -> None:
    params = parse_params(params_text(), "params.yaml")
    assert params.train.budget.flops is not None
    for arm in params.arms:
        predicted = plan_of(arm=arm, train=12_000_000).predicted
        assert abs(predicted.flops / params.train.budget.flops - 1) < 0.01, arm


def test_written_and_read_back_it_is_the_same(tmp_path: Path) -> None:
    plan = plan_of(arm="mqa")
    plan.write(tmp_path / "mqa.yaml")
    assert Plan.read(tmp_path / "mqa.yaml") == plan
    (tmp_path / "run.yaml").write_text(plan.to_yaml(seed=3))
    assert Plan.read(tmp_path / "run.yaml") == plan


def test_one_configuration_has_one_identity_whatever_the_arm_is_called() -> None:
    mqa = ("  mqa: {model.n_kv_head: 1}", "  mqa: {model.n_kv_head: 1}\n  same: {model: {n_kv_head: 4}}")
    base, same, other = (plan_of(mqa, arm=arm) for arm in ("base", "same", "mqa"))
    assert base.config_hash == same.config_hash != other.config_hash
    assert base.arm != same.arm


def test_an_arm_that_sets_a_key_does_not_notice_that_the_base_moves() -> None:
    moved = ("n_kv_head: 4 ", "n_kv_head: 2 ")
    assert plan_of(arm="mqa") == plan_of(moved, arm="mqa")
    assert plan_of(arm="base") != plan_of(moved, arm="base")


@pytest.mark.parametrize("split", ["train", "val", "test"])
def test_a_split_shorter_than_a_window_is_refused(split: str) -> None:
    with pytest.raises(
        IsoflopError, match=rf"the {split} split holds 127 tokens, less than one window of model\.block"
    ):
        plan_of(**{split: 127})
    plan_of(**{split: 128})


def test_a_budget_below_one_step_names_the_arm_and_the_key() -> None:
    flops = next(line for line in params_text().splitlines() if line.startswith("    flops: "))
    with pytest.raises(
        IsoflopError, match=r"params\.yaml: arm mqa: train\.budget\.flops = 1e\+06 is too small for one"
    ):
        plan_of((flops, "    flops: 1.0e+6"), arm="mqa")


def test_warmup_must_leave_a_step() -> None:
    warmup = next(line for line in params_text().splitlines() if line.startswith("  warmup_steps: "))
    with pytest.raises(IsoflopError, match=r"train\.warmup_steps = 100 does not leave a step of the 100"):
        with_steps((warmup, "  warmup_steps: 100"))


def test_a_missing_or_foreign_plan_is_named(tmp_path: Path) -> None:
    with pytest.raises(IsoflopError, match=r"gone\.yaml: no such plan; `dvc repro` makes it"):
        Plan.read(tmp_path / "gone.yaml")
    (tmp_path / "old.yaml").write_text("arm: base\nwhat: 3\n")
    with pytest.raises(IsoflopError, match=r"old\.yaml: what is unknown.*`dvc repro -s -f plan@old` makes it anew"):
        Plan.read(tmp_path / "old.yaml")
    (tmp_path / "base-3").mkdir()
    (tmp_path / "base-3" / "config.yaml").write_text("arm: base\nseed: 3\nwhat: 3\n")
    with pytest.raises(IsoflopError, match=r"`dvc repro -s -f train@base-3` makes it anew"):
        Plan.read(tmp_path / "base-3" / "config.yaml")


def test_a_plan_is_frozen() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        plan_of().arm = "x"  # type: ignore[misc]
