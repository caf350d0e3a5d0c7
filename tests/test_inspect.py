"""What `inspect` says of a model, against values that were computed another way, and that its checks can fail."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from conftest import ROOT, model_config, params_text
from finished import SMALL, plan_of, write_run
from isoflop import inspect, paths
from isoflop.anatomy import causality, circuits, mean_nats, rank, spectrum, stages
from isoflop.config import BiasConfig, TokenizerSpec
from isoflop.errors import IsoflopError
from isoflop.inspect import Subject, describe, find, main, memory, parameters, windows
from isoflop.model.gpt import GPT
from isoflop.tokenizing import write_tokens
from isoflop.tokens import read_meta
from rawfiles import data_config, make_raw
from test_model import ids_of, seeded_gpt, strong_gpt

STORY = b"the cat sat on the mat and the dog sat on the cat"
STORIES = [STORY[i % 7 :] for i in range(20)]


def subject_of(model: GPT, **changes: Any) -> Subject:
    values: dict[str, Any] = {"name": "x", "kind": "arm", "weights": "fresh", "seed": 0, "model": model.eval()}
    return Subject(**{**values, "tokens": None} | changes)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with the committed params.yaml, small."""
    monkeypatch.chdir(tmp_path)
    paths.PARAMS.write_text(params_text(*SMALL))
    return tmp_path


def with_tokens(folder: Path) -> str:
    """Byte tokens of `STORIES`; their digest."""
    raw = make_raw(folder / "raw", STORIES, STORIES)
    write_tokens(raw, folder / paths.TOKENS / "byte", TokenizerSpec(kind="byte"), data_config(300, 200))
    return read_meta(folder / paths.TOKENS / "byte").tokens_digest


# --- parameters and memory


def test_parameters_of_the_course_gpt_by_part() -> None:
    course = model_config(
        **{"norm": "layernorm", "positions": "learned", "mlp": "gelu", "vocab_size": 65, "block_size": 64},
        **{"d_model": 128, "n_layer": 4, "d_ff": 512, "tie_embeddings": False},
        bias=BiasConfig(qkv=False, proj=True, mlp=True),
    )
    found = parameters(GPT(course))
    assert found["total"] == 816_640
    assert {part: entry["count"] for part, entry in found["parts"].items()} == {
        "embedding": 16_512,
        "attention": 262_656,
        "mlp": 526_848,
        "block_norms": 2_048,
        "final_norm": 256,
        "head": 8_320,
        "mtp": 0,
    }
    assert found["parts"]["mlp"]["percent"] == pytest.approx(64.5141, abs=1e-4)
    assert sum(entry["percent"] for entry in found["parts"].values()) == pytest.approx(100)


def test_memory_by_hand() -> None:
    # 2 layers, 2 KV heads of 8: keys and values of a token are 2 * 2 * 2 * 8 float32.
    found = memory(model_config(n_kv_head=2), context=10)
    assert found["kv_cache"] == 10 * 64 * 4
    # Layer 0 keeps its last 4 keys; layer 1 is linear: a matrix per head, 4 * 8 * 8.
    mixed = model_config(n_kv_head=2, attention=["softmax", "linear"], window=[4, 0])
    assert memory(mixed, context=10)["kv_cache"] == (4 * 32 + 4 * 64) * 4
    assert found["weights"] == 4 * sum(p.numel() for p in GPT(model_config(n_kv_head=2)).parameters())


def test_a_context_that_cannot_be_is_refused() -> None:
    with pytest.raises(IsoflopError, match=r"--context = 0: must be at least 1 token"):
        memory(model_config(), 0)
    with pytest.raises(IsoflopError, match=r"--context = 17: goes beyond model\.block_size = 16, where the learned po"):
        memory(model_config(positions="learned"), 17)
    assert memory(model_config(), 17)["context"] == 17, "rotations go on"


# --- shapes


def test_the_shape_after_every_stage() -> None:
    model = seeded_gpt(n_layer=1, n_kv_head=2, d_ff=48, positions="learned", qk_norm=True, tie_embeddings=False)
    assert stages(model, ids_of(1, 5)) == [
        ("ids", (1, 5)),
        ("embedding", (1, 5, 32)),
        ("blocks.0.attention_norm", (1, 5, 32)),
        ("blocks.0.attention.q", (1, 5, 32)),
        ("blocks.0.attention.q_norm", (1, 5, 4, 8)),
        ("blocks.0.attention.k", (1, 5, 16)),
        ("blocks.0.attention.k_norm", (1, 5, 2, 8)),
        ("blocks.0.attention.v", (1, 5, 16)),
        ("blocks.0.attention.out", (1, 5, 32)),
        ("blocks.0.attention", (1, 5, 32)),
        ("blocks.0.mlp_norm", (1, 5, 32)),
        ("blocks.0.mlp.up", (1, 5, 48)),
        ("blocks.0.mlp.gate", (1, 5, 48)),
        ("blocks.0.mlp.down", (1, 5, 32)),
        ("blocks.0.mlp", (1, 5, 32)),
        ("blocks.0", (1, 5, 32)),
        ("final_norm", (1, 5, 32)),
        ("head", (1, 5, 61)),
    ]
    assert not any(module._forward_hooks for module in model.modules()), "the hooks are gone"


