"""The grammar at work: write stories with their probability, and read the choices back out of a story."""

from __future__ import annotations

import random
from bisect import bisect_right
from collections.abc import Callable, Iterator
from math import fsum
from typing import NamedTuple

from isoflop.errors import IsoflopError
from isoflop.grammar.compiled import Branch, Compiler, Draw, Op, Point, Recall
from isoflop.grammar.notation import Lexicon, Rules


class Choice(NamedTuple):
    """What was picked at a choice point (`<rule>`, `{slot}`, `[fresh]`, `(inline)`): rank, -log2 of probability."""

    point: str
    rank: int
    bits: float


class Grammar:
    """Rules and word lists, compiled from the rule `story` on.

    A story is written from left to right: each choice is drawn from the fixed distribution of its choice point,
    whatever was chosen before, and what was chosen before only settles which points follow and what a slot recalls.
    Its probability is therefore the product over its choices. ValueError for a grammar that does not compile.
    """

    def __init__(self, rules: Rules, lexicon: Lexicon) -> None:
        self.root, _, _ = Compiler(rules, lexicon).rule("story", frozenset(), frozenset())

    def generate(self, seed: int, n_bytes: int) -> Iterator[tuple[bytes, float]]:
        """Yield (story in UTF-8, -log2 of its probability) until the stories hold at least `n_bytes` bytes.

        The same stories on every platform and Python version: `random.Random(seed).random()` is guaranteed stable,
        and the probabilities are rounded the same way everywhere. A smaller `n_bytes` gives the first of the same
        stories. IsoflopError for a negative seed.
        """
        if seed < 0:  # Random takes the absolute value: -1 would silently be 1
            raise IsoflopError(f"grammar seed {seed} must not be negative: choose 0 or more")
        return self._stories(random.Random(seed).random, n_bytes)

    def _stories(self, uniform: Callable[[], float], n_bytes: int) -> Iterator[tuple[bytes, float]]:
        written = 0
        while written < n_bytes:
            parts: list[str] = []
            bits: list[float] = []
            _write(self.root, {}, parts, bits, uniform)
            story = "".join(parts).encode()
            written += len(story)
            yield story, fsum(bits)

    def derivations(self, story: bytes) -> tuple[list[list[Choice]], int]:
        """Every derivation of `story`, by exhaustive search, and the character at which the search got stuck.

        No alternative is passed over because another one fits: an ambiguous grammar gives more than one derivation.
        Raises UnicodeDecodeError for bytes that are not UTF-8.
        """
        text = story.decode()
        found: list[list[Choice]] = []
        reached = 0
        pending: list[_State] = [_State(0, (self.root, None), {}, None)]
        while pending:
            at, ops, ranks, trail = pending.pop()
            while ops is not None and isinstance(ops[0], str | Recall):
                fixed = ops[0] if isinstance(ops[0], str) else ops[0].texts[ranks[ops[0].slot]]
                reached = max(reached, at)
                if not text.startswith(fixed, at):
                    break
                at, ops = at + len(fixed), ops[1]
            else:
                reached = max(reached, at)
                if ops is not None:
                    pending += _alternatives(text, at, ops, ranks, trail)
                elif at == len(text):
                    found.append(_unwind(trail))
        return found, reached

    def parse(self, story: bytes) -> list[Choice]:
        """The choices that wrote `story`, in order. IsoflopError where the grammar cannot have written it."""
        try:
            found, reached = self.derivations(story)
        except UnicodeDecodeError as error:
            raise IsoflopError(f"not a story of the embedded grammar: {error}") from None
        if not found:
            rest = story.decode()[reached : reached + 40]
            raise IsoflopError(f"not a story of the embedded grammar: nothing fits at character {reached}, {rest!r}")
        assert len(found) == 1, f"{len(found)} derivations of {story!r}"
        return found[0]

    def story_bits(self, story: bytes) -> float:
        """-log2 of the probability of `story`, exact. IsoflopError where the grammar cannot have written it."""
        return fsum(choice.bits for choice in self.parse(story))


_Ops = tuple[Op, "_Ops | None"]
_Trail = tuple[Choice, "_Trail | None"]


class _State(NamedTuple):
    """A partial derivation: where it stands in the text, what is left to match, what the slots hold, its choices."""

    at: int
    ops: _Ops | None
    ranks: dict[str, int]
    trail: _Trail | None


def _write(op: Op, ranks: dict[str, int], parts: list[str], bits: list[float], uniform: Callable[[], float]) -> None:
    if type(op) is str:
        parts.append(op)
    elif type(op) is Recall:
        parts.append(op.texts[ranks[op.slot]])
    else:
        assert isinstance(op, Point)
        rank = bisect_right(op.cumulative, uniform())
        bits.append(op.bits[rank])
        if type(op) is Draw:
            parts.append(op.texts[rank])
            if op.slot is not None:
                ranks[op.slot] = rank
        elif type(op) is Branch:
            for inner in op.paths[rank]:
                _write(inner, ranks, parts, bits, uniform)


def _alternatives(text: str, at: int, ops: _Ops, ranks: dict[str, int], trail: _Trail | None) -> list[_State]:
    """What may follow at the choice point at the head of `ops`."""
    point, rest = ops
    states: list[_State] = []
    if isinstance(point, Draw):
        for rank, word in enumerate(point.texts):
            if text.startswith(word, at):
                held = {**ranks, point.slot: rank} if point.slot is not None else ranks
                choice = Choice(point.name, rank, point.bits[rank])
                states.append(_State(at + len(word), rest, held, (choice, trail)))
    else:
        assert isinstance(point, Branch)
        for rank, path in enumerate(point.paths):
            inner = rest
            for op in reversed(path):
                inner = (op, inner)
            states.append(_State(at, inner, ranks, (Choice(point.name, rank, point.bits[rank]), trail)))
    return states


def _unwind(trail: _Trail | None) -> list[Choice]:
    choices: list[Choice] = []
    while trail is not None:
        choices.append(trail[0])
        trail = trail[1]
    return choices[::-1]
