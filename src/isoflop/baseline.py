"""params.yaml as committed: what an experiment changed is told against it, and it names the control."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from isoflop import git, paths
from isoflop.config import StudyConfig
from isoflop.errors import IsoflopError
from isoflop.params import Params, parse_params, resolve_arm
from isoflop.schema import flatten, plain

SEPARATOR = " · "


@dataclass(frozen=True, kw_only=True)
class Baseline:
    """The commit an experiment started from. `params` is None where it cannot be read, `problem` says why."""

    rev: str | None
    params: Params | None
    problem: str | None = None

    def label(self, name: str, config: Mapping[str, Any]) -> str:
        """What an arm is called: its name, and how it differs from the committed arm of that name.

        `config` holds `tokenizer`, `model` and `train`, resolved.
        """
        if self.params is None or name not in self.params.arms:
            return name
        differences = changes_between(committed_config(self.params, name), config)
        changed = ", ".join(f"{key.split('.', 1)[-1]}={_short(value)}" for key, value in differences.items())
        return f"{name}{SEPARATOR}{changed}" if changed else name


def read_baseline() -> Baseline:
    """params.yaml at the commit that DVC names for an experiment, else at HEAD, else (no git) as it stands."""
    rev = git.revision(os.environ.get("DVC_EXP_BASELINE_REV") or "HEAD")
    if rev is None:
        text = paths.PARAMS.read_text(encoding="utf-8") if paths.PARAMS.exists() else None
        problem = "there is no git history"
    else:
        text = git.file_at(rev, paths.PARAMS)
        problem = f"commit {rev[:8]} has no params.yaml"
    if text is None:
        return Baseline(rev=rev, params=None, problem=problem)
    try:
        return Baseline(rev=rev, params=parse_params(text, paths.PARAMS.name))
    except IsoflopError as error:
        return Baseline(rev=rev, params=None, problem=f"params.yaml as committed is not valid: {error}")


def predictions_committed(study: StudyConfig) -> dict[str, str] | None:
    """`rev` and `time` of the first commit that holds these predictions, in the study's file or in params.yaml.

    None where none does, and without git.
    """
    study_file = paths.STUDIES / f"{study.name}.yaml"
    for rev, time in git.history_of(study_file, paths.PARAMS):
        texts = {path: git.file_at(rev, path) for path in (study_file, paths.PARAMS)}
        if any(text and _predictions(text) == study.predictions for text in texts.values()):
            return {"rev": rev, "time": time}
    return None


def _predictions(text: str) -> object:
    try:
        document = YAML(typ="safe").load(text)
    except YAMLError:
        return None
    if not isinstance(document, Mapping):
        return None
    study = document.get("study", document)
    return study.get("predictions") if isinstance(study, Mapping) else None


def committed_config(params: Params, name: str) -> dict[str, Any]:
    """The sections of an arm that its label tells differences of."""
    arm = resolve_arm(params, name)
    return {"tokenizer": arm.tokenizer, "model": plain(arm.model), "train": plain(arm.train)}


def changes_between(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """Dotted keys of `old` whose value in `new` is another, with that value. What is null now is not told."""
    before, after = flatten(old), flatten(new)
    return {key: after[key] for key in before if key in after and after[key] not in (before[key], None)}


def _short(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
