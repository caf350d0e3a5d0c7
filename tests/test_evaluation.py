"""Bits per byte: exact by hand, each token once, nothing depends on the batch size."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from numpy.typing import NDArray

from conftest import model_config
from isoflop.evaluation import score, token_nats, windows
from isoflop.model.gpt import GPT

EOS = 255


def byte_stream(*stories: bytes) -> NDArray[np.uint8]:
    return np.frombuffer(b"\xff" + b"".join(story + b"\xff" for story in stories), np.uint8)


def byte_lengths() -> NDArray[np.int32]:
    lengths = np.ones(256, np.int32)
    lengths[EOS] = 0
    return lengths


def some_stories(n: int, seed: int = 0) -> NDArray[np.uint8]:
    generator = np.random.default_rng(seed)
    return byte_stream(*(bytes(generator.integers(97, 123, size=generator.integers(1, 60))) for _ in range(n)))


def byte_model(**changes: object) -> GPT:
    model = GPT(model_config(vocab_size=256, init_std=0.2, **changes))
    model.initialise(0)
    return model


@pytest.mark.parametrize("predicted", [1, 5, 8, 9, 12, 13, 63, 64, 100])
@pytest.mark.parametrize("stride", [1, 3, 4, 8])
def test_windows_count_every_token_once_and_give_it_its_context(predicted: int, stride: int) -> None:
    block = 8
    seen = np.zeros(predicted, int)
    for start, length, new in windows(predicted, block, stride):
        assert start >= 0
        assert start + length <= predicted
        assert length == min(block, predicted)
        seen[start + new : start + length] += 1
        assert new >= min(block - stride, block) or start == 0, "context of at least block - stride tokens"
    assert np.all(seen == 1)


def test_a_uniform_model_scores_exactly_eight_bits_a_token() -> None:
    model = byte_model()
    torch.nn.init.zeros_(model.embedding.weight)  # all logits equal
    stream = some_stories(20)
    result = score(token_nats(model, stream, stride=8, batch_size=4), stream, byte_lengths(), EOS)
    assert result.bpb == pytest.approx(8 * (len(stream) - 1) / (len(stream) - 1 - 20), rel=1e-7)
    assert (result.tokens, result.bytes) == (len(stream) - 1, len(stream) - 21)


def test_nats_equal_a_loop_that_scores_token_by_token() -> None:
    model = byte_model(block_size=8)
    stream = some_stories(3)
    got = token_nats(model, stream, stride=3, batch_size=2)
    ids = torch.from_numpy(stream.astype(np.int64))
    for start, length, new in windows(len(stream) - 1, 8, 3):
        for j in range(new, length):
            logits = model(ids[None, start : start + j + 1])[0, -1]
            expected = F.cross_entropy(logits, ids[start + j + 1]).item()
            assert got[start + j] == pytest.approx(expected, rel=1e-4), (start, j)


@pytest.mark.parametrize("batch_size", [1, 2, 3, 1000])
def test_the_batch_size_does_not_matter(batch_size: int) -> None:
    model, stream = byte_model(), some_stories(12)
    reference = token_nats(model, stream, stride=8, batch_size=5)
    assert not np.isnan(reference).any()
    np.testing.assert_allclose(token_nats(model, stream, stride=8, batch_size=batch_size), reference, rtol=1e-5)


def test_sums_by_story_and_position_add_up_by_hand() -> None:
    stream = byte_stream(b"abc", b"d", b"x" * 40)
    nats = np.arange(1, len(stream), dtype=float) * math.log(2)  # 1, 2, 3, ... bits
    result = score(nats, stream, byte_lengths(), EOS)
    assert result.story_bytes.tolist() == [3, 1, 40]
    assert result.story_bits == pytest.approx([1 + 2 + 3 + 4, 5 + 6, sum(range(7, 48))])
    assert result.bits == pytest.approx(sum(range(1, 48)))
    assert result.bpb == pytest.approx(sum(range(1, 48)) / 44)
    # Bytes 0 to 31 of each story and its end token where it stands there; then bytes 32 to 39 and the last end.
    first = sum(range(1, 7)) + sum(range(7, 39))
    assert result.by_position == [
        {"from": 0, "to": 32, "bpb": pytest.approx(first / (3 + 1 + 32))},
        {"from": 32, "to": 64, "bpb": pytest.approx(sum(range(39, 48)) / 8)},
    ]


def test_tokens_of_several_bytes_count_their_bytes() -> None:
    lengths = np.array([0, 2, 5], np.int32)
    stream = np.array([0, 1, 2, 0, 2, 0], np.uint16)
    result = score(np.full(5, math.log(2)), stream, lengths, eos=0)
    assert result.bpb == pytest.approx(5 / 12)
    assert result.story_bytes.tolist() == [7, 5]


def test_sums_are_float64() -> None:
    # In float32 a running sum of 2**24 ones stands still.
    nats = np.ones(3)
    nats[0] = 2.0**24
    result = score(nats, byte_stream(b"ab"), byte_lengths(), EOS)
    assert result.nats == 2.0**24 + 2
