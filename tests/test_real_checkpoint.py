"""A checkpoint trained elsewhere gives the logits and the greedy text that an independent reference computed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

import stories260k
from isoflop.config import SampleConfig
from isoflop.model import cost
from isoflop.sampling import generate


def test_logits_and_greedy_ids(shared_data: Path) -> None:
    folder = shared_data / "stories260k"
    expected = json.loads((folder / "expected.json").read_text())
    model = stories260k.load(folder / "stories260K.bin")
    assert sum(p.numel() for p in model.parameters()) == cost.parameters(model.config) == 260_032
    with torch.no_grad():
        logits = model(torch.tensor([expected["prompt_ids"]]))[0]
    assert logits[-1].tolist() == pytest.approx(expected["prompt_last_logits"], abs=1e-4)
    assert logits.argmax(-1).tolist() == expected["prompt_argmax_per_position"]
    greedy = SampleConfig(prompts=[""], n_tokens=200, temperature=0.0, top_k=None, top_p=None, seed=0)
    (ids,) = generate(model, [[1]], greedy, eos=-1)
    assert [1, *ids] == expected["greedy_ids"]
