"""params.yaml -> typed, validated configuration, and the arms resolved against it.

Read as DVC reads it: YAML 1.2 (`3e-05` is a number, `off` is a string), a repeated key is an error.
All problems of the file are told in one message, each as `params.yaml: key = value rule`.
"""

from __future__ import annotations

import copy
import dataclasses
import typing
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from isoflop.config import (
    DataConfig,
    EvalConfig,
    ModelShape,
    ReportConfig,
    SampleConfig,
    StudyConfig,
    TokenizerSpec,
    TrainConfig,
    TrainSection,
)
from isoflop.errors import IsoflopError
from isoflop.schema import NAME, NAME_RULE, UNFIT, Problem, build, fields_of, flatten, hint, pairs, plain

ARM_SECTIONS = ("model", "train", "tokenizer")
_ABSENT = object()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Params:
    """The whole of params.yaml, checked. `raw` is the file as plain data; `source` its name in messages."""

    study: StudyConfig
    data: DataConfig
    tokenizers: dict[str, TokenizerSpec]
    tokenizer: str
    model: ModelShape
    train: TrainSection
    eval: EvalConfig
    sample: SampleConfig
    report: ReportConfig
    arms: dict[str, dict[str, Any]]
    seeds: list[int]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Arm:
    """One arm resolved: what it changes, and everything it trains with."""

    name: str
    changes: dict[str, Any]
    tokenizer: str
    tokenizer_spec: TokenizerSpec
    model: ModelShape
    train: TrainSection