def test_the_module_of_the_second_token_follows_the_pass_that_it_is_no_part_of() -> None:
    names = [name for name, _ in stages(seeded_gpt(mtp=1), ids_of(1, 6))]
    first = next(i for i, name in enumerate(names) if name.startswith("mtp"))
    assert names[first - 1] == "head (embedding)"
    assert all(name.startswith("mtp") for name in names[first:])
    assert dict(stages(seeded_gpt(mtp=1), ids_of(1, 6)))["mtp.project"] == (1, 5, 32), "the last has no second token"


# --- causality


@pytest.mark.parametrize(
    ("changes", "reach"),
    [
        ({}, 16),
        ({"n_kv_head": 1, "positions": "none", "qk_norm": True}, 16),
        ({"attention": ["linear"]}, 16),
        ({"window": [4]}, 1 + 2 * 3),
        ({"window": [3], "n_layer": 3}, 1 + 3 * 2),
        ({"window": [1]}, 1),
        ({"window": [0, 4], "mtp": 1}, 16),
    ],
)
def test_gradients_reach_back_and_no_further_than_the_windows(changes: dict[str, Any], reach: int) -> None:
    found = causality(strong_gpt(**changes), ids_of(16))
    assert found.causal
    assert found.future_gradient == 0.0
    assert (found.positions, found.reach) == (16, reach)


def test_the_causality_check_sees_a_leak() -> None:
    class Leak(nn.Module):
        """Adds a little of the last position to every one."""

        def __init__(self, inner: nn.Module) -> None:
            super().__init__()
            self.inner = inner

        def forward(self, x: Tensor) -> Tensor:
            return self.inner(x) + 1e-6 * x[:, -1:]

    model = strong_gpt()
    model.blocks[1].mlp = Leak(model.blocks[1].mlp)
    found = causality(model, ids_of(16))
    assert not found.causal
    assert 0 < found.future_gradient < 1


# --- loss


def test_a_uniform_model_loses_exactly_ln_v() -> None:
    model = seeded_gpt()
    nn.init.zeros_(model.embedding.weight)
    assert mean_nats(model, ids_of(3, 17)) == pytest.approx(math.log(61), rel=1e-6)


def test_the_mean_over_windows_is_that_of_one_batch() -> None:
    model, ids = strong_gpt(), ids_of(5, 17)
    logits = model(ids[:, :-1]).flatten(0, 1)
    expected = nn.functional.cross_entropy(logits, ids[:, 1:].flatten()).item()
    assert mean_nats(model, ids) == pytest.approx(expected, rel=1e-5)


def test_without_tokens_the_loss_is_measured_on_random_ids() -> None:
    found = inspect.loss(subject_of(seeded_gpt()))
    assert (found["on"], found["tokens"], found["now"]) == ("random ids", 8 * 16, None)
    assert found["initial"] == pytest.approx(math.log(61), abs=0.1)


def test_windows_lie_in_the_val_split_from_its_start_to_its_end(here: Path) -> None:
    digest = with_tokens(here)
    folder = paths.TOKENS / "byte"
    val = (folder / "val.bin").read_bytes()
    model = seeded_gpt(vocab_size=256)
    ids, source = windows(subject_of(model, tokens=(folder, digest)))
    assert source == f"val of {folder}"
    assert ids.shape == (8, 17)
    rows = [bytes(row.tolist()) for row in ids]
    assert rows[0] == val[:17]
    assert rows[-1] == val[-17:]
    assert all(row in val for row in rows)


@pytest.mark.parametrize(("vocab_size", "digest"), [(256, "0" * 64), (255, None)])
def test_tokens_of_another_corpus_or_tokenizer_are_not_used(here: Path, vocab_size: int, digest: str | None) -> None:
    with_tokens(here)
    _, source = windows(subject_of(seeded_gpt(vocab_size=vocab_size), tokens=(paths.TOKENS / "byte", digest)))
    assert source == "random ids"


# --- circuits


