"""Sampling: filters by hand, the cache against recomputation, the end of a story, cut characters."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from conftest import model_config
from isoflop.config import SampleConfig
from isoflop.model.gpt import GPT
from isoflop.sampling import choose, clean_text, context_start, generate

EOS = 60


def config(**changes: Any) -> SampleConfig:
    values: dict[str, Any] = {
        "prompts": [""],
        "n_tokens": 40,
        "temperature": 1.0,
        "top_k": None,
        "top_p": None,
        "seed": 0,
    }
    return SampleConfig(**values | changes)


def model_of(**changes: Any) -> GPT:
    model = GPT(model_config(init_std=0.3, **changes))
    model.initialise(0)
    return model


def drawn(logits: list[float], n: int = 4000, **changes: Any) -> dict[int, float]:
    generator = np.random.default_rng(0)
    tokens = [choose(np.array(logits), config(**changes), generator) for _ in range(n)]
    return {token: tokens.count(token) / n for token in sorted(set(tokens))}


LOGITS = list(np.log([0.1, 0.5, 0.15, 0.25]))


def test_probabilities_are_those_of_the_softmax() -> None:
    assert drawn(LOGITS) == pytest.approx({0: 0.1, 1: 0.5, 2: 0.15, 3: 0.25}, abs=0.03)


def test_temperature_sharpens_and_zero_is_greedy() -> None:
    weights = np.array([0.1, 0.5, 0.15, 0.25]) ** 2
    assert drawn(LOGITS, temperature=0.5)[1] == pytest.approx(weights[1] / weights.sum(), abs=0.03)
    assert drawn(LOGITS, n=10, temperature=0.0) == {1: 1.0}


def test_top_k_keeps_k_and_is_clamped_to_the_vocabulary() -> None:
    assert drawn(LOGITS, top_k=2) == pytest.approx({1: 2 / 3, 3: 1 / 3}, abs=0.03)
    assert drawn(LOGITS, top_k=1) == {1: 1.0}
    assert set(drawn(LOGITS, top_k=99)) == {0, 1, 2, 3}


def test_top_p_keeps_the_token_that_crosses_p_and_at_least_one() -> None:
    assert drawn(LOGITS, top_p=0.6) == pytest.approx({1: 2 / 3, 3: 1 / 3}, abs=0.03)
    assert drawn(LOGITS, top_p=0.01) == {1: 1.0}
    assert set(drawn(LOGITS, top_p=1.0)) == {0, 1, 2, 3}


def test_context_is_dropped_by_halves_and_always_fits() -> None:
    assert [context_start(n, 8) for n in (1, 8, 9, 12, 13, 16, 17)] == [0, 0, 4, 4, 8, 8, 12]
    assert all(n - context_start(n, 7) in range(1, 8) for n in range(1, 60))


@pytest.mark.parametrize("n_kv_head", [4, 1])
def test_the_cache_equals_recomputation_across_the_context_limit(n_kv_head: int) -> None:
    model = model_of(n_kv_head=n_kv_head)
    prompts = [[EOS, 1, 2, 3], [EOS]]
    got = generate(model, prompts, config(temperature=0.0, n_tokens=50), eos=-1)
    for prompt, continuation in zip(prompts, got, strict=True):
        ids = list(prompt)
        for token in continuation:
            context = ids[context_start(len(ids), model.config.block_size) :]
            with torch.no_grad():
                assert int(model(torch.tensor([context]))[0, -1].argmax()) == token
            ids.append(token)
        assert len(continuation) == 50


def test_each_prompt_is_continued_as_if_it_were_alone() -> None:
    model = model_of()
    prompts = [[EOS, 5], [EOS, 1, 2, 3, 4, 5, 6, 7]]
    together = generate(model, prompts, config(), EOS)
    assert generate(model, prompts[:1], config(), EOS) == together[:1]
    assert generate(model, prompts, config(), EOS) == together
    assert generate(model, prompts, config(seed=1), EOS) != together


def test_it_stops_at_the_end_of_the_story() -> None:
    model = model_of()
    with torch.no_grad():
        model.embedding.weight.zero_()
        model.embedding.weight[EOS] = 1.0  # every context predicts the end
    assert generate(model, [[EOS], [EOS, EOS]], config(temperature=0.0), EOS) == [[], []]


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (b"", ""),
        (b"plain", "plain"),
        ("caf\u00e9".encode(), "caf\u00e9"),
        ("caf\u00e9".encode()[:-1], "caf"),
        ("\U0001f600".encode()[:3], ""),
        (b"bad \xff byte", "bad \ufffd byte"),
    ],
)
def test_text_that_ends_inside_a_character_is_printed_cleanly(raw: bytes, text: str) -> None:
    assert clean_text(raw) == text
