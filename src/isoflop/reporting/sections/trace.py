"""Where every number comes from, and how to make it again."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import version
from typing import Any

from isoflop.reporting.document import Block, Bullets, Cell, Code, Section, Text, cell, table
from isoflop.reporting.markup import code, esc
from isoflop.reporting.sections.answer import corpus_name
from isoflop.reporting.text import bpb, count, listed, moment, plural, setting

UI = "http://127.0.0.1:5000"  # where `make ui` serves


def sections(study: dict[str, Any]) -> Iterator[Section]:
    yield Section(id="runs", title="Runs", blocks=list(_runs(study)))
    yield Section(id="reproduce", title="Reproduce", blocks=list(_reproduce(study)))


def _runs(study: dict[str, Any]) -> Iterator[Block]:
    rows = [_run_row(arm, run, study) for arm in (*study["arms"], *study["aside"]) for run in arm["runs"]]
    if not rows:
        yield Text(text="There is no run.")
        return
    columns = ("arm", "seed", "status", "test bpb", "last val bpb", "from", "run uid", "MLflow run", "revision", "code")
    yield table(columns, rows, text_columns=(0, 2, 5, 6, 7, 8, 9))
    where = "of the tracking server" if study["facts"]["tracking_uri"] else "while `make ui` runs"
    yield Text(
        text=f"Links open the run in MLflow {where}. Each row rests on `experiments/eval/<arm>-<seed>.json`; "
        "`runs.csv`, `curves.csv` and `study.json` beside this report hold its numbers."
    )


def _run_row(arm: dict[str, Any], run: dict[str, Any], study: dict[str, Any]) -> list[Cell]:
    record = run["record"] or {}
    revision, digest = record.get("git_rev"), record.get("code_digest")
    return [
        cell(code(arm["label"])),
        cell(run["seed"], sort=run["seed"]),
        cell(run["status"] if run["status"] == "finished" else f"**{run['status']}**"),
        cell(bpb(run["bpb"]), sort=run["bpb"]),
        cell(bpb(run["val_bpb"]), sort=run["val_bpb"]),
        cell(run["origin"]),
        cell(code(run["run_uid"])),
        cell(_link(run, study)),
        cell((code(revision[:8]) + (" + changes" if record.get("git_dirty") else "")) if revision else "unknown"),
        cell(code(digest) if digest else "unknown"),
    ]


def _link(run: dict[str, Any], study: dict[str, Any]) -> str:
    if not run["run_id"]:
        return "not in the store"
    base = (study["facts"]["tracking_uri"] or UI).rstrip("/")
    return f"[{run['run_id']}]({base}/#/experiments/{run['experiment_id']}/runs/{run['run_id']})"


def _reproduce(study: dict[str, Any]) -> Iterator[Block]:
    yield Code(text="\n".join(_commands(study)))
    yield Bullets(items=list(_versions(study)))


def _commands(study: dict[str, Any]) -> Iterator[str]:
    facts = study["facts"]
    revisions = [rev for rev in facts["git_revs"] if rev]
    if len(revisions) > 1:
        yield f"# {len(revisions)} revisions made these runs; the table of runs names them"
    if revisions:
        yield f"git checkout {revisions[0]}" + "".join(f"   # or {revision}" for revision in revisions[1:])
    yield "make repro        # installs what requirements.txt pins, then: dvc repro"
    for arm in study["arms"]:
        if arm["role"] == "exploratory" and arm["changes"]:
            settings = " ".join(f"-S {key}={setting(value)}" for key, value in arm["changes"].items())
            yield f"dvc exp run {settings}"
    if study["corpus"]["fallback"]:
        yield f"{study['corpus']['fetch_command']}        # the real corpus, once it can be reached"


def _versions(study: dict[str, Any]) -> Iterator[str]:
    facts, corpus = study["facts"], study["corpus"]
    for machine in facts["machines"]:
        yield (
            f"{plural(machine['runs'], 'run')} with Python {esc(machine['python'])}, torch {esc(machine['torch'])}, "
            f"{esc(machine['precision'])}, on {esc(machine['device'])} ({esc(machine['host_cpu'])}, "
            f"{plural(machine['cores'], 'core')}, {plural(machine['threads'], 'thread')})."
        )
    if started := facts["started"]:
        yield f"Runs started {' to '.join(dict.fromkeys(moment(time) for time in started))}."
    if facts["experiments"]:
        yield f"Made in the experiments {listed([code(name) for name in facts['experiments']])} (`dvc exp show`)."
    splits = corpus["splits"]
    sizes = [
        f"{name} {count(s['bytes'])} bytes in {plural(s['stories'], 'story', 'stories')}" for name, s in splits.items()
    ]
    revision = f", revision {code(corpus['revision'][:12])}" if corpus["revision"] else ""
    yield f"Corpus: {corpus_name(study)}{revision}; {listed(sizes)}."
    if protocol := facts["protocol"]:
        yield (
            f"Evaluation: {esc(protocol['split'])} split, window advanced by {protocol['stride']:g} of its length; "
            f"{esc(protocol['rule'])}."
        )
    yield (
        f"Statistics: numpy {version('numpy')}, scipy {version('scipy')}. On a CPU the same code, versions and threads "
        "give the same numbers."
    )