@pytest.mark.parametrize("kind", ["softmax", "linear"])
@pytest.mark.parametrize("kv_heads", [4, 2, 1])
def test_circuits_are_those_of_the_products_in_full(kind: str, kv_heads: int) -> None:
    model = strong_gpt(attention=[kind], n_kv_head=kv_heads)
    found = circuits(model)
    assert [(c.layer, c.head) for c in found] == [(layer, head) for layer in range(2) for head in range(4)]
    for c in found:
        assert (c.kind, c.kv_head) == (kind, c.head * kv_heads // 4)
        attention: Any = model.blocks[c.layer].attention
        q, kv = slice(8 * c.head, 8 * c.head + 8), slice(8 * c.kv_head, 8 * c.kv_head + 8)
        qk = attention.q.weight[q].T @ attention.k.weight[kv]
        ov = attention.out.weight[:, q] @ attention.v.weight[kv]
        assert qk.shape == ov.shape == (32, 32)
        assert c.qk_top == pytest.approx(torch.linalg.matrix_norm(qk, 2).item(), rel=1e-5)
        assert c.ov_top == pytest.approx(torch.linalg.matrix_norm(ov, 2).item(), rel=1e-5)
        assert c.qk_rank == torch.linalg.matrix_rank(qk) == 8
        assert c.ov_rank == torch.linalg.matrix_rank(ov) == 8


def test_the_qk_circuit_gives_the_score_of_a_head() -> None:
    model = strong_gpt(positions="none", n_kv_head=2)
    attention: Any = model.blocks[0].attention
    x = torch.randn(2, 32, generator=torch.Generator().manual_seed(0))
    q, k = attention.q(x).view(2, 4, 8), attention.k(x).view(2, 2, 8)
    circuit = attention.q.weight[24:32].T @ attention.k.weight[8:16]
    torch.testing.assert_close(x[0] @ circuit @ x[1], q[0, 3] @ k[1, 1], rtol=1e-4, atol=1e-4)


def test_ranks_are_those_that_the_weights_were_given() -> None:
    model = strong_gpt()
    attention: Any = model.blocks[1].attention
    with torch.no_grad():
        attention.q.weight[8:16] = attention.q.weight[8:9]  # head 1 asks one question 8 times
        attention.v.weight[16:19] = 0  # head 2 moves 5 directions
        attention.out.weight[:, 24:32] = 0  # head 3 moves nothing
    of_layer_1 = circuits(model)[4:]
    assert [c.qk_rank for c in of_layer_1] == [8, 1, 8, 8]
    assert [c.ov_rank for c in of_layer_1] == [8, 8, 5, 0]
    assert of_layer_1[3].ov_top == 0


def test_singular_values_of_a_product_by_hand() -> None:
    left = torch.tensor([[[2.0, 0.0], [0.0, 1.0], [0.0, 0.0]]])
    right = torch.tensor([[[0.0, 3.0, 0.0, 0.0], [5.0, 0.0, 0.0, 0.0]]])
    torch.testing.assert_close(spectrum(left, right), torch.tensor([[6.0, 5.0]], dtype=torch.float64))
    assert rank(torch.tensor([6.0, 6e-7]), size=3) == 1, "below the rounding of float32"
    assert rank(torch.tensor([6.0, 6e-5]), size=3) == 2


# --- the command


def test_an_arm_as_json(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["mqa", "--json", "--context", "100"])
    found = json.loads(capsys.readouterr().out)
    keys = ["name", "kind", "weights", "model", "parameters", "shapes", "causality", "loss", "memory", "circuits"]
    assert list(found) == keys
    assert (found["name"], found["kind"], found["weights"]) == ("mqa", "arm", "fresh, seed 0")
    assert (found["model"]["n_kv_head"], found["model"]["vocab_size"]) == (1, 256)
    assert found["memory"]["kv_cache"] == 100 * 2 * 2 * 8 * 4
    assert found["causality"] == {"positions": 16, "future_gradient": 0.0, "reach": 16, "causal": True}
    assert found["shapes"][-1] == {"stage": "head (embedding)", "shape": [1, 16, 256]}
    assert set(found["circuits"][0]) == {
        *("layer", "head", "kv_head", "kind", "qk_rank", "qk_top", "ov_rank", "ov_top"),
    }
    assert found["parameters"]["total"] == sum(part["count"] for part in found["parameters"]["parts"].values())


def test_a_run_by_name_and_by_folder(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    digest = with_tokens(here)
    plan = plan_of()
    plan = type(plan)(**vars(plan) | {"tokens_digest": digest})
    write_run(paths.RUNS / "base-3", plan, seed=3)
    by_name, by_folder = describe(find("base-3")), describe(find("experiments/runs/base-3"))
    assert by_name == by_folder
    assert (by_name["kind"], by_name["weights"]) == ("run", "trained")
    fresh = GPT(plan.model)
    fresh.initialise(3)
    ids, _ = windows(find("base-3"))
    assert by_name["loss"]["initial"] == pytest.approx(mean_nats(fresh, ids), rel=1e-6)
    assert by_name["loss"]["now"] == pytest.approx(mean_nats(find("base-3").model, ids), rel=1e-6)
    assert by_name["loss"]["now"] > by_name["loss"]["initial"] + 0.5, "the weights of this run are large and random"
    main(["base-3"])
    assert "loss of these weights on the same tokens" in capsys.readouterr().out


def test_tables(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arms = "{}\n  odd: {model.n_layer: 4, model.attention: [softmax, linear, linear, linear], model.mtp: 1}"
    paths.PARAMS.write_text(params_text(*SMALL, ("base: {}", f"base: {arms}")))
    main(["odd"])
    out = capsys.readouterr().out
    total = describe(find("odd"))["parameters"]["total"]
    for piece in (
        "odd (arm; weights: fresh, seed 0)",
        "embeddings",
        f"{total:,}",
        "tied",
        "second token (mtp)",
        "blocks.0.attention.q ",
        "blocks.1-3.attention.decay",
        "mtp.project",
        "causal: no gradient from an output to a later token; the last of 16 outputs depends on 16 tokens",
        "ln V = 5.5452",
        "KV cache of one sequence of 16 tokens",
        "circuits of heads, rank at most 8",
        "without RoPE (distance 0)",
    ):
        assert piece in out, piece


def test_a_leak_is_shouted(capsys: pytest.CaptureFixture[str]) -> None:
    found = describe(subject_of(seeded_gpt()))
    found["causality"] |= {"causal": False, "future_gradient": 0.25}
    inspect.render(found)
    assert "NOT CAUSAL: a gradient of 2.50e-01 reaches a later token" in capsys.readouterr().out


@pytest.mark.parametrize("kind", ["byte", "gpt2", "bpe"])
def test_the_vocabulary_is_that_of_the_arms_tokenizer(here: Path, kind: str) -> None:
    entry = "{kind: bpe, vocab_size: 300}" if kind == "bpe" else f"{{kind: {kind}}}"
    entries = ("  byte: {kind: byte} ", f"  byte: {{kind: byte}}\n  other: {entry}")
    paths.PARAMS.write_text(params_text(*SMALL, entries, ("base: {}", "base: {}\n  new: {tokenizer: other}")))
    assert find("new").model.config.vocab_size == {"byte": 256, "gpt2": 50257, "bpe": 300}[kind]


def test_what_is_neither_arm_nor_run_is_told_what_there_is(here: Path) -> None:
    with pytest.raises(IsoflopError) as caught:
        find("nothing")
    assert str(caught.value) == (
        "nothing: neither an arm of params.yaml (base, mqa), nor a run in experiments/runs (none yet), nor a folder "
        "with run.json or model.yaml"
    )
    write_run(paths.RUNS / "mqa-1", plan_of(n_kv_head=1), status="diverged")
    with pytest.raises(IsoflopError, match=r"nor a run in experiments/runs \(mqa-1\)"):
        find("nothing")
    with pytest.raises(
        IsoflopError, match=r"mqa-1: the run diverged and has no weights; `python -m isoflop\.inspect b"
    ):
        find("mqa-1")


def test_an_imported_folder(here: Path) -> None:
    import yaml
    from safetensors.torch import save_file

    from isoflop.schema import plain

    model = strong_gpt(norm="layernorm", positions="learned", mlp="gelu").eval()
    folder = here / "imported"
    folder.mkdir()
    (folder / "model.yaml").write_text(yaml.safe_dump(plain(model.config)))
    save_file(model.state_dict(), folder / "model.safetensors")
    found = describe(find("imported"))
    assert (found["kind"], found["loss"]["on"], found["loss"]["now"]) == ("imported", "random ids", None)
    assert found["circuits"] == [plain(circuit) for circuit in circuits(model)]


@pytest.mark.slow
def test_the_command_prints_json_alone_and_mistakes_without_a_traceback() -> None:
    def called(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "isoflop.inspect", *arguments]
        return subprocess.run(command, cwd=ROOT, env={"PYTHONPATH": "src"}, capture_output=True, text=True)

    done = called("no_such_arm")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("error: no_such_arm: neither an arm of params.yaml (base, ")
    done = called("base", "--json")
    assert done.returncode == 0
    assert json.loads(done.stdout)["name"] == "base"
    assert done.stderr == ""
