"""params.yaml: what is refused, in which words, and how arms resolve."""

from __future__ import annotations

import re

import pytest

from conftest import params_text
from isoflop.config import Budget
from isoflop.errors import IsoflopError
from isoflop.params import parse_params, resolve_arm

MQA = "  mqa: {model.n_kv_head: 1}"


def problems_of(*replacements: tuple[str, str]) -> list[str]:
    with pytest.raises(IsoflopError) as caught:
        parse_params(params_text(*replacements), "params.yaml")
    return str(caught.value).splitlines()


def test_the_committed_file_is_valid_and_its_arms_resolve() -> None:
    params = parse_params(params_text(), "params.yaml")
    assert resolve_arm(params, "base").changes == {}
    mqa = resolve_arm(params, "mqa")
    assert (mqa.model.n_kv_head, params.model.n_kv_head) == (1, 4)
    assert mqa.changes == {"model.n_kv_head": 1}


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ("n_kv_head: 4 ", "n_kv_head: 3 ", "params.yaml: model.n_kv_head = 3 does not divide model.n_head = 4"),
        ("d_model: 128", "d_model: 130", "params.yaml: model.n_head = 4 does not divide model.d_model = 130"),
        ("  n_layer: 4\n", "", "params.yaml: model.n_layer is missing"),
        ("n_layer: 4", "n_layer: four", "params.yaml: model.n_layer = 'four' must be a whole number"),
        ("n_layer: 4", "n_layer: 4.5", "params.yaml: model.n_layer = 4.5 must be a whole number"),
        ("n_layer: 4", "n_layer: true", "params.yaml: model.n_layer = true must be a whole number"),
        ("n_layer: 4", "n_layers: 4", "params.yaml: model.n_layers = 4 is unknown; did you mean n_layer?"),
        ("qk_norm: false", "qk_norm: off", "params.yaml: model.qk_norm = 'off' must be true or false"),
        ("source: tinystories", "source: null", "params.yaml: data.source = null must be text"),
        ("offline: grammar", "offline: maybe", "params.yaml: data.offline = 'maybe' must be one of grammar, fail"),
        ("grad_accum: 1", "grad_accum: 3", "params.yaml: train.grad_accum = 3 does not divide train.batch_size = 16"),
        ("top_p: 0.95", "top_p: 1.5", "params.yaml: sample.top_p = 1.5 must lie in (0, 1], or null for no limit"),
        ("control: base", "control: bass", "params.yaml: report.control = 'bass' is not one of arms: base, mqa"),
        ("\ntokenizer: byte", "\ntokenizer: gpt2", "params.yaml: tokenizer = 'gpt2' is not one of tokenizers: byte"),
        ("{kind: byte}", "{kind: bpe}", "params.yaml: tokenizers.byte.vocab_size is missing: a bpe tokenizer needs"),
        ("seeds: [0, 1, 2]", "seeds: [0, 1, 1]", "params.yaml: seeds = [0, 1, 1] has a seed twice"),
        ("seeds: [0, 1, 2]", "seeds: []", "params.yaml: seeds = [] must have at least one seed"),
        ("seeds: [0, 1, 2]", "seeds: 3", "params.yaml: seeds = 3 must be a list"),
        ("tokens: null", "tokens: 100", "params.yaml: train.budget must set exactly one of flops, tokens, steps"),
        ("    flops: 4", "    fflops: 4", "params.yaml: train.budget.fflops = "),
        (MQA, "  Mqa: {}", "params.yaml: arms.Mqa is no valid name"),
        (MQA, "  m-qa: {}", "params.yaml: arms.m-qa is no valid name"),
        (MQA, "  7: {}", "params.yaml: arms.7 is no valid name"),
        (MQA, "  mqa: {model.n_kv_head: 3}", "params.yaml: arms.mqa.model.n_kv_head = 3 does not divide model.n_head"),
        (MQA, "  mqa: {model: {n_kv_head: 3}}", "params.yaml: arms.mqa.model.n_kv_head = 3 does not divide"),
        (MQA, "  mqa: {model.n_head: 8, model: {n_head: 2}}", "params.yaml: arms.mqa sets one key twice"),
        (
            MQA,
            "  mqa: {model.n_hed: 2}",
            "params.yaml: arms.mqa.model.n_hed = 2 is unknown; did you mean model.n_head?",
        ),
        (MQA, "  mqa: {data.source: x}", "params.yaml: arms.mqa.data.source = 'x' cannot be set by an arm"),
        (MQA, "  mqa: {train.budget.steps: 5}", "params.yaml: arms.mqa.train.budget must set exactly one of"),
        (MQA, "  mqa: {tokenizer: gpt2}", "params.yaml: arms.mqa.tokenizer = 'gpt2' is not one of tokenizers: byte"),
        ("seeds: [0, 1, 2]", "seeds: [0, '1']", "params.yaml: seeds.1 = '1' must be a whole number"),
        (
            "direction: worse",
            "direction: wors",
            "params.yaml: study.predictions.0.direction = 'wors' must be better, worse",
        ),
        ("size: 0.01", "size: big", "params.yaml: study.predictions.0.size = 'big' must be bits per byte"),
        ("lr: 0.006", "lr: .inf", "params.yaml: train.lr = inf must be a finite number"),
        ("\ntokenizer: byte", "\ntokenizer: [byte]", "params.yaml: tokenizer = ['byte'] must be text"),
        (MQA, "  mqa: {tokenizer: [byte]}", "params.yaml: arms.mqa.tokenizer = ['byte'] is not one of tokenizers"),
        (MQA, "  mqa: 3", "params.yaml: arms.mqa = 3 must be a mapping"),
        (MQA, MQA + "\n" + MQA, "params.yaml: while constructing a mapping"),
    ],
)
def test_each_mistake_is_named_with_key_value_and_rule(old: str, new: str, sentence: str) -> None:
    found = problems_of((old, new))
    assert any(line.startswith(sentence) for line in found), found


