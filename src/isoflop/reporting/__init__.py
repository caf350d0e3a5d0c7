"""The write-up of a study: Markdown and one HTML page out of what `collect` wrote.

figures     every picture, as SVG and PNG
sections    the prose and the tables, from the study's numbers
samples     the generated texts, read back
document    sections of blocks, the same for both forms
markdown    report.md
html        report.html
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from isoflop.files import atomic_path, fresh_folder, write_text
from isoflop.reporting.document import Report
from isoflop.reporting.figures import Drawing, draw_figures
from isoflop.reporting.html import to_page
from isoflop.reporting.markdown import FIGURES, to_markdown
from isoflop.reporting.markup import esc
from isoflop.reporting.samples import Texts, read_samples
from isoflop.reporting.sections import (
    answer,
    compute,
    contexts,
    ladder,
    noise,
    results,
    texts,
    trace,
    training,
    tuned,
    validity,
)

__all__ = ["build_report", "read_samples", "write_report"]

ORDER = (
    *("results", "curves", "ladder", "noise", "methods", "tuned", "predictions", "currencies", "predicted"),
    *("stability", "positions", "contexts", "samples", "published", "threats", "excluded", "runs", "reproduce"),
)


def write_report(
    study: dict[str, Any], curves: pd.DataFrame, samples: Sequence[Texts], prompts: Sequence[str], folder: Path
) -> None:
    """Write report.md, report.html and figures/*.png. The same study gives the same bytes."""
    drawings = draw_figures(study, curves)
    report = build_report(study, drawings, samples, prompts)
    figures = fresh_folder(folder / FIGURES)
    for drawing in drawings.values():
        with atomic_path(figures / f"{drawing.name}.png") as temporary:
            temporary.write_bytes(drawing.png)
    write_text(folder / "report.md", to_markdown(report))
    write_text(folder / "report.html", to_page(report))


def build_report(
    study: dict[str, Any], drawings: dict[str, Drawing], samples: Sequence[Texts], prompts: Sequence[str]
) -> Report:
    """The whole document; sections without anything to say are not there."""
    sections = [
        *results.sections(study, drawings),
        *compute.sections(study, drawings),
        *ladder.sections(study, drawings),
        *noise.sections(study),
        *tuned.sections(study),
        *training.sections(study, drawings),
        *contexts.sections(study),
        *texts.sections(study, samples, prompts),
        *validity.sections(study),
        *trace.sections(study),
    ]
    return Report(
        name=study["study"]["name"],
        notices=answer.notices(study),
        question=esc(study["study"]["question"]),
        answer=answer.answer(study),
        setting=answer.setting(study),
        headline=next((drawings[name] for name in ("differences", "final") if name in drawings), None),
        sections=sorted(sections, key=lambda section: ORDER.index(section.id)),
    )
