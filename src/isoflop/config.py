"""Every section of params.yaml as a frozen dataclass without defaults.

They stand here and not beside what they configure because each stage validates the whole file before it
does any work, and most stages should not wait for torch to be imported. Rules that need more than one
value are methods named `problems`; each yields (dotted key, sentence), `params.py` turns them into one message.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

Problems = Iterator[tuple[str, str]]


@dataclass(frozen=True, kw_only=True)
class StudyConfig:
    """`study`: what is asked, and what would count as an answer."""

    name: str
    question: str
    margin: float  # bits per byte: the smallest difference that matters
    predictions: list[dict[str, object]]

    def problems(self) -> Problems:
        if not self.margin > 0:
            yield "margin", "must be above 0 (bits per byte)"


@dataclass(frozen=True, kw_only=True)
class DataConfig:
    """`data`: which stories, and how many."""

    source: str  # tinystories | grammar | path or URL of a text file
    offline: Literal["grammar", "fail"]
    timeout_s: float
    max_bytes: int  # bytes of the training split, at most
    val_bytes: int
    test_bytes: int
    drop_duplicates: bool
    grammar_seed: int

    def problems(self) -> Problems:
        for key in ("max_bytes", "val_bytes", "test_bytes"):
            if getattr(self, key) < 1:
                yield key, "must be at least 1 byte"
        if not self.timeout_s > 0:
            yield "timeout_s", "must be above 0 seconds"
        if self.grammar_seed < 0:
            yield "grammar_seed", "must not be negative"
        if not self.source:
            yield "source", "must be tinystories, grammar, or the path or URL of a text file"


@dataclass(frozen=True, kw_only=True)
class TokenizerSpec:
    """One entry of `tokenizers`."""

    kind: Literal["byte", "gpt2", "bpe"]
    vocab_size: int | None = None  # of a trained BPE, end-of-story token included; fixed by the kind otherwise

    def problems(self) -> Problems:
        if self.kind == "bpe":
            if self.vocab_size is None:
                yield "vocab_size", "is missing: a bpe tokenizer needs its size, such as 4096"
            elif self.vocab_size < 257:
                yield "vocab_size", "must be at least 257: 256 bytes and the end-of-story token"
        elif self.vocab_size is not None:
            yield "vocab_size", f"must be left out: the {self.kind} vocabulary has its own size"