def test_an_arm_that_makes_a_base_key_wrong_says_so() -> None:
    assert problems_of((MQA, "  six: {model.n_head: 6, model.d_model: 192}")) == [
        "params.yaml: arms.six: model.n_kv_head = 4 does not divide model.n_head = 6"
    ]


def test_all_problems_come_in_one_message() -> None:
    found = problems_of(
        ("block_size: 128", "block_size: 1"),
        ("lr: 0.006", "lrr: 0.006"),
        (MQA, "  mqa: {model.n_kv_head: 3}"),
        ("temperature: 0.8", "temperature: -1"),
    )
    text = "\n".join(found)
    for key in (
        "model.block_size",
        "train.lrr",
        "train.lr is missing",
        "arms.mqa.model.n_kv_head",
        "sample.temperature",
    ):
        assert key in text, text


def test_budget_with_none_of_its_keys() -> None:
    (line,) = problems_of((re.search(r"flops: 4\S+", params_text())[0], "flops: null"))  # type: ignore[index]
    assert line == (
        "params.yaml: train.budget must set exactly one of flops, tokens, steps (the others null), found none of them"
    )


def test_yaml_is_read_as_dvc_reads_it() -> None:
    params = parse_params(params_text(("lr: 0.006", "lr: 3e-05"), ("min_lr: 0.0", "min_lr: 1E-6")), "params.yaml")
    assert (params.train.lr, params.train.min_lr) == (3e-05, 1e-06)


def test_dotted_and_nested_changes_mean_the_same() -> None:
    dotted = parse_params(
        params_text((MQA, "  a: {model.n_kv_head: 2, train.budget.flops: null, train.budget.steps: 9}")), "p"
    )
    nested = parse_params(
        params_text((MQA, "  a: {model: {n_kv_head: 2}, train: {budget: {flops: null, steps: 9}}}")), "p"
    )
    assert resolve_arm(dotted, "a") == resolve_arm(nested, "a")
    assert resolve_arm(dotted, "a").train.budget == Budget(steps=9.0)


def test_an_arm_with_nothing_behind_its_name_changes_nothing() -> None:
    params = parse_params(params_text(("  base: {}", "  base:")), "params.yaml")
    assert resolve_arm(params, "base").changes == {}


@pytest.mark.parametrize("text", ["", "[]", "a: [", "model: {}", "\t"])
def test_what_is_no_params_file_at_all(text: str) -> None:
    with pytest.raises(IsoflopError, match=r"^params\.yaml: "):
        parse_params(text, "params.yaml")
