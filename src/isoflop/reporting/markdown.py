"""The report as Markdown with its figures beside it, as code hosts render it."""

from __future__ import annotations

from jinja2 import Environment

from isoflop.reporting.document import Report, Samples, Table
from isoflop.reporting.figures import Drawing
from isoflop.reporting.markup import code, esc, visible
from isoflop.reporting.templates import environment

FIGURES = "figures"


def to_markdown(report: Report) -> str:
    """Text of report.md. Images are expected as `figures/<name>.png`."""
    env: Environment = environment()
    env.globals |= {"picture": picture, "table": table, "samples": samples}
    return env.get_template("report.md.j2").render(report=report).rstrip() + "\n"


def picture(drawing: Drawing) -> str:
    """Image and caption."""
    return f"![{esc(drawing.alt)}]({FIGURES}/{drawing.name}.png)\n\n{drawing.caption}"


def table(block: Table) -> str:
    """A pipe table; empty cells stay empty."""
    rule = ["---:" if i in block.numeric else "---" for i in range(len(block.columns))]
    rows = [block.columns, rule, *([each.text for each in row] for row in block.rows)]
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def samples(block: Samples) -> str:
    """One row per arm under the prompt, lines of the text kept."""
    prompt = f"Prompt: **{esc(block.prompt)}**" if block.prompt else "Without a prompt:"
    rows = ["| arm | text |", "| --- | --- |"]
    rows += [f"| {code(label)} | {_lines(text)} |" for label, text in block.texts]
    return "\n".join([prompt, "", *rows])


def _lines(text: str) -> str:
    paragraphs = [esc(line) for line in visible(text).strip().splitlines()]
    return "<br>".join(paragraphs) or "(nothing)"
