"""Bits per byte at contexts other than the one that a model was trained at."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from isoflop.reporting.document import Cell, Section, Text, cell, table
from isoflop.reporting.markup import code
from isoflop.reporting.text import NA


def sections(study: dict[str, Any]) -> Iterator[Section]:
    lengths = sorted({entry["context"] for arm in study["arms"] for entry in arm["contexts"]})
    if lengths:
        columns = ("arm", "trained at", *(f"at {length} tokens" for length in lengths))
        rows = [_row(arm, lengths) for arm in study["arms"]]
        yield Section(
            id="contexts", title="By length of context", blocks=[table(columns, rows), Text(text=_legend(study))]
        )


def _row(arm: dict[str, Any], lengths: list[int]) -> list[Cell]:
    found = {entry["context"]: entry for entry in arm["contexts"]}
    trained = arm["config"]["model"]["block_size"]
    return [cell(code(arm["label"])), cell(str(trained), sort=trained), *(_cell(found.get(n)) for n in lengths)]


def _cell(entry: dict[str, Any] | None) -> Cell:
    if entry is None:
        return cell(NA)
    spread = "" if entry["sd"] is None else f" ± {entry['sd']:.4f}"
    return cell(f"{entry['bpb']:.4f}{spread}", sort=entry["bpb"])


def _legend(study: dict[str, Any]) -> str:
    used = {entry["scaling"] for arm in study["arms"] for entry in arm["contexts"]} - {"none"}
    text = "Test bits per byte, mean ± sd over seeds, with windows of so many tokens; the half of a window is context."
    if used:
        text += f" Beyond the trained context rotations are stretched by {' and '.join(sorted(used))}."
    return text
