"""Samples side by side, under the same prompts and the same seed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from isoflop.reporting.document import Block, Samples, Section, Text
from isoflop.reporting.markup import code, esc
from isoflop.reporting.samples import Texts
from isoflop.reporting.text import listed


def sections(study: dict[str, Any], samples: Sequence[Texts], prompts: Sequence[str]) -> Iterator[Section]:
    yield Section(id="samples", title="Samples", blocks=list(_blocks(study, samples, prompts)))


def _blocks(study: dict[str, Any], samples: Sequence[Texts], prompts: Sequence[str]) -> Iterator[Block]:
    known = {texts.label for texts in samples}
    without = [code(arm["label"]) for arm in study["arms"] if arm["label"] not in known]
    absent = f" There are no texts of {listed(without)} in this workspace." if without else ""
    if not samples:
        yield Text(text="No run of this workspace has samples.")
        return
    seeds = sorted({texts.seed for texts in samples})
    which = f"trained with seed {seeds[0]}" if len(seeds) == 1 else "trained with different seeds, named with each"
    text = f"Models {which}; sampling: {esc(samples[0].settings)}. One text each, to be read and not to be counted."
    yield Text(text=text + absent)
    for i, prompt in enumerate(prompts):
        names = [texts.label if len(seeds) == 1 else f"{texts.label}, seed {texts.seed}" for texts in samples]
        pairs = list(zip(names, (texts.continuations[i] for texts in samples), strict=True))
        yield Samples(prompt=prompt, texts=pairs)
