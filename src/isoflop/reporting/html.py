"""The report as one HTML file that needs nothing else."""

from __future__ import annotations

from markupsafe import Markup

from isoflop.reporting.document import Report
from isoflop.reporting.markup import to_html, to_text, visible
from isoflop.reporting.templates import environment


def to_page(report: Report) -> str:
    """Text of report.html: styles, script and figures are part of it, and nothing is loaded from anywhere."""
    env = environment(html=True)
    env.filters |= {"html": to_html, "text": to_text, "visible": visible, "svg": Markup}
    return env.get_template("report.html.j2").render(report=report)
