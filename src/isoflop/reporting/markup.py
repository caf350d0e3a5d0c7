"""The text of the report: a few marks of Markdown, which the page turns into HTML.

Known marks: `code`, **strong**, [text](target), and a backslash before a character that is meant as such. What comes
from outside (names, questions, reasons, generated text) goes through `esc` or `code` first.
"""

from __future__ import annotations

import re

from markupsafe import Markup, escape

_SPECIAL = re.compile(r"([\\`*_\[\]<>|&$~])")
_MARKS = re.compile(
    r"\\(?P<literal>.)|`(?P<code>[^`]+)`|\*\*(?P<strong>.+?)\*\*|\[(?P<text>[^\]]+)\]\((?P<target>[^)]+)\)",
    flags=re.DOTALL,
)
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def visible(text: str) -> str:
    """Line ends as newlines, other control characters as U+FFFD."""
    return _CONTROL.sub("�", text.replace("\r\n", "\n").replace("\r", "\n"))


def esc(text: object) -> str:
    """Foreign text on one line, every mark in it meant as such."""
    return _SPECIAL.sub(r"\\\1", " ".join(visible(str(text)).split()))


def code(text: object) -> str:
    """Foreign text as code, on one line. A code span has no escapes: a backtick and | become look-alikes."""
    return f"`{' '.join(visible(str(text)).split()).replace('`', chr(0x2CB)).replace('|', '¦') or ' '}`"


def to_html(text: str) -> Markup:
    """Marks as HTML, the rest escaped."""
    out, end = Markup(""), 0
    for match in _MARKS.finditer(text):
        out += _words(text[end : match.start()]) + _element(match)
        end = match.end()
    return out + _words(text[end:])


def to_text(text: str) -> str:
    """Without marks: for titles and the like."""
    return _MARKS.sub(lambda m: m["literal"] or m["code"] or to_text(m["strong"] or m["text"]), text)


def _words(text: str) -> Markup:
    """A number and its per cent sign stay on one line."""
    return escape(text.replace(" %", "\N{NO-BREAK SPACE}%"))


def _element(match: re.Match[str]) -> Markup:
    if match["literal"]:
        return escape(match["literal"])
    if match["code"]:
        return Markup("<code>{}</code>").format(match["code"])
    if match["strong"]:
        return Markup("<strong>{}</strong>").format(to_html(match["strong"]))
    return Markup('<a href="{}">{}</a>').format(match["target"], to_html(match["text"]))
