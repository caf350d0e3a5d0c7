"""Commands of the README that a shell and DVC take apart before they reach this project."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from conftest import ROOT, params_text
from isoflop.params import load_params


def test_a_path_with_spaces_reaches_params_as_it_is(tmp_path: Path) -> None:
    from dvc.utils.hydra import apply_overrides

    (command,) = re.findall(r"^dvc exp run -S .*data\.source.*$", (ROOT / "README.md").read_text(), re.MULTILINE)
    settings = shlex.split(command)[4:]
    for path in ("/path/to/my stories.txt", "/a (b), c=d/x.txt", "https://example.org/a.txt?x=1&y=2"):
        (tmp_path / "params.yaml").write_text(params_text())
        apply_overrides(tmp_path / "params.yaml", [each.replace("/path/to/my stories.txt", path) for each in settings])
        assert load_params(tmp_path / "params.yaml").data.source == path
