"""The folder of a finished run, with weights that are drawn and not trained."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from safetensors.torch import save_file

from conftest import params_text
from isoflop.files import write_json, write_text
from isoflop.model.gpt import GPT
from isoflop.params import parse_params, resolve_arm
from isoflop.plan import Plan, make_plan
from isoflop.tokens import TokenMeta
from workspace import token_meta

SMALL = (
    ("n_layer: 4", "n_layer: 2"),
    ("d_model: 128", "d_model: 32"),
    ("d_ff: 384", "d_ff: 64"),
    ("block_size: 128", "block_size: 16"),
)


def plan_of(*replacements: tuple[str, str], meta: TokenMeta | None = None, **model: Any) -> Plan:
    """The plan of the committed `base`, small, with pieces of params.yaml and values of the model replaced."""
    params = parse_params(params_text(*SMALL, *replacements), "params.yaml")
    plan = make_plan(resolve_arm(params, "base"), meta or token_meta())
    return dataclasses.replace(plan, model=dataclasses.replace(plan.model, **model))


def write_run(folder: Path, plan: Plan, *, seed: int = 0, std: float = 0.3, status: str = "finished") -> GPT:
    """Write the run; the model that is in it. `std` makes its outputs far from uniform."""
    model = GPT(dataclasses.replace(plan.model, init_std=std))
    model.initialise(seed)
    write_text(folder / "config.yaml", plan.to_yaml(seed=seed))
    write_json(folder / "run.json", {"status": status, "seed": seed})
    write_text(folder / "history.csv", "step\n")
    if status == "finished":
        save_file(model.state_dict(), folder / "model.safetensors")
    return model.eval()
