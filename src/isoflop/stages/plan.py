"""plan@ARM: resolve one arm and predict its run."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table

from isoflop import paths
from isoflop.errors import IsoflopError
from isoflop.params import load_params, resolve_arm
from isoflop.plan import Plan, make_plan
from isoflop.stages import run
from isoflop.tokens import read_meta


def main() -> None:
    params = load_params(paths.PARAMS)
    arm = resolve_arm(params, sys.argv[1])
    plan = make_plan(arm, read_meta(paths.TOKENS / arm.tokenizer))
    plan.write(paths.PLANS / f"{arm.name}.yaml")
    known = [paths.PLANS / f"{name}.yaml" for name in params.arms]
    console = Console()
    # Where the output goes to a file, rich takes 80 columns and would cut the names of these eight.
    console.width = console.width if console.is_terminal else 120
    console.print(side_by_side([plan, *others(plan, [path for path in known if path.is_file()])]))


def others(plan: Plan, known: list[Path]) -> Iterator[Plan]:
    """The other arms' plans for the same tokens and budget; what another version left is passed over."""
    for path in known:
        try:
            other = Plan.read(path)
        except IsoflopError:
            continue
        if other.arm != plan.arm and other.data_digest == plan.data_digest and other.train.budget == plan.train.budget:
            yield other


def side_by_side(plans: list[Plan]) -> Table:
    """The predictions of the arms planned so far."""
    table = Table(title="Predicted before any run", title_justify="left", box=box.SIMPLE_HEAD)
    columns = ("arm", "parameters", "FLOPs/token", "steps", "tokens", "FLOPs", "epochs", "first loss")
    for i, column in enumerate(columns):
        table.add_column(column, justify="right" if i else "left")
    for plan in plans:
        p = plan.predicted
        table.add_row(
            plan.arm,
            f"{p.parameters:,}",
            f"{p.flops_per_token:,}",
            f"{p.steps:,}",
            f"{p.tokens:,}",
            f"{p.flops:.4g}",
            f"{p.epochs:.3g}",
            f"{p.first_loss:.3f}",
        )
    return table


if __name__ == "__main__":
    run(main)
