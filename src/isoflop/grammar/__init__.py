"""The embedded corpus: stories for small children from a seeded probabilistic grammar, with their exact entropy.

The grammar was written for this project. Names, pronouns, pets, toys, colours and places stay the same through a
story and come back late, so that a model gains from longer context. Every story has 500 to 1,200 bytes and exactly
one derivation (see `checks.ambiguities` for why), so the probability of a story is the product over its choices, and
no model can be expected to code stories in fewer bits than `generate` states for them.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

from isoflop.grammar import frame, kindnesses, troubles
from isoflop.grammar.cast import CAST
from isoflop.grammar.checks import measure
from isoflop.grammar.engine import Choice, Grammar
from isoflop.grammar.notation import read_rules
from isoflop.grammar.words import WORDS

__all__ = ["Choice", "expected_bits_per_byte", "generate", "parse", "stories", "story_bits"]


@cache
def stories() -> Grammar:
    """The grammar of the embedded corpus."""
    return Grammar(read_rules(frame.RULES, troubles.RULES, kindnesses.RULES), {**CAST, **WORDS})


def generate(seed: int, n_bytes: int) -> Iterator[tuple[bytes, float]]:
    """Yield (story, -log2 of its probability) until the stories hold at least `n_bytes` bytes; see `Grammar`."""
    return stories().generate(seed, n_bytes)


def parse(story: bytes) -> list[Choice]:
    """The choices that wrote `story`, in order. IsoflopError where the grammar cannot have written it."""
    return stories().parse(story)


def story_bits(story: bytes) -> float:
    """-log2 of the probability of `story`, exact. IsoflopError where the grammar cannot have written it."""
    return stories().story_bits(story)


def expected_bits_per_byte() -> float:
    """Expected bits over expected bytes of a story: what bits per byte tend to over many stories, exact."""
    size = measure(stories().root)
    return size.bits / size.bytes
