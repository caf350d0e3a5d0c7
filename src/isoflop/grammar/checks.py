"""What can be said of a grammar without writing a story: ambiguity, the bounds of its length, its exact entropy."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations, pairwise
from typing import NamedTuple

from isoflop.grammar.compiled import Branch, Draw, Op, Point, Recall


def points(op: Op) -> Iterator[Point]:
    """Every choice point reachable from `op`, each once."""
    seen: set[int] = set()
    pending = [op]
    while pending:
        op = pending.pop()
        if isinstance(op, Point) and id(op) not in seen:
            seen.add(id(op))
            yield op
            pending += [inner for path in op.paths for inner in path] if isinstance(op, Branch) else []


def ambiguities(root: Op) -> list[str]:
    """Choice points at which a text of one alternative may be the beginning of a text of another; [] is the proof.

    If there is none, every story has one derivation: read from the left, with what the slots hold known, at most one
    alternative of the next choice point fits the rest of the story, since of two that fit, the shorter text would be
    the beginning of the longer. The check is conservative: it lets a recalled slot be any word of its list.
    """
    problems: list[str] = []
    for point in points(root):
        if isinstance(point, Draw):
            # In sorted order a word stands right before the first of those that it begins.
            clashes = [(a, b) for a, b in pairwise(sorted(point.texts)) if b.startswith(a)]
            problems += [f"{point.name}: {a!r} begins {b!r}" for a, b in clashes]
        elif isinstance(point, Branch):
            ranks = combinations(range(len(point.paths)), 2)
            clashing = [(i, j) for i, j in ranks if _clash("", point.paths[i], "", point.paths[j])]
            problems += [
                f"{point.name}: a text of alternative {i} may begin one of {j}, or equal it" for i, j in clashing
            ]
    return problems


def _clash(
    left: str,
    left_ops: tuple[Op, ...],
    right: str,
    right_ops: tuple[Op, ...],
    apart: frozenset[str] = frozenset(),
) -> bool:
    """Whether a text of `left` + `left_ops` can be a beginning of one of `right` + `right_ops`, or the reverse.

    `apart` are the slots that may hold different words on the two sides.
    """
    if not (left.startswith(right) or right.startswith(left)):
        return False
    left, right = left[len(right) :], right[len(left) :]
    if right:
        left, left_ops, right, right_ops = right, right_ops, left, left_ops
    # Now `right` is spent.
    if not left and left_ops and right_ops and _same(left_ops[0], right_ops[0], apart):
        return _clash("", left_ops[1:], "", right_ops[1:], apart)
    if not right_ops:
        return True
    head, rest = right_ops[0], right_ops[1:]
    if isinstance(head, Branch):
        return any(_clash(left, left_ops, "", path + rest, apart) for path in head.paths)
    if isinstance(head, Draw) and head.slot is not None:
        apart |= {head.slot}
    texts = (head,) if isinstance(head, str) else tuple(dict.fromkeys(head.texts))  # many people, two pronouns
    return any(_clash(left, left_ops, text, rest, apart) for text in texts)


def _same(left: Op, right: Op, apart: frozenset[str]) -> bool:
    """Whether the two give the same text, or two that differ before either ends (checked at their own point)."""
    if isinstance(left, Recall) and left.slot in apart:
        return False
    return left == right and not (isinstance(left, Branch) and apart)


class Measure(NamedTuple):
    """Bytes that a text can have at least and at most, and the expected bytes and bits, exact."""

    least: int
    most: int
    bytes: float
    bits: float


def measure(op: Op) -> Measure:
    """Measure every text of `op` by dynamic programming.

    Expectations add up exactly, since a slot's word follows its list's distribution wherever it is recalled. The
    bounds hold for every text, and need not be reached: they let each mention of a slot have the length it likes.
    """
    if isinstance(op, str):
        size = len(op.encode())
        return Measure(size, size, size, 0.0)
    if isinstance(op, Branch):
        inner = [_total([measure(part) for part in path]) for path in op.paths]
        weights, bits = op.probabilities, op.bits
    else:
        sizes = [len(text.encode()) for text in op.texts]
        inner = [Measure(size, size, size, 0.0) for size in sizes]
        draw = op if isinstance(op, Draw) else Draw(op.slot, None, op.texts)
        weights = draw.probabilities
        bits = draw.bits if isinstance(op, Draw) else [0.0] * len(draw)
    return Measure(
        min(part.least for part in inner),
        max(part.most for part in inner),
        sum(weight * part.bytes for weight, part in zip(weights, inner, strict=True)),
        sum(weight * (own + part.bits) for weight, own, part in zip(weights, bits, inner, strict=True)),
    )


def _total(parts: list[Measure]) -> Measure:
    return Measure(
        sum(part.least for part in parts),
        sum(part.most for part in parts),
        sum(part.bytes for part in parts),
        sum(part.bits for part in parts),
    )
