"""collect: fill the MLflow store in, gather what is comparable, work out what it says."""

from __future__ import annotations

import sys

from isoflop import paths
from isoflop.analysis import analyse, curves_table, runs_table, set_apart, summary
from isoflop.baseline import predictions_committed
from isoflop.collecting import collect
from isoflop.files import write_json, write_text
from isoflop.params import load_params
from isoflop.stages import run


def main() -> None:
    params = load_params(paths.PARAMS)
    collected = set_apart(collect(params))
    study = analyse(collected, predictions_committed=predictions_committed(params.study))
    folder = paths.REPORTS / params.study.name
    write_text(folder / "runs.csv", runs_table(collected))
    write_text(folder / "curves.csv", curves_table(collected))
    write_json(folder / "study.json", study)
    write_json(folder / "summary.json", summary(study))
    for warning in collected.warnings:
        print(f"warning: {warning}", file=sys.stderr)
    if collected.source["fallback"]:
        # Each `dvc repro` says it, so that a corpus held for up to date does not stay the fallback unnoticed.
        print(
            f"warning: these results are on the embedded grammar, not on {collected.source['requested']}: "
            f"{collected.source['fallback_reason']}. Once the hub can be reached: {collected.source['fetch_command']}",
            file=sys.stderr,
        )


if __name__ == "__main__":
    run(main)
