"""How much chance does: seeds, and the choice of test stories."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from isoflop.reporting.document import Block, Section, Text, cell, table
from isoflop.reporting.markup import code
from isoflop.reporting.text import NA, bpb, listed, plural
from isoflop.statistics.sample_size import MAX_SEEDS


def sections(study: dict[str, Any]) -> Iterator[Section]:
    blocks = [Text(text=text) for text in (_floor(study), _reach(study)) if text]
    yield Section(id="noise", title="Noise", blocks=[*blocks, *_stories(study)])


def _floor(study: dict[str, Any]) -> str:
    noise = study["noise"]
    if noise["n"] == 0:
        return "**Noise floor: n/a.** The control has no finished seed."
    if noise["sd"] is None:
        return "**Noise floor: n/a.** One seed of the control has no spread; a second one is the least."
    low, high = noise["interval"]
    return (
        f"**Noise floor: {bpb(noise['sd'])} bits per byte**, the standard deviation of the control over "
        f"{plural(noise['n'], 'seed')}. It is itself uncertain: its 95 % interval is {bpb(low)} to {bpb(high)}."
    )


def _reach(study: dict[str, Any]) -> str:
    noise, margin = study["noise"], f"{study['study']['margin']:g}"
    if noise["smallest_detectable"] is None:
        return ""
    arms = plural(noise["arms"], "arm")
    needed, most = noise["seeds_needed"], noise["seeds_needed_at_most"]
    return (
        f"With {noise['n']} seeds each, {arms} beside the control and this noise (pairing not counted on), a study "
        f"finds a difference of {bpb(noise['smallest_detectable'])} bpb with a chance of 80 %. To find one as large as "
        f"the margin of {margin} takes {_seeds(needed, most, 'difference')} per arm; to show that two equal arms are "
        f"equivalent within it, {_seeds(needed, most, 'equivalence')}."
    )


def _seeds(needed: dict[str, int | None], most: dict[str, int | None], key: str) -> str:
    """The number for the noise as measured, and for noise at the upper end of its interval."""
    n, high = (f"more than {MAX_SEEDS}" if each[key] is None else str(each[key]) for each in (needed, most))
    text = f"{n} seeds"  # two are the least
    return text if n == high else f"{text} ({high} if the noise lies at the upper end of its interval)"


def _stories(study: dict[str, Any]) -> Iterator[Block]:
    """Evaluation noise beside seed noise, so that a reader sees what would help."""
    own = study["noise"]["stories"]
    if own and own["se"] is not None:
        yield Text(
            text=f"The test split is a sample as well: the control's {bpb(own['bpb'])} bpb has a standard error of "
            f"{bpb(own['se'])} over its {plural(own['stories'], 'story', 'stories')}. Much of it cancels in a "
            "difference on the same stories:"
            if _rows(study)
            else f"The test split is a sample as well: the control's {bpb(own['bpb'])} bpb has a standard error of "
            f"{bpb(own['se'])} over its {plural(own['stories'], 'story', 'stories')}."
        )
    if not (rows := _rows(study)):
        return
    columns = ("arm", "se over seeds", "se over stories", "variance: stories / seeds", "what would narrow it")
    yield table(columns, rows, text_columns=(0, 4))
    helps = {arm["story_noise"]["helps"] for arm in study["arms"] if arm["story_noise"]} - {None}
    if helps:
        yield Text(
            text=f"The intervals of this report hold for these test stories; what would narrow the differences is "
            f"{listed(sorted(helps), 'or')}."
        )


def _rows(study: dict[str, Any]) -> list[Any]:
    rows = []
    for arm in study["arms"]:
        noise = arm["story_noise"]
        if noise:
            ratio = noise["ratio"]
            rows.append(
                [
                    cell(code(arm["label"])),
                    cell(bpb(noise["seed_se"]), sort=noise["seed_se"]),
                    cell(bpb(noise["se"]), sort=noise["se"]),
                    cell(NA if ratio is None else f"{ratio:.2f}", sort=ratio),
                    cell(noise["helps"] or NA),
                ]
            )
    return rows
