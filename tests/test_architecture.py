"""Rules of the layout, and that the check behind each of them can fail."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from conftest import ROOT
from imports import closure, imported, modules
from isoflop import paths

SRC = ROOT / "src"
KNOWN = modules(SRC)
PIPELINE = YAML(typ="safe").load((ROOT / "dvc.yaml").read_text(encoding="utf-8"))["stages"]

# Modules that a stage imports and that cannot change what it writes. Left out of `deps`, so that a change there does
# not train everything again.
WITHOUT_EFFECT = {
    "isoflop.tracking": "MLflow is a view of the run",
    "isoflop.occasion": "names the run in MLflow, and says how often it is saved",
    "isoflop.git": "provenance: what it says is recorded, not used",
}
# `collect` and `report` are cheap and write what these modules decide.
NOTHING_LEFT_OUT = {"collect", "report"}


def declared(stage: str) -> set[str]:
    """Modules that a stage's `deps` name; a folder names all in it."""
    found = set()
    for dep in PIPELINE[stage]["deps"]:
        if dep.startswith("src/"):
            path = ROOT / dep
            assert path.exists(), f"dvc.yaml: {stage}: {dep} does not exist"
            found |= {name for name, file in KNOWN.items() if file == path or path in file.parents}
    return found


def needed(stage: str) -> set[str]:
    """Modules that decide what a stage writes, the bare package apart."""
    without = set() if stage in NOTHING_LEFT_OUT else set(WITHOUT_EFFECT)
    return {
        name
        for name in closure(f"isoflop.stages.{stage}", KNOWN, without)
        if name not in ("isoflop", "isoflop.stages") and KNOWN[name].read_text().strip()
    }


@pytest.mark.parametrize("stage", PIPELINE)
def test_deps_are_what_the_stage_imports(stage: str) -> None:
    missing, superfluous = needed(stage) - declared(stage), declared(stage) - needed(stage)
    # A folder as a dependency may hold a module more than is used; a file may not.
    folders = [ROOT / dep for dep in PIPELINE[stage]["deps"] if (ROOT / dep).is_dir()]
    superfluous = {name for name in superfluous if not any(f in KNOWN[name].parents for f in folders)}
    assert not missing, f"dvc.yaml: {stage}: deps lack {sorted(missing)}"
    assert not superfluous, f"dvc.yaml: {stage}: deps name what it does not import: {sorted(superfluous)}"


@pytest.mark.parametrize("stage", ["collect", "report"])
def test_deps_hold_every_folder_that_is_opened(stage: str) -> None:
    text = "".join(KNOWN[name].read_text(encoding="utf-8") for name in closure(f"isoflop.stages.{stage}", KNOWN))
    # params.yaml is in `params`, and of a study's file only its history in git is asked.
    opened = {name for name in re.findall(r"\bpaths\.([A-Z]+)", text) if name not in ("PARAMS", "STUDIES")}
    assert len(opened) > 1, "the rule is about something"
    for folder in (str(getattr(paths, name)) for name in opened):
        known = (*PIPELINE[stage]["deps"], *map(str, PIPELINE[stage]["outs"]))
        assert any(folder in each for each in known), f"dvc.yaml: {stage}: deps lack {folder}"


@pytest.mark.parametrize("stage", PIPELINE)
def test_one_word_names_stage_module_and_command(stage: str) -> None:
    assert f"isoflop.stages.{stage}" in KNOWN
    command = PIPELINE[stage]["cmd"]
    assert command.startswith(f"PYTHONPATH=src python -m isoflop.stages.{stage}"), command


def test_stages_do_not_import_each_other() -> None:
    for name, path in KNOWN.items():
        if name.startswith("isoflop.stages."):
            others = {other for other in imported(path, KNOWN) if other.startswith("isoflop.stages.")}
            assert not others, f"{name} imports {others}"


@pytest.mark.parametrize(
    ("package", "allowed"), [("mlflow", "isoflop.tracking"), ("dvc", None), ("seaborn", "isoflop.reporting")]
)
def test_a_package_is_imported_only_where_it_belongs(package: str, allowed: str | None) -> None:
    users = {name for name, path in KNOWN.items() if external(path, package)}
    assert all(allowed and name.startswith(allowed) for name in users), users
    assert bool(users) == bool(allowed), "the rule is about something"


@pytest.mark.parametrize("stage", ["download", "tokenize", "plan", "collect", "report"])
def test_stages_that_do_not_compute_do_not_import_torch(stage: str) -> None:
    users = [name for name in closure(f"isoflop.stages.{stage}", KNOWN) if external(KNOWN[name], "torch")]
    assert not users


@pytest.mark.parametrize("stage", ["evaluate", "sample", "plan"])
def test_stages_that_log_nothing_do_not_import_mlflow(stage: str) -> None:
    assert not [name for name in closure(f"isoflop.stages.{stage}", KNOWN) if name.startswith("isoflop.tracking")]


def test_the_loop_knows_neither_mlflow_nor_files_of_the_pipeline() -> None:
    reached = closure("isoflop.training", KNOWN)
    assert not {name for name in reached if name.startswith(("isoflop.tracking", "isoflop.stages"))}
    assert "isoflop.paths" not in reached


def external(path: Path, package: str) -> bool:
    import ast

    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        if any(name.split(".")[0] == package for name in names):
            return True
    return False


def test_the_import_reader_sees_what_it_should(tmp_path: Path) -> None:
    (tmp_path / "p").mkdir()
    (tmp_path / "p" / "__init__.py").write_text("import p.init_only\n")
    (tmp_path / "p" / "init_only.py").write_text("")
    (tmp_path / "p" / "a.py").write_text("from p import b\ndef f():\n    from p.c import x\n")
    (tmp_path / "p" / "b.py").write_text(
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import p.never\nimport torch\n"
    )
    (tmp_path / "p" / "c.py").write_text("")
    (tmp_path / "p" / "never.py").write_text("")
    known = modules(tmp_path)
    assert closure("p.a", known) == {"p", "p.init_only", "p.a", "p.b", "p.c"}
    assert closure("p.a", known, {"p.c"}) == {"p", "p.init_only", "p.a", "p.b"}
    assert external(tmp_path / "p" / "b.py", "torch")
    assert not external(tmp_path / "p" / "a.py", "torch")
