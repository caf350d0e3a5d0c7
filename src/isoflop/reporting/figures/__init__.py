"""Every figure of the report, in seaborn's style, as SVG for the page and PNG for the Markdown.

style      arms' colours, dashes and markers; the theme; byte-identical SVG and PNG
points     one row per arm: differences, final bpb, speed
lines      against compute: val bpb, stability
ladder     isoFLOP curves, and the best of each budget
positions  against the position in the story
published  the study among published results
"""

from __future__ import annotations

from typing import Any

import pandas as pd

from isoflop.reporting.figures import ladder, lines, points, positions, published
from isoflop.reporting.figures.style import Drawing, theme

__all__ = ["Drawing", "draw_figures"]


def draw_figures(study: dict[str, Any], curves: pd.DataFrame) -> dict[str, Drawing]:
    """All figures that the study has data for, by name."""
    with theme():
        drawn = (
            points.differences(study),
            points.final(study),
            points.speed(study),
            lines.curves(study, curves),
            lines.stability(study, curves),
            ladder.ladder(study),
            positions.positions(study),
            published.published(study),
        )
    return {drawing.name: drawing for drawing in drawn if drawing is not None}
