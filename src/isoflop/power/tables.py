"""What `python -m isoflop.power` prints."""

from __future__ import annotations

from rich import box
from rich.console import Console
from rich.table import Table

from isoflop.power.outlook import Bill, Outlook
from isoflop.reporting.text import bpb, duration, flops, percent, plural
from isoflop.statistics.sample_size import MAX_SEEDS


def show(found: Outlook, console: Console | None = None) -> None:
    """Noise floor and speed, what the margin takes, what other numbers of seeds can do."""
    console = console or Console()
    # Where the output goes to a file, rich takes 80 columns and would cut the tables.
    console.width = console.width if console.is_terminal else 120
    noise = found.noise
    text = (
        f"study {found.study}: control {found.control}, {plural(found.arms, 'arm')} beside it, margin {found.margin:g}"
    )
    console.print(f"{text} bits per byte", highlight=False)
    floor = f"noise floor {bpb(noise.sd)} bpb: {noise.source}"
    if noise.interval:
        floor += f"; itself uncertain, 95 % interval {bpb(noise.interval.low)} to {bpb(noise.interval.high)}"
    console.print(floor, highlight=False)
    if found.speed:
        console.print(f"speed {flops(found.speed.flops_per_s)} FLOP/s: {found.speed.source}", highlight=False)
    else:
        console.print("speed unknown: no run.json here or in the store, and no --tokens-per-s", highlight=False)
    console.print(_goals(found))
    console.print(_menu(found))
    pairing = "pairing is not counted on" if found.correlation == 0 else f"correlation of pairs {found.correlation:g}"
    console.print(
        f"Seeds are per arm, control included; {pairing}. To do: beyond the runs that stand; the time counts "
        "evaluations as well, at the speed of training.",
        highlight=False,
    )


def _goals(found: Outlook) -> Table:
    table = Table(title=f"With a chance of {percent(found.power)}", title_justify="left", box=box.SIMPLE_HEAD)
    for i, column in enumerate(("to", "noise", "seeds", "runs to do", "FLOPs", "time")):
        table.add_column(column, justify="right" if i > 1 else "left")
    names = {
        "difference": f"find a difference of {found.margin:g}",
        "equivalence": f"show two equal arms equivalent within {found.margin:g}",
    }
    for goal in found.goals:
        noise = f"{bpb(goal.sd)}, " + ("as it is" if goal.sd == found.noise.sd else "upper end")
        seeds = f"more than {MAX_SEEDS}" if goal.seeds is None else str(goal.seeds)
        table.add_row(names[goal.name], noise, seeds, *(_bill(goal.bill) if goal.bill else ("", "", "")))
    return table


def _menu(found: Outlook) -> Table:
    table = Table(title="What other numbers of seeds can do", title_justify="left", box=box.SIMPLE_HEAD)
    columns = ("seeds", f"finds ({percent(found.power)})", f"chance to find {found.margin:g}", "chance to show equal")
    for column in (*columns, "runs to do", "FLOPs", "time"):
        table.add_column(column, justify="right")
    for choice in found.menu:
        own = choice.seeds == len(found.seeds)
        table.add_row(
            f"{choice.seeds}{' (params.yaml)' if own else ''}",
            bpb(choice.smallest),
            percent(choice.chances.difference),
            percent(choice.chances.equivalence),
            *_bill(choice.bill),
            style="bold" if own else None,
        )
    return table


def _bill(bill: Bill) -> tuple[str, str, str]:
    time = "unknown" if bill.hours is None else duration(bill.hours * 3600)
    return str(bill.runs), flops(bill.flops) if bill.runs else "0", time
