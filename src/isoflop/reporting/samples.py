"""The texts that `sample` wrote, read back: experiments/samples/<arm>-<seed>.md."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from isoflop.reporting.markup import visible

_HEADING = re.compile(r"^## Prompt \d+$", flags=re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class Texts:
    """One run's continuations, in the order of the prompts."""

    label: str
    seed: int
    settings: str
    continuations: Sequence[str]


def read_samples(study: dict[str, Any], folder: Path, prompts: Sequence[str]) -> list[Texts]:
    """One run per arm: of the lowest seed that all arms have, else of the lowest of each.

    Only runs of this workspace have their texts here: the file of an arm's name may belong to another configuration
    than the arm of the store or of a commit.
    """
    found: dict[str, dict[int, Texts]] = {}
    for arm in study["arms"]:
        own = [run for run in arm["runs"] if run["origin"] == "workspace" and run["bpb"] is not None]
        texts = {run["seed"]: _read(arm, run["seed"], folder, prompts) for run in own}
        known = {seed: text for seed, text in texts.items() if text is not None}
        if known:
            found[arm["label"]] = known
    shared = set.intersection(*(set(texts) for texts in found.values())) if found else set()
    return [texts[min(shared or texts)] for texts in found.values()]


def _read(arm: dict[str, Any], seed: int, folder: Path, prompts: Sequence[str]) -> Texts | None:
    path = folder / f"{arm['name']}-{seed}.md"
    if not path.is_file():
        return None
    head, *parts = _HEADING.split(visible(path.read_text(encoding="utf-8")))
    if len(parts) != len(prompts):  # it diverged, or was made for other prompts
        return None
    lines = [line for line in head.splitlines()[1:] if line.strip()]
    continuations = [_continuation(part, prompt) for part, prompt in zip(parts, prompts, strict=True)]
    return Texts(label=arm["label"], seed=seed, settings=lines[0] if lines else "", continuations=continuations)


def _continuation(part: str, prompt: str) -> str:
    """The quoted text without its quotation marks and without the prompt, which stands in bold before it."""
    quoted = [line[1:].removeprefix(" ") for line in part.strip("\n").splitlines() if line.startswith(">")]
    return "\n".join(quoted).removeprefix(f"**{prompt}**" if prompt else "").rstrip()
