"""The report as sections of blocks, the same for Markdown and HTML. Text is `markup`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from isoflop.reporting.figures import Drawing


@dataclass(frozen=True, kw_only=True)
class Text:
    kind: ClassVar[str] = "text"
    text: str


@dataclass(frozen=True, kw_only=True)
class Bullets:
    kind: ClassVar[str] = "bullets"
    items: Sequence[str]


@dataclass(frozen=True, kw_only=True)
class Code:
    """Commands, as they are."""

    kind: ClassVar[str] = "code"
    text: str


@dataclass(frozen=True, kw_only=True)
class Picture:
    kind: ClassVar[str] = "picture"
    drawing: Drawing


@dataclass(frozen=True, kw_only=True)
class Cell:
    """`sort` orders the column in the page where the text does not; `tone` is the word of a verdict."""

    text: str
    sort: float | None = None
    tone: str | None = None


@dataclass(frozen=True, kw_only=True)
class Table:
    """`numeric` are the columns aligned right."""

    kind: ClassVar[str] = "table"
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    numeric: frozenset[int] = frozenset()


@dataclass(frozen=True, kw_only=True)
class Samples:
    """Generated texts under one prompt, by arm. Plain text, not markup."""

    kind: ClassVar[str] = "samples"
    prompt: str
    texts: Sequence[tuple[str, str]]


Block = Text | Bullets | Code | Picture | Table | Samples


@dataclass(frozen=True, kw_only=True)
class Section:
    id: str
    title: str
    blocks: Sequence[Block] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class Report:
    """`notices` come before all else; question, answer and headline are the first screen."""

    name: str
    notices: Sequence[str]
    question: str
    answer: str
    setting: str
    headline: Drawing | None
    sections: Sequence[Section]


def cell(text: object, sort: float | None = None, tone: str | None = None) -> Cell:
    return Cell(text=str(text), sort=sort, tone=tone)


def table(columns: Sequence[str], rows: Sequence[Sequence[Cell]], *, text_columns: Sequence[int] = (0,)) -> Table:
    """A table whose columns hold numbers, but for `text_columns`."""
    assert all(len(row) == len(columns) for row in rows), [len(row) for row in rows]
    numeric = frozenset(i for i in range(len(columns)) if i not in text_columns)
    return Table(columns=columns, rows=rows, numeric=numeric)
