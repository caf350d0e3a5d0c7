"""The grammar as operations: what to write, what to recall, where to choose and with which probabilities.

Compiling follows the rules from `story` and settles, for each mention of a slot, whether it draws or recalls: so what
is bound must not depend on the path taken. A slot bound in some alternatives only may not be used after them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate
from math import fsum, log2

from isoflop.grammar.notation import Element, Expand, Inline, Lexicon, Mention, Rules, form_of

ZIPF_OFFSET = 3


def zipf(n: int) -> list[float]:
    """Probabilities of ranks 0..n-1, proportional to 1 / (rank + ZIPF_OFFSET) (Zipf-Mandelbrot)."""
    weights = [1 / (rank + ZIPF_OFFSET) for rank in range(n)]
    total = fsum(weights)  # `sum` of floats differs between Python versions
    return [weight / total for weight in weights]


@dataclass(frozen=True)
class Recall:
    """The word that a slot holds; `texts` has its form for every entry of the slot's list."""

    slot: str
    texts: tuple[str, ...]


@dataclass(frozen=True)
class Point:
    """A choice point, named as in the notation: alternatives with probabilities, drawn independently of all before."""

    name: str

    def __len__(self) -> int:
        raise NotImplementedError

    @cached_property
    def probabilities(self) -> list[float]:
        return zipf(len(self))

    @cached_property
    def bits(self) -> list[float]:
        """-log2 of each alternative's probability."""
        return [-log2(p) if p < 1 else 0.0 for p in self.probabilities]

    @cached_property
    def cumulative(self) -> list[float]:
        """Upper edges for `bisect`; the last is exactly 1, so that a uniform number below 1 never falls outside."""
        return [*list(accumulate(self.probabilities))[:-1], 1.0]


@dataclass(frozen=True)
class Draw(Point):
    """A word drawn from its list and, where `slot` is set, remembered there."""

    slot: str | None
    texts: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.texts)


@dataclass(frozen=True)
class Branch(Point):
    """A rule's alternatives, each a sequence of operations."""

    paths: tuple[tuple[Op, ...], ...]

    def __len__(self) -> int:
        return len(self.paths)


Op = str | Recall | Draw | Branch


@dataclass
class Compiler:
    """Turns rules and word lists into operations. `always` and `perhaps` are the slots bound so far on every path,
    and on some path."""

    rules: Rules
    lexicon: Lexicon
    _done: dict[tuple[str, frozenset[str], frozenset[str]], tuple[Branch, frozenset[str], frozenset[str]]] = field(
        default_factory=dict
    )
    # One operation per mention, shared: comparing two of them is then mostly a comparison of identity.
    _words: dict[tuple[Mention, bool], Recall | Draw] = field(default_factory=dict)

    def sequence(
        self, elements: Sequence[Element], always: frozenset[str], perhaps: frozenset[str]
    ) -> tuple[tuple[Op, ...], frozenset[str], frozenset[str]]:
        ops: list[Op] = []
        for element in elements:
            if isinstance(element, str):
                ops.append(element)
            elif isinstance(element, Expand):
                branch, always, perhaps = self.rule(element.rule, always, perhaps)
                ops += branch.paths[0] if len(branch) == 1 else [branch]
            elif isinstance(element, Inline):
                ops.append(Draw(f"({'/'.join(element.words)})", None, element.words))
            else:
                ops.append(self._mention(element, always, perhaps))
                if element.is_slot:
                    always, perhaps = always | {element.name}, perhaps | {element.name}
        return tuple(ops), always, perhaps

    def rule(
        self, name: str, always: frozenset[str], perhaps: frozenset[str]
    ) -> tuple[Branch, frozenset[str], frozenset[str]]:
        """Compile a rule where `always` and `perhaps` are bound: the operation and what is bound after it."""
        key = (name, always, perhaps)
        if key not in self._done:
            if name not in self.rules:
                raise ValueError(f"rule {name} is not defined")
            try:
                results = [self.sequence(elements, always, perhaps) for elements in self.rules[name]]
            except ValueError as error:
                raise ValueError(f"{name}: {error}") from None
            after = frozenset.intersection(*(bound for _, bound, _ in results))
            maybe = frozenset.union(*(bound for _, _, bound in results))
            self._done[key] = (Branch(f"<{name}>", tuple(ops for ops, _, _ in results)), after, maybe)
        return self._done[key]

    def _mention(self, mention: Mention, always: frozenset[str], perhaps: frozenset[str]) -> Recall | Draw:
        name = mention.name
        draws = not mention.is_slot or name not in always
        if draws and mention.is_slot and name in perhaps:
            raise ValueError(f"slot {name} may or may not be bound where it is used")
        if (mention, draws) in self._words:
            return self._words[mention, draws]
        if name not in self.lexicon:
            raise ValueError(f"word list {name} is not defined")
        texts = tuple(form_of(entry, mention.form) for entry in self.lexicon[name])
        op: Recall | Draw
        if not draws:
            op = Recall(name, texts)
        elif mention.is_slot:
            op = Draw(f"{{{name}}}", name, texts)
        else:
            op = Draw(f"[{name}]", None, texts)
        return self._words.setdefault((mention, draws), op)
