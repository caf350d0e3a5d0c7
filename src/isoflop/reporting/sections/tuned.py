"""Settings that were tuned per arm: what val chose, and whether the best one moved."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from isoflop.reporting.document import Block, Bullets, Cell, Section, Text, cell, table
from isoflop.reporting.markup import code, esc
from isoflop.reporting.text import NA, bpb, listed, seeds_text, setting, signed


def sections(study: dict[str, Any]) -> Iterator[Section]:
    if study["tuned"]:
        yield Section(id="tuned", title="Settings tuned for each arm", blocks=list(_blocks(study)))


def _blocks(study: dict[str, Any]) -> Iterator[Block]:
    keys = study["tuned"]["keys"]
    compared = {arm["label"] for arm in study["arms"]}
    # Rungs of a ladder have grids as well; those with one setting have nothing to tell.
    grids = [g for g in study["tuned"]["grids"] if _best(g)["label"] in compared or len(g["candidates"]) > 1]
    names = [key.rpartition(".")[2] for key in keys]
    columns = ("arm", *names, "last val bpb", "above its best", "seeds", "outcome")
    rows = [_row(candidate, grid, keys) for grid in grids for candidate in grid["candidates"]]
    yield table(columns, rows, text_columns=(0, len(columns) - 1))
    yield Text(
        text="Each arm was trained with every setting of its grid. The one with the lowest last val bpb, meant over "
        "the seeds that all its settings finished, stands for the arm; what is claimed of it is measured on test. A "
        "setting at which a seed diverged cannot be chosen: the mean of the other seeds would flatter it."
    )
    yield Bullets(items=list(_remarks(grids, keys)))


def _row(candidate: dict[str, Any], grid: dict[str, Any], keys: Sequence[str]) -> list[Cell]:
    best = next(each["val"] for each in grid["candidates"] if each["chosen"])
    val = candidate["val"]
    above = None if val is None or best is None else val - best
    return [
        cell(code(candidate["label"])),
        *(_setting_cell(candidate["settings"][key]) for key in keys),
        cell(bpb(val), sort=val),
        cell("" if candidate["chosen"] else signed(above), sort=above),
        cell(NA if val is None else len(grid["seeds"])),
        cell(_outcome(candidate, grid)),
    ]


def _setting_cell(value: object) -> Cell:
    return cell(esc(setting(value)), sort=float(value) if isinstance(value, int | float) else None)


def _outcome(candidate: dict[str, Any], grid: dict[str, Any]) -> str:
    if candidate["diverged"]:
        return f"{seeds_text(candidate['diverged'])} **diverged**"
    if not candidate["chosen"]:
        return "not the best"
    if grid["problem"]:
        return f"stands, unchosen: {esc(grid['problem'])}"
    return "**chosen**" if len(grid["candidates"]) > 1 else "the only setting"


def _remarks(grids: Sequence[dict[str, Any]], keys: Sequence[str]) -> Iterator[str]:
    """Whether the best setting moved from the control's, and what makes that doubtful."""
    control, *others = grids
    tuned = [grid for grid in others if _was_tuned(grid)]
    if not _was_tuned(control):
        reason = esc(control["problem"] or "trained with one setting")
        yield f"Whether the best setting moves cannot be said: the control was not tuned itself ({reason})."
    elif tuned:
        yield from _moved(control, tuned, keys)
    why: dict[str, list[str]] = {}
    for grid in others:
        if not _was_tuned(grid):
            why.setdefault(grid["problem"] or "trained with one setting", []).append(code(_best(grid)["label"]))
    for reason, names in why.items():
        verb = "was" if len(names) == 1 else "were"
        yield f"{listed(names)} {verb} not tuned ({esc(reason)}): a disadvantage against a tuned control."
    for grid in tuned:
        if _tried(grid, keys) != _tried(control, keys) and _was_tuned(control):
            name = code(_best(grid)["label"])
            yield f"{name} was chosen among other settings than the control: the larger choice is the luckier one."
    for grid in (control, *tuned):
        if edges := list(_edges(grid, keys)):
            name = code(_best(grid)["label"])
            yield f"{name} is best at the edge of its grid ({listed(edges)}): a better setting may lie beyond."


def _moved(control: dict[str, Any], tuned: Sequence[dict[str, Any]], keys: Sequence[str]) -> Iterator[str]:
    own = _best(control)
    moved = [grid for grid in tuned if _best(grid)["settings"] != own["settings"]]
    if not moved:
        yield f"**The best setting did not move**: it is {_settings(own, keys)} for the control and every tuned arm."
        return
    each = [f"{code(_best(grid)['label'])} is best at {_settings(_best(grid), keys)}" for grid in moved]
    yield f"**The best setting moved**: {listed([f'the control is best at {_settings(own, keys)}', *each])}."


def _was_tuned(grid: dict[str, Any]) -> bool:
    return len(grid["candidates"]) > 1 and grid["problem"] is None


def _best(grid: dict[str, Any]) -> dict[str, Any]:
    return next(candidate for candidate in grid["candidates"] if candidate["chosen"])


def _settings(candidate: dict[str, Any], keys: Sequence[str]) -> str:
    return listed([f"{code(key.rpartition('.')[2])} = {esc(setting(candidate['settings'][key]))}" for key in keys])


def _tried(grid: dict[str, Any], keys: Sequence[str]) -> list[tuple[str, ...]]:
    return sorted(tuple(setting(candidate["settings"][key]) for key in keys) for candidate in grid["candidates"])


def _edges(grid: dict[str, Any], keys: Sequence[str]) -> Iterator[str]:
    """Tuned numbers whose best value is the lowest or highest of at least two: `lr` = 0.003, the lowest."""
    if not _was_tuned(grid):
        return
    for key in keys:
        tried = {_number(candidate["settings"], key) for candidate in grid["candidates"]} - {None}
        best = _number(_best(grid)["settings"], key)
        if best is not None and len(tried) > 1:
            numbers = sorted(value for value in tried if value is not None)
            if best in (numbers[0], numbers[-1]):
                end = "lowest" if best == numbers[0] else "highest"
                yield f"{code(key.rpartition('.')[2])} = {best:g}, the {end} tried"


def _number(settings: Mapping[str, Any], key: str) -> float | None:
    value = settings[key]
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