def load_params(path: Path) -> Params:
    """Read and check a params.yaml. Raises IsoflopError that lists every problem of the file."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise IsoflopError(f"{path}: no such file; run from the repository's root") from None
    except UnicodeDecodeError as error:
        raise IsoflopError(f"{path}: not UTF-8 at byte {error.start}") from None
    return parse_params(text, path.name)


def parse_params(text: str, source: str) -> Params:
    """Check the text of a params.yaml. `source` names it in messages."""
    try:
        raw = YAML(typ="safe").load(text)
    except YAMLError as error:
        raise IsoflopError(f"{source}: {' '.join(str(error).split())}") from None
    if not isinstance(raw, dict):
        raise IsoflopError(f"{source}: must be a mapping with the sections {', '.join(fields_of(Params))}")
    problems: list[Problem] = []
    params: Any = build(Params, raw, "", problems)
    if params is not UNFIT:
        problems += _check_whole(params)
    problems += _check_arms(raw, set(problems))
    if problems:
        unique = dict.fromkeys(_sentence(source, raw, key, rule) for key, rule in problems)
        raise IsoflopError("\n".join(unique))
    checked: Params = dataclasses.replace(params, arms={n: flatten(c) for n, c in params.arms.items()})
    return checked


def resolve_arm(params: Params, name: str) -> Arm:
    """The complete configuration of one arm. Raises IsoflopError for a name that params.yaml lacks."""
    if name not in params.arms:
        raise IsoflopError(f"params.yaml: arms has no {name!r}; it has {', '.join(params.arms)}")
    arm, problems = _resolve(plain(params), name)
    assert arm is not None, problems
    return arm


# --- arms -------------------------------------------------------------------------------------------


def _check_arms(raw: dict[str, Any], known: set[Problem]) -> Iterator[Problem]:
    """Problems of each arm that the file as it stands does not have already."""
    sections_stand = all(isinstance(raw.get(key), Mapping) for key in ("arms", "tokenizers", "model", "train"))
    if not sections_stand or "tokenizer" not in raw:
        return
    for name, changes in raw["arms"].items():
        if isinstance(name, str) and isinstance(changes, Mapping):
            for key, rule in _resolve(raw, name)[1]:
                if (key.removeprefix(f"arms.{name}: "), rule) not in known:
                    yield key, rule


def _resolve(raw: Mapping[str, Any], name: str) -> tuple[Arm | None, list[Problem]]:
    arms, tokenizers = raw["arms"], raw["tokenizers"]
    changes = flatten(arms[name])
    problems = [(f"arms.{name}.{key}", rule) for key, rule in _changes_problems(changes, raw)]
    if len(changes) < len(list(pairs(arms[name]))):
        problems.append((f"arms.{name}", "sets one key twice, dotted and nested"))
    if problems:
        return None, problems
    merged = {section: copy.deepcopy(raw[section]) for section in ARM_SECTIONS}
    for key, value in changes.items():
        _assign(merged, key, value)
    found: list[Problem] = []
    model = build(ModelShape, merged["model"], "model", found)
    train = build(TrainSection, merged["train"], "train", found)
    tokenizer = merged["tokenizer"]
    if not isinstance(tokenizer, str) or tokenizer not in tokenizers:
        found.append(("tokenizer", f"is not one of tokenizers: {', '.join(tokenizers)}"))
    if found:
        # The arm's own key where it set it; else the base's, which the arm's other changes made wrong.
        return None, [
            (f"arms.{name}.{key}", rule)
            if any(own == key or own.startswith(f"{key}.") for own in changes)
            else (f"arms.{name}: {key}", rule)
            for key, rule in found
        ]
    problems += _beyond_learned(raw, typing.cast(ModelShape, model), name)
    arm = Arm(
        name=name,
        changes=changes,
        tokenizer=tokenizer,
        tokenizer_spec=build(TokenizerSpec, tokenizers[tokenizer], f"tokenizers.{tokenizer}", found),
        model=typing.cast(ModelShape, model),
        train=typing.cast(TrainSection, train),
    )
    return arm, problems


def _beyond_learned(raw: Mapping[str, Any], model: ModelShape, name: str) -> Iterator[Problem]:
    """Learned positions end at block_size: nothing can be scored beyond it."""
    evaluation = raw.get("eval")
    contexts = evaluation.get("contexts") if isinstance(evaluation, Mapping) else None
    longest = max((c for c in contexts if isinstance(c, int)), default=0) if isinstance(contexts, list) else 0
    if model.positions == "learned" and longest > model.block_size:
        yield (
            "eval.contexts",
            f"goes beyond model.block_size = {model.block_size}, where the learned positions of arm {name} end",
        )


def _changes_problems(changes: Mapping[str, Any], raw: Mapping[str, Any]) -> Iterator[Problem]:
    known = flatten({section: raw[section] for section in ARM_SECTIONS}).keys()
    budget = {f"train.budget.{key}" for key in fields_of(typing.get_type_hints(TrainConfig)["budget"])}
    for key in changes:
        if key.split(".")[0] not in ARM_SECTIONS:
            yield key, f"cannot be set by an arm: arms change {', '.join(ARM_SECTIONS)}; the rest is shared"
        elif key not in known and key not in budget:
            yield key, f"is unknown{hint(key, known)}"


def _assign(target: dict[str, Any], key: str, value: Any) -> None:
    *folders, leaf = key.split(".")
    for folder in folders:
        target = target[folder]
    target[leaf] = value


# --- the file as a whole ----------------------------------------------------------------------------


def _check_whole(params: Params) -> Iterator[Problem]:
    for section in ("arms", "tokenizers"):
        names = getattr(params, section)
        if not names:
            yield section, "must have at least one entry"
        for name in names:
            if not NAME.fullmatch(name):
                yield f"{section}.{name}", f"is no valid name: it {NAME_RULE}"
    if not NAME.fullmatch(params.study.name):
        yield "study.name", NAME_RULE
    if params.tokenizer not in params.tokenizers:
        yield "tokenizer", f"is not one of tokenizers: {', '.join(params.tokenizers)}"
    trained = flatten({"train": plain(params.train)})
    for key in params.study.tuned:
        if key.startswith("train.") and key not in trained:
            yield "study.tuned", f"holds {key!r}, which is unknown{hint(key, trained)}"
    for family, names in params.study.ladder.items():
        for name in names:
            if name not in params.arms:
                yield f"study.ladder.{family}", f"holds {name!r}, which is not one of arms: {', '.join(params.arms)}"
    if params.report.control not in params.arms:
        yield "report.control", f"is not one of arms: {', '.join(params.arms)}"
    if not params.seeds:
        yield "seeds", "must have at least one seed"
    if len(set(params.seeds)) < len(params.seeds):
        yield "seeds", "has a seed twice"
    if any(seed < 0 for seed in params.seeds):
        yield "seeds", "must not be negative"


def _sentence(source: str, raw: Any, key: str, rule: str) -> str:
    value: Any = raw
    path = key.split(": ")[-1]
    while path and isinstance(value, Mapping | list):
        if isinstance(value, list):
            head, _, path = path.partition(".")
            value = value[int(head)] if head.isdigit() and int(head) < len(value) else _ABSENT
            continue
        # An arm's own keys may be dotted, so the longest match comes first.
        parts = path.split(".")
        for n in range(len(parts), 0, -1):
            if (head := ".".join(parts[:n])) in value:
                value, path = value[head], ".".join(parts[n:])
                break
        else:
            value = _ABSENT
    shown = "" if value is _ABSENT or isinstance(value, Mapping) else f" = {_literal(value)}"
    return f"{source}: {key}{shown} {rule}"


def _literal(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return str(value).lower().replace("none", "null")
    return repr(value)
