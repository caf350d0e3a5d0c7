"""Studies: applied to params.yaml with its comments, refused where they do not fit."""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import Any

import pytest

from conftest import ROOT, params_text
from isoflop.errors import IsoflopError
from isoflop.params import parse_params, resolve_arm
from isoflop.study import Study, applied, index_table, listing, read_study

STUDIES = sorted(path.stem for path in (ROOT / "experiments").glob("*.yaml"))


@pytest.fixture(autouse=True)
def _at_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)


def study(**changes: Any) -> Study:
    return Study(**vars(read_study("quickstart")) | changes)


@pytest.mark.parametrize("name", STUDIES)
def test_each_study_can_be_applied_and_keeps_every_comment(name: str) -> None:
    before = params_text()
    after = applied(before, name, read_study(name))
    params = parse_params(after, "params.yaml")
    assert params.study.name == name
    assert list(params.arms) == list(read_study(name).arms)
    comments = [line.split("#", 1)[1].strip() for line in before.splitlines() if "#" in line]
    kept = [comment for comment in comments if comment in after]
    assert kept == comments


def test_the_committed_params_hold_the_first_study() -> None:
    assert applied(params_text(), "quickstart", read_study("quickstart")) == params_text()


def test_only_what_the_study_says_changes() -> None:
    arms = {"base": {}, "two": {"model.n_kv_head": 2}}
    after = applied(params_text(), "x", study(arms=arms, seeds=[4, 5], params={"train.batch_size": 32}))
    changed = [
        line[1:].strip() for line in difflib.ndiff(params_text().splitlines(), after.splitlines()) if line[0] == "+"
    ]
    assert [line.split("#")[0].strip() for line in changed] == [
        "name: x",
        "batch_size: 32",
        "two: {model.n_kv_head: 2}",
        "seeds: [4, 5]",
    ]
    assert resolve_arm(parse_params(after, "p"), "two").model.n_kv_head == 2


def test_a_key_that_params_lacks_is_refused() -> None:
    with pytest.raises(IsoflopError, match=r"experiments/x\.yaml: params\.model\.n_hed: params\.yaml has no such key"):
        applied(params_text(), "x", study(params={"model.n_hed": 3}))


def test_a_study_that_makes_params_wrong_is_refused_with_the_reason() -> None:
    with pytest.raises(IsoflopError, match=r"arms\.bad\.model\.n_kv_head = 3 does not divide model\.n_head = 4"):
        applied(params_text(), "x", study(arms={"base": {}, "bad": {"model.n_kv_head": 3}}))


def test_an_unknown_study_names_those_that_exist() -> None:
    with pytest.raises(IsoflopError, match=r"experiments/nope\.yaml: no such study; there are: .*quickstart"):
        read_study("nope")


def test_a_study_with_a_missing_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (ROOT / "experiments/quickstart.yaml").read_text().replace("margin: 0.01", "margn: 0.01")
    (tmp_path / "experiments").mkdir()
    (tmp_path / "experiments" / "typo.yaml").write_text(text)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(IsoflopError, match=r"margn is unknown; did you mean margin\?") as caught:
        read_study("typo")
    assert "experiments/typo.yaml: margin is missing" in str(caught.value)


def test_the_index_has_a_row_per_study() -> None:
    table = index_table()
    assert all(f"[{name}]({name}.yaml)" in table for name in STUDIES)


def test_the_list_has_every_study_with_its_question_and_the_command() -> None:
    lines = listing().splitlines()
    for name in STUDIES:
        assert any(line.split()[0] == name and line.endswith(read_study(name).question) for line in lines if line)
    assert lines[-1].startswith(f"make study NAME={STUDIES[0]} ")


def test_without_a_study_the_list_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(IsoflopError, match=r"experiments/: no study"):
        listing()
