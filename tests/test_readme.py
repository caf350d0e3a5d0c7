"""Commands of the README that a shell and DVC take apart before they reach this project."""

from __future__ import annotations

import io
import re
import shlex
from itertools import pairwise
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from conftest import ROOT, params_text
from isoflop.params import load_params, parse_params

README = (ROOT / "README.md").read_text(encoding="utf-8")
EXPERIMENTS = re.findall(r"dvc exp run (?:--queue )?(?:-S '[^']+'(?:[ \\\n]+)?|-S [^\s`]+(?:[ \\\n]+)?)+", README)


@pytest.mark.parametrize("command", EXPERIMENTS)
def test_each_experiment_is_one_that_params_takes(command: str, tmp_path: Path) -> None:
    from dvc.utils.hydra import apply_overrides

    (tmp_path / "params.yaml").write_text(params_text())
    words = shlex.split(command.replace("\\\n", " "))
    apply_overrides(tmp_path / "params.yaml", [word for before, word in pairwise(words) if before == "-S"])
    assert load_params(tmp_path / "params.yaml") != load_params(ROOT / "params.yaml")


def test_the_pieces_of_params_are_ones_that_params_takes() -> None:
    yaml = YAML(typ="safe")
    pieces = re.findall(r"^```yaml\n(.*?)^```", README, re.MULTILINE | re.DOTALL)
    assert len(pieces) >= 2
    for piece in pieces:
        changed, new = yaml.load(params_text()), yaml.load(piece)
        for section, content in new.items():
            changed[section] = content if section == "arms" else changed[section] | content
        text = io.StringIO()
        yaml.dump(changed, text)
        parse_params(text.getvalue(), "README.md")


def test_a_path_with_spaces_reaches_params_as_it_is(tmp_path: Path) -> None:
    from dvc.utils.hydra import apply_overrides

    (command,) = re.findall(r"^dvc exp run -S .*data\.source.*$", README, re.MULTILINE)
    settings = shlex.split(command)[4:]
    for path in ("/path/to/my stories.txt", "/a (b), c=d/x.txt", "https://example.org/a.txt?x=1&y=2"):
        (tmp_path / "params.yaml").write_text(params_text())
        apply_overrides(tmp_path / "params.yaml", [each.replace("/path/to/my stories.txt", path) for each in settings])
        assert load_params(tmp_path / "params.yaml").data.source == path
