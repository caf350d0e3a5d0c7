"""report: the write-up, out of what `collect` and `sample` wrote."""

from __future__ import annotations

import pandas as pd

from isoflop import paths
from isoflop.files import read_json
from isoflop.params import load_params
from isoflop.reporting import read_samples, write_report
from isoflop.stages import run


def main() -> None:
    params = load_params(paths.PARAMS)
    folder = paths.REPORTS / params.study.name
    study = read_json(folder / "study.json")
    samples = read_samples(study, paths.SAMPLES, params.sample.prompts)
    write_report(study, pd.read_csv(folder / "curves.csv"), samples, params.sample.prompts, folder)
    print(f"report: {folder / 'report.md'}, {folder / 'report.html'}")


if __name__ == "__main__":
    run(main)
