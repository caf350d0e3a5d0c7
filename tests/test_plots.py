"""`dvc plots show`: the template fits what `collect` writes."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from dvc_render.vega import VegaRenderer
from ruamel.yaml import YAML

from conftest import ROOT
from isoflop.analysis import curves_table
from studies import make_study, table

PLOTS = YAML(typ="safe").load((ROOT / "dvc.yaml").read_text(encoding="utf-8"))["plots"]
CURVES = "reports/${study.name}/curves.csv"


def parts() -> list[tuple[str, dict[str, Any]]]:
    return [(name, plot) for entry in PLOTS for name, plot in entry.items()]


@pytest.mark.parametrize(("name", "plot"), parts())
def test_each_plot_reads_columns_of_the_curves(name: str, plot: dict[str, Any]) -> None:
    columns = set(table(curves_table(make_study(seeds=[0]))))
    assert plot["x"] in columns, name
    assert plot["y"][CURVES] in columns, name
    assert {"arm", "seed"} <= columns, "the template colours by arm"


@pytest.mark.parametrize(("name", "plot"), parts())
def test_the_template_takes_everything_that_dvc_fills_in(name: str, plot: dict[str, Any]) -> None:
    rows = table(curves_table(make_study(seeds=[0]))).head(3).to_dict("records")
    rows = [{k: "" if isinstance(v, float) and math.isnan(v) else str(v) for k, v in row.items()} for row in rows]
    points = [{**row, "rev": "workspace", "filename": CURVES, "field": plot["y"][CURVES]} for row in rows]
    renderer = VegaRenderer(
        points,
        name,
        template=plot["template"],
        template_dir=str(ROOT / ".dvc" / "plots"),
        x=plot["x"],
        y=plot["y"][CURVES],
        x_label=plot["x_label"],
        y_label=plot["y_label"],
        title=name,
        anchors_y_definitions=[{"filename": CURVES, "field": plot["y"][CURVES]}],
        revs_with_datapoints=["workspace"],
    )
    text = renderer.partial_html()
    filled = json.loads(text) if isinstance(text, str) else text
    assert "<DVC_METRIC" not in json.dumps(filled)
    assert [row["arm"] for row in filled["data"]["values"]] == [row["arm"] for row in rows]
    assert filled["title"]["text"] == name
