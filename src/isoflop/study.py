"""Studies: `python -m isoflop.study apply quickstart` puts experiments/quickstart.yaml into params.yaml.

`python -m isoflop.study list` says which there are.
`python -m isoflop.study index` writes the table of experiments/README.md anew from the studies and their reports.
"""

from __future__ import annotations

import argparse
import io
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap, CommentedSeq
from ruamel.yaml.error import YAMLError

from isoflop import paths
from isoflop.errors import IsoflopError
from isoflop.files import read_json, write_text
from isoflop.params import parse_params
from isoflop.reporting.sections.answer import verdict_sentence
from isoflop.schema import UNFIT, Problem, build
from isoflop.stages import run

INDEX = paths.STUDIES / "README.md"
BEGIN, END = "<!-- studies: python -m isoflop.study index -->", "<!-- end of studies -->"


@dataclass(frozen=True, kw_only=True)
class Study:
    """`experiments/<name>.yaml`."""

    question: str
    reasoning: str
    margin: float
    predictions: list[dict[str, object]]
    control: str
    arms: dict[str, dict[str, Any]]
    seeds: list[int]
    params: dict[str, Any]  # dotted keys of params.yaml; a mapping replaces what stands there
    tuned: list[str] | None = None  # study.tuned and study.ladder of params.yaml; most studies have neither
    ladder: dict[str, list[str]] | None = None


def read_study(name: str) -> Study:
    """Read a study. Raises IsoflopError with every problem of the file."""
    path = paths.STUDIES / f"{name}.yaml"
    if not path.is_file():
        known = ", ".join(sorted(p.stem for p in paths.STUDIES.glob("*.yaml"))) or "none"
        raise IsoflopError(f"{path}: no such study; there are: {known}")
    problems: list[Problem] = []
    try:
        made: Any = build(Study, YAML(typ="safe").load(path.read_text(encoding="utf-8")), "", problems)
    except YAMLError as error:
        raise IsoflopError(f"{path}: {' '.join(str(error).split())}") from None
    if problems or made is UNFIT:
        raise IsoflopError("\n".join(f"{path}: {key} {rule}" for key, rule in problems))
    study: Study = made
    return study


def applied(text: str, name: str, study: Study) -> str:
    """The text of a params.yaml with the study in it, comments kept.

    Raises IsoflopError where the study names a key that params.yaml lacks or the outcome is not valid.
    """
    yaml = YAML()
    yaml.width = 120
    yaml.preserve_quotes = True
    yaml.indent(mapping=2, sequence=4, offset=2)
    yaml.representer.add_representer(type(None), lambda r, _: r.represent_scalar("tag:yaml.org,2002:null", "null"))
    document = yaml.load(text)
    document["study"].update(name=name, question=study.question, margin=study.margin)
    document["study"]["predictions"] = [_in_one_line(entry) for entry in study.predictions]
    document["study"]["tuned"] = _in_one_line(study.tuned or [])
    document["study"]["ladder"] = _in_one_line(study.ladder or {})
    document["report"]["control"] = study.control
    document["seeds"][:] = study.seeds
    _refill(document["arms"], {arm: _in_one_line(changes) for arm, changes in study.arms.items()})
    for key, value in study.params.items():
        _set(document, key, _styled(value), f"experiments/{name}.yaml")
    out = io.StringIO()
    yaml.dump(document, out)
    # A replaced list takes the blank line behind it along.
    text = re.sub(r"(?<=[^\n])\n(?=[a-z_]+:)", "\n\n", out.getvalue())
    parse_params(text, f"params.yaml with experiments/{name}.yaml")
    return text


def _set(document: Any, key: str, value: Any, source: str) -> None:
    *folders, leaf = key.split(".")
    for folder in folders:
        document = document.get(folder) if isinstance(document, Mapping) else None
    if not isinstance(document, Mapping) or leaf not in document:
        raise IsoflopError(f"{source}: params.{key}: params.yaml has no such key")
    if isinstance(value, Mapping):
        _refill(document[leaf], value)
    else:
        document[leaf] = value  # type: ignore[index]


def _refill(mapping: Any, content: Mapping[str, Any]) -> None:
    """Other content in its own order, with the comments that the mapping has."""
    for key in list(mapping):
        del mapping[key]
    mapping.update(content)


def _styled(value: Any) -> Any:
    """A mapping of mappings with an entry per line, everything else as it is."""
    if isinstance(value, Mapping):
        return CommentedMap({k: _in_one_line(v) if isinstance(v, Mapping) else v for k, v in value.items()})
    return value


def _in_one_line(value: Mapping[str, Any] | Sequence[Any]) -> CommentedMap | CommentedSeq:
    made = CommentedMap(value) if isinstance(value, Mapping) else CommentedSeq(value)
    made.fa.set_flow_style()
    return made


def index_table() -> str:
    """A row per study: question, arms, verdicts of its report, link."""
    rows = ["| study | question | arms | answer | report |", "|---|---|---|---|---|"]
    for path in sorted(paths.STUDIES.glob("*.yaml")):
        study = read_study(path.stem)
        report = paths.REPORTS / path.stem / "study.json"
        answer = verdict_sentence(read_json(report)) if report.is_file() else "not run yet"
        link = f"[report](../{paths.REPORTS}/{path.stem}/report.md)" if report.is_file() else ""
        arms = ", ".join(study.arms)
        rows.append(f"| [{path.stem}]({path.name}) | {study.question} | {arms} | {answer} | {link} |")
    return "\n".join(rows)


def listing() -> str:
    """The studies with their questions, and how one is chosen."""
    names = sorted(path.stem for path in paths.STUDIES.glob("*.yaml"))
    if not names:
        raise IsoflopError(f"{paths.STUDIES}/: no study (<name>.yaml) is there; README.md says how to add one")
    width = max(map(len, names))
    lines = [f"{name:{width}}  {read_study(name).question}" for name in names]
    return "\n".join([*lines, "", f"make study NAME={names[0]}   puts one into params.yaml; then `dvc repro` runs it"])


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m isoflop.study", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("apply", help="put a study into params.yaml").add_argument("name")
    commands.add_parser("list", help="the studies with their questions")
    commands.add_parser("index", help="write the table of experiments/README.md")
    arguments = parser.parse_args()
    if arguments.command == "apply":
        text = paths.PARAMS.read_text(encoding="utf-8")
        write_text(paths.PARAMS, applied(text, arguments.name, read_study(arguments.name)))
        print(f"params.yaml now holds {arguments.name}; `dvc repro` runs it, `git diff params.yaml` shows what changed")
    elif arguments.command == "list":
        print(listing())
    else:
        before, rest = INDEX.read_text(encoding="utf-8").split(BEGIN)
        after = rest.split(END)[1]
        write_text(INDEX, f"{before}{BEGIN}\n{index_table()}\n{END}{after}")


if __name__ == "__main__":
    run(main)
