"""Every committed study: planned for all its arms, and each arm trained, scored and sampled for a moment."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from types import SimpleNamespace

import pytest

from conftest import ROOT, params_text
from isoflop import grammar
from isoflop.checkpoint import Checkpoints
from isoflop.config import Budget, DataConfig
from isoflop.corpus.stories import write_stories
from isoflop.machine import this_machine
from isoflop.params import Params, parse_params, resolve_arm
from isoflop.plan import Plan, make_plan
from isoflop.recorder import Recorders
from isoflop.sampling import generate
from isoflop.stages.evaluate import by_context, evaluate
from isoflop.study import applied, read_study
from isoflop.tokenizing import write_tokens
from isoflop.tokens import TokenSet, open_tokens
from isoflop.training import train

STUDIES = sorted(path.stem for path in (ROOT / "experiments").glob("*.yaml"))


@pytest.fixture(autouse=True)
def _at_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)


def params_of(study: str) -> Params:
    return parse_params(applied(params_text(), study, read_study(study)), "params.yaml")


@pytest.fixture(scope="module")
def raw(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("raw")
    write_stories(folder / "train.txt", (story for story, _ in grammar.generate(1, 3_000_000)))
    write_stories(folder / "valid.txt", (story for story, _ in grammar.generate(2, 30_000)))
    (folder / "source.json").write_text('{"source": "grammar", "fallback": false, "skipped": {}}')
    return folder


@pytest.fixture(scope="module")
def tokens(raw: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, TokenSet]:
    """Token files by tokenizer, for all that the studies name."""
    made: dict[str, TokenSet] = {}
    folder = tmp_path_factory.mktemp("tokens")
    for study in STUDIES:
        for name, spec in params_of(study).tokenizers.items():
            if name not in made:
                data = dataclasses.replace(params_of(study).data, val_bytes=8_000, test_bytes=8_000)
                assert isinstance(data, DataConfig)
                write_tokens(raw, folder / name, spec, data)
                made[name] = open_tokens(folder / name, None)
    return made


@pytest.mark.slow
@pytest.mark.parametrize("study", STUDIES)
def test_each_arm_is_planned_within_the_budget_and_runs(
    study: str, tokens: dict[str, TokenSet], tmp_path: Path
) -> None:
    params = params_of(study)
    full = {name: make_plan(resolve_arm(params, name), tokens[resolve_arm(params, name).tokenizer].meta)
            for name in params.arms}  # fmt: skip
    flops = [plan.predicted.flops for plan in full.values()]
    assert max(flops) / min(flops) < 1.01, {name: plan.predicted.flops for name, plan in full.items()}
    assert len({plan.config_hash for plan in full.values()}) == len(full)
    for name, plan in full.items():
        briefly(plan, params, tokens[plan.tokenizer], tmp_path / name)


def briefly(plan: Plan, params: Params, tokens: TokenSet, folder: Path) -> None:
    """Two steps of the arm as it is, then its evaluation and a sample."""
    settings = dataclasses.replace(
        plan.train, budget=Budget(steps=2.0), warmup_steps=0, evals=1, log_points=2, batch_size=2, grad_accum=1
    )
    plan = dataclasses.replace(
        plan, train=settings, predicted=dataclasses.replace(plan.predicted, steps=2, tokens=0, flops=0.0)
    )
    machine = this_machine("float32", folder / "machine.json")
    checkpoints = Checkpoints(folder, "key", every_s=60.0, study=params.study.name)
    signal = SimpleNamespace(stopped=False)
    model, progress = train(
        plan, 0, tokens, machine=machine, recorder=Recorders(), checkpoints=checkpoints, signal=signal
    )
    assert progress.step == 2
    assert progress.diverged_at is None
    model.eval()
    assert 0 < evaluate(model, tokens, params.eval).bpb < 20
    for entry in by_context(model, tokens, params.eval):
        assert entry["bpb"] is not None
    model.stretch(plan.model.block_size)
    short = dataclasses.replace(params.sample, n_tokens=5)
    assert len(generate(model, [[tokens.meta.eos]], short, tokens.meta.eos)[0]) <= 5
