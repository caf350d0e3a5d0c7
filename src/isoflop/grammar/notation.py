"""The notation of rules and word lists.

A rule is a name and its alternatives, one a line, the most probable first:

    pet:
      {hero.He} had [look.a] {pet} (named/called) {petname}. <habit>

`{pet}` is a slot: drawn from the word list of its name where it is first mentioned, recalled ever after. `[look]` is
a fresh word, drawn from its list at every mention; `(named/called)` is drawn from a list on the spot. `<habit>`
expands a rule. `|` is a line break. `.form` picks a form of the word: a field of its entry, or `a` (with its
article); a form written with a capital is capitalised. The alternative or word of rank r has the probability that
`compiled.zipf` gives it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

Entry = Mapping[str, str]
Lexicon = Mapping[str, Sequence[Entry]]

_TOKEN = re.compile(r"\{(\w+)(?:\.(\w+))?\}|\[(\w+)(?:\.(\w+))?\]|<(\w+)>|\(([^()]+)\)")


@dataclass(frozen=True, slots=True)
class Mention:
    """A word in a template, as written: `{name.form}` (a slot) or `[name.form]` (fresh)."""

    name: str
    form: str
    is_slot: bool


@dataclass(frozen=True, slots=True)
class Inline:
    """`(one/other)` in a template, as written."""

    words: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Expand:
    """`<rule>` in a template, as written."""

    rule: str


Element = str | Mention | Inline | Expand
Rules = Mapping[str, Sequence[Sequence[Element]]]


def read_rules(*texts: str) -> Rules:
    """Read rules in the notation above. ValueError for a rule that is defined twice or has no alternative."""
    rules: dict[str, list[Sequence[Element]]] = {}
    for head, lines in _sections("\n".join(texts)):
        name = head.removesuffix(":")
        if name in rules or not lines:
            raise ValueError(f"rule {name} is defined twice" if lines else f"rule {name} has no alternative")
        rules[name] = [_read_template(line) for line in lines]
    return rules


def read_words(text: str) -> Lexicon:
    """Read word lists, `name: word, word` or `name (field field): word/form/form, ...`; a deeper line goes on.

    An entry is the mapping from `word` and the fields to its forms. ValueError for a list that is defined twice, or
    an entry with a form too many or too few.
    """
    lexicon: dict[str, list[Entry]] = {}
    for head, lines in _sections(text):
        title, _, first = head.partition(":")
        name, _, fields = title.partition(" (")
        if name in lexicon:
            raise ValueError(f"word list {name} is defined twice")
        rows = [row.strip().split("/") for row in " ".join([first, *lines]).split(",")]
        lexicon[name] = [dict(zip(["word", *fields.strip("()").split()], row, strict=True)) for row in rows]
    return lexicon


def _sections(text: str) -> Iterator[tuple[str, list[str]]]:
    """Each line that is not indented, with the indented lines below it; blank lines and `#` comments are skipped."""
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    starts = [at for at, line in enumerate(lines) if not line.startswith(" ")]
    for start, end in pairwise([*starts, len(lines)]):
        yield lines[start], [line.strip() for line in lines[start + 1 : end]]


def _read_template(template: str) -> list[Element]:
    elements: list[Element] = []
    position = 0
    for match in _TOKEN.finditer(template):
        elements.append(_literal(template[position : match.start()]))
        slot, slot_form, fresh, fresh_form, rule, inline = match.groups()
        if inline:
            elements.append(Inline(tuple(inline.split("/"))))
        elif rule:
            elements.append(Expand(rule))
        else:
            elements.append(Mention(slot or fresh, slot_form or fresh_form or "word", bool(slot)))
        position = match.end()
    elements.append(_literal(template[position:]))
    return [element for element in elements if element]


def _literal(text: str) -> str:
    if stray := set(text) & set("{}[]<>()"):
        raise ValueError(f"{text!r}: stray {sorted(stray)}")
    return text.replace("|", "\n")


def form_of(entry: Entry, form: str) -> str:
    """The form of a word: `a` puts its article before it, a capital initial capitalises."""
    if form[0].isupper():
        text = form_of(entry, form[0].lower() + form[1:])
        return text[0].upper() + text[1:]
    if form == "a":
        return ("an " if entry["word"][0] in "aeiou" else "a ") + entry["word"]
    if form not in entry:
        raise ValueError(f"{entry['word']!r} has no form {form!r}")
    return entry[form]
