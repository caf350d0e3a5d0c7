"""The command line: `python -m isoflop.power`."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence

from isoflop import paths
from isoflop import power as package
from isoflop.params import load_params, parse_params
from isoflop.power.arguments import count_of, positive, share_of
from isoflop.power.known import known_runs
from isoflop.power.outlook import outlook
from isoflop.power.tables import show
from isoflop.schema import plain
from isoflop.stages import run
from isoflop.statistics.sample_size import POWER
from isoflop.study import applied, read_study


def arguments(argv: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m isoflop.power", description=package.__doc__)
    parser.add_argument("--study", metavar="NAME", help="experiments/NAME.yaml instead of params.yaml as it stands")
    parser.add_argument("--sd", type=positive, help="noise floor in bits per byte, instead of the control's seeds")
    parser.add_argument("--margin", type=positive, help="bits per byte, instead of study.margin")
    parser.add_argument("--arms", type=count_of, metavar="N", help="beside the control, instead of those there are")
    parser.add_argument("--power", type=share_of, default=POWER, help="chance to aim at (default: 0.8)")
    parser.add_argument(
        "--correlation",
        type=float,
        default=0.0,
        help="between runs of one seed in two arms (default: 0, the cautious choice)",
    )
    parser.add_argument("--tokens-per-s", type=positive, metavar="T", help="of the control, instead of the last runs'")
    parser.add_argument("--json", action="store_true", help="print JSON")
    return parser.parse_args(argv)


def main() -> None:
    options = arguments()
    if options.study:
        text = applied(paths.PARAMS.read_text(encoding="utf-8"), options.study, read_study(options.study))
        params = parse_params(text, f"params.yaml with experiments/{options.study}.yaml")
    else:
        params = load_params(paths.PARAMS)
    found = outlook(
        params,
        known_runs(params),
        sd=options.sd,
        margin=options.margin,
        arms=options.arms,
        power=options.power,
        correlation=options.correlation,
        tokens_per_s=options.tokens_per_s,
    )
    if options.json:
        print(json.dumps(plain(found), indent=1, ensure_ascii=False, allow_nan=False))
    else:
        show(found)


if __name__ == "__main__":
    run(main)
