"""Models of `transformers` and of this project give the same logits and the same text, whichever was there first."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

import stories260k
from conftest import ROOT, model_config
from finished import plan_of, write_run
from isoflop import paths
from isoflop.config import BiasConfig, ModelConfig, SampleConfig, TokenizerSpec
from isoflop.convert import main, read_imported
from isoflop.errors import IsoflopError
from isoflop.huggingface.configs import from_config, to_config
from isoflop.huggingface.families import GPT2, LLAMA, QWEN3, Family, obstacles
from isoflop.huggingface.vocabulary import merges_of, to_tokenizers
from isoflop.huggingface.weights import from_family, halves, interleaved, to_family
from isoflop.model import cost
from isoflop.model.gpt import GPT
from isoflop.sampling import generate
from isoflop.tokenizer import BPETokenizer, ByteTokenizer, Tokenizer, from_trained, gpt2, train_bpe
from isoflop.tokenizing import write_tokens
from isoflop.tokens import read_meta
from rawfiles import TRAIN, VALID, data_config, make_raw
from test_model import ids_of, strong_gpt

GPT_2 = {"norm": "layernorm", "positions": "learned", "mlp": "gelu"}
GREEDY = SampleConfig(prompts=[""], n_tokens=12, temperature=0.0, top_k=None, top_p=None, seed=0)
TEXTS = ["Once upon a time, there  was\n\na cat\u2019s hat.", "é 日本 \t 12345 don't ", "", " a"]
FAMILIES = {"llama": LLAMA, "qwen3": QWEN3, "gpt2": GPT2}

# config.json of the GPT-2 that was released.
RELEASED = {
    "activation_function": "gelu_new",
    "architectures": ["GPT2LMHeadModel"],
    "attn_pdrop": 0.1,
    "bos_token_id": 50256,
    "embd_pdrop": 0.1,
    "eos_token_id": 50256,
    "initializer_range": 0.02,
    "layer_norm_epsilon": 1e-5,
    "model_type": "gpt2",
    "n_ctx": 1024,
    "n_embd": 768,
    "n_head": 12,
    "n_layer": 12,
    "n_positions": 1024,
    "resid_pdrop": 0.1,
    "summary_activation": None,
    "summary_first_dropout": 0.1,
    "summary_proj_to_labels": True,
    "summary_type": "cls_index",
    "summary_use_proj": True,
    "task_specific_params": {"text-generation": {"do_sample": True, "max_length": 50}},
    "vocab_size": 50257,
}


def theirs_of(values: dict[str, Any], seed: int = 0) -> Any:
    """A model of `transformers` whose every parameter is drawn, biases and gains too."""
    import transformers

    kinds = {
        "llama": (transformers.LlamaConfig, transformers.LlamaForCausalLM),
        "qwen3": (transformers.Qwen3Config, transformers.Qwen3ForCausalLM),
        "gpt2": (transformers.GPT2Config, transformers.GPT2LMHeadModel),
    }
    config, model = kinds[values["model_type"]]
    made = model(config(**values))
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in made.named_parameters():
            gain = 1.0 if "norm" in name or "ln_" in name else 0.0
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.3 * (gain < 1 or 0.5) + gain)
    return made.eval()


def llama(**changes: Any) -> dict[str, Any]:
    values = {"model_type": "llama", "vocab_size": 61, "hidden_size": 32, "intermediate_size": 64}
    values |= {"num_hidden_layers": 2, "num_attention_heads": 4, "max_position_embeddings": 16, "bos_token_id": 60}
    return values | {"eos_token_id": 60, "rope_parameters": {"rope_type": "default", "rope_theta": 500.0}} | changes


def qwen3(**changes: Any) -> dict[str, Any]:
    return llama(model_type="qwen3", head_dim=8) | {"num_key_value_heads": 4} | changes


def gpt_2(**changes: Any) -> dict[str, Any]:
    values = {"model_type": "gpt2", "vocab_size": 61, "n_positions": 16, "n_embd": 32, "n_layer": 2, "n_head": 4}
    return values | {"bos_token_id": 60, "eos_token_id": 60} | changes


def ours_of(theirs: Any, family: Family) -> GPT:
    config = from_config(theirs.config.to_dict(), family, "config.json")
    model = GPT(config)
    model.load_state_dict(from_family(theirs.state_dict(), config, family))
    return model.eval()


def assert_same(ours: GPT, theirs: Any) -> None:
    with torch.no_grad():
        expected, got = theirs(ids_of(2, 16)).logits, ours(ids_of(2, 16))
    assert expected.std() > 0.5, "the logits say something"
    torch.testing.assert_close(got, expected, rtol=0, atol=1e-4)


# --- the same logits


@pytest.mark.parametrize("kv_heads", [4, 2, 1], ids=["mha", "gqa", "mqa"])
@pytest.mark.parametrize("tied", [True, False], ids=["tied", "untied"])
@pytest.mark.parametrize("bias", [True, False], ids=["bias", "no_bias"])
def test_a_llama_of_transformers_here_and_back(kv_heads: int, tied: bool, bias: bool) -> None:
    values = llama(num_key_value_heads=kv_heads, tie_word_embeddings=tied, attention_bias=bias, mlp_bias=bias)
    theirs = theirs_of(values)
    ours = ours_of(theirs, LLAMA)
    assert ours.config.n_kv_head == kv_heads
    assert_same(ours, theirs)
    back = to_family(ours.state_dict(), ours.config, LLAMA)
    assert set(theirs.state_dict()) - set(back) == ({"lm_head.weight"} if tied else set())
    assert all(torch.equal(tensor, theirs.state_dict()[name]) for name, tensor in back.items())


@pytest.mark.parametrize("kv_heads", [4, 2, 1], ids=["mha", "gqa", "mqa"])
@pytest.mark.parametrize("tied", [True, False], ids=["tied", "untied"])
@pytest.mark.parametrize("bias", [True, False], ids=["bias", "no_bias"])
def test_a_qwen3_of_transformers_here_and_back(kv_heads: int, tied: bool, bias: bool) -> None:
    theirs = theirs_of(qwen3(num_key_value_heads=kv_heads, tie_word_embeddings=tied, attention_bias=bias))
    ours = ours_of(theirs, QWEN3)
    assert ours.config.qk_norm
    assert_same(ours, theirs)
    back = to_family(ours.state_dict(), ours.config, QWEN3)
    assert set(theirs.state_dict()) - set(back) == ({"lm_head.weight"} if tied else set())
    assert all(torch.equal(tensor, theirs.state_dict()[name]) for name, tensor in back.items())


@pytest.mark.parametrize("tied", [True, False], ids=["tied", "untied"])
def test_a_gpt2_of_transformers_here_and_back(tied: bool) -> None:
    theirs = theirs_of(gpt_2(tie_word_embeddings=tied, n_inner=48))
    ours = ours_of(theirs, GPT2)
    assert_same(ours, theirs)
    back = to_family(ours.state_dict(), ours.config, GPT2)
    assert all(torch.equal(tensor, theirs.state_dict()[name]) for name, tensor in back.items())


@pytest.mark.parametrize(
    ("family", "changes"),
    [
        ("llama", {"n_kv_head": 2}),
        ("llama", {"tie_embeddings": False, "rope_theta": 700.0, "norm_eps": 1e-3, "dropout": 0.1, "mtp": 1}),
        ("llama", {"bias": BiasConfig(qkv=True, proj=False, mlp=False), "window": [0, 16]}),
        ("llama", {"bias": BiasConfig(qkv=False, proj=True, mlp=True), "n_kv_head": 1}),
        ("qwen3", {"qk_norm": True}),
        ("qwen3", {"qk_norm": True, "n_kv_head": 2, "tie_embeddings": False, "rope_theta": 700.0, "norm_eps": 1e-3}),
        ("qwen3", {"qk_norm": True, "n_kv_head": 1, "bias": BiasConfig(qkv=True, proj=False, mlp=False), "mtp": 1}),
        ("gpt2", GPT_2 | {"d_ff": 48, "norm_eps": 1e-3}),
        ("gpt2", GPT_2 | {"bias": BiasConfig(qkv=False, proj=True, mlp=True), "tie_embeddings": False}),
    ],
)
def test_a_model_of_this_project_there(family: str, changes: dict[str, Any]) -> None:
    ours = strong_gpt(**changes).eval()
    with torch.no_grad():
        for name, parameter in ours.named_parameters():
            if parameter.ndim == 1:
                parameter.add_(torch.randn(parameter.shape, generator=torch.Generator().manual_seed(len(name))) * 0.3)
    kind = FAMILIES[family]
    theirs = theirs_of(to_config(ours.config, kind, eos=60), seed=5)
    missing, unexpected = theirs.load_state_dict(to_family(ours.state_dict(), ours.config, kind), strict=False)
    assert not unexpected
    assert missing == (["lm_head.weight"] if ours.config.tie_embeddings else [])
    assert_same(ours, theirs)


def test_pairs_are_reordered_within_each_head() -> None:
    rows = torch.arange(12)
    assert halves(rows, 2).tolist() == [0, 2, 4, 1, 3, 5, 6, 8, 10, 7, 9, 11]
    assert interleaved(halves(rows, 2), 2).tolist() == rows.tolist()
    matrix = rows[:, None] * torch.ones(1, 3)
    assert torch.equal(halves(matrix, 3)[:, 1], halves(rows, 3).float())


@pytest.mark.parametrize(
    ("mine", "name"), [("q.weight", "q_proj.weight"), ("q_norm.weight", "q_norm.weight"), ("k_norm.weight",) * 2]
)
def test_without_the_reordering_the_logits_differ(mine: str, name: str) -> None:
    theirs = theirs_of(qwen3())
    ours = ours_of(theirs, QWEN3)
    as_it_was = theirs.state_dict()[f"model.layers.0.self_attn.{name}"]
    ours.load_state_dict({**ours.state_dict(), f"blocks.0.attention.{mine}": as_it_was})
    with pytest.raises(AssertionError, match="Tensor-likes are not close"):
        assert_same(ours, theirs)


def test_converting_leaves_the_source_alone_and_shares_no_memory() -> None:
    model = strong_gpt()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    for tensor in to_family(model.state_dict(), model.config, LLAMA).values():
        tensor.zero_()
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())


# --- configurations


def test_the_released_gpt2_has_its_published_parameters() -> None:
    config = from_config(RELEASED, GPT2, "config.json")
    assert cost.parameters(config) == 124_439_808
    assert config.bias == BiasConfig(qkv=True, proj=True, mlp=True)
    assert (config.d_ff, config.tie_embeddings, config.dropout) == (3072, True, 0.0)


def test_a_llama_configuration_of_before_version_5_is_read() -> None:
    values = {k: v for k, v in llama(rope_theta=123.0, rope_scaling=None).items() if k != "rope_parameters"}
    config = from_config(values, LLAMA, "config.json")
    assert (config.rope_theta, config.n_kv_head, config.norm_eps, config.tie_embeddings) == (123.0, 4, 1e-6, False)


def test_a_configuration_comes_back_as_it_was() -> None:
    rotated = {"n_kv_head": 2, "rope_theta": 77.0}
    for family, changes in ((LLAMA, rotated), (QWEN3, rotated | {"qk_norm": True}), (GPT2, GPT_2)):
        bias = BiasConfig(qkv=True, proj=True, mlp=family is not QWEN3)
        config = model_config(**changes, bias=bias, mtp_weight=0.0)
        back = from_config(to_config(config, family, eos=60), family, "config.json")
        # GPT-2 has no rotation, whose base then means nothing.
        assert back == ModelConfig(**vars(config) | {"rope_theta": back.rope_theta})


@pytest.mark.parametrize(
    ("family", "values", "expected"),
    [
        ("llama", llama(hidden_act="gelu"), "hidden_act = 'gelu', this model has 'silu' or 'swish'"),
        ("llama", llama(head_dim=16), "head_dim = 16, this model has hidden_size / num_attention_heads = 8"),
        ("llama", llama(rope_parameters={"rope_type": "yarn", "factor": 2.0}), "rope_type = 'yarn'"),
        ("llama", llama(rope_parameters=None, rope_scaling={"type": "linear", "factor": 2.0}), "rope_type = 'linear'"),
        ("llama", gpt_2(), "model_type = 'gpt2', this model has 'llama'"),
        ("llama", qwen3(), "model_type = 'qwen3', this model has 'llama'"),
        ("qwen3", llama(), "model_type = 'llama', this model has 'qwen3'"),
        ("qwen3", qwen3(head_dim=16), "head_dim = 16, this model has hidden_size / num_attention_heads = 8"),
        (
            "qwen3",
            {k: v for k, v in qwen3().items() if k != "head_dim"},
            "head_dim = 128, this model has hidden_size / num_attention_heads = 8",
        ),
        ("qwen3", qwen3(use_sliding_window=True), "use_sliding_window = True, this model has False"),
        ("gpt2", gpt_2(activation_function="relu"), "activation_function = 'relu'"),
        ("gpt2", gpt_2(scale_attn_by_inverse_layer_idx=True), "scale_attn_by_inverse_layer_idx = True"),
        ("gpt2", {"model_type": "gpt2"}, "vocab_size is missing; n_embd is missing; n_layer is missing"),
        ("gpt2", gpt_2(n_head=5), "model.n_head does not divide model.d_model = 32"),
        ("gpt2", gpt_2(n_layer="two"), "model.n_layer must be a whole number"),
    ],
)
def test_foreign_configurations_are_refused(family: str, values: dict[str, Any], expected: str) -> None:
    with pytest.raises(IsoflopError) as caught:
        from_config(values, FAMILIES[family], "somewhere/config.json")
    assert str(caught.value).startswith("somewhere/config.json: ")
    assert expected in str(caught.value)


def test_all_reasons_why_a_family_cannot_express_a_model() -> None:
    config = model_config(**GPT_2, n_kv_head=2, attention=["softmax", "linear"], window=[4, 0], qk_norm=True)
    with pytest.raises(IsoflopError) as caught:
        to_family({}, config, LLAMA)
    assert str(caught.value) == (
        "Llama cannot express this model: model.norm = layernorm, it has rmsnorm only; "
        "model.positions = learned, it has rope only; model.mlp = gelu, it has swiglu only; "
        "model.attention = ['softmax', 'linear'], it has no linear layers; "
        "model.window = [4, 0], it has no windows; "
        "model.qk_norm = true, it does not normalise queries and keys"
    )
    assert obstacles(config, GPT2)[-1] == "model.n_kv_head = 2, it has as many as model.n_head = 4"
    assert not obstacles(model_config(window=[16], mtp=1, dropout=0.1, n_kv_head=1), LLAMA)
    config = model_config(window=[4, 0], bias=BiasConfig(qkv=True, proj=False, mlp=True))
    assert obstacles(config, QWEN3) == [
        "model.window = [4, 0], its windows are not converted",
        "model.qk_norm = false, it always normalises queries and keys",
        "model.bias.mlp = true, its MLP has no biases",
    ]


# --- weights that do not fit


def test_weights_of_another_configuration_are_refused() -> None:
    theirs = theirs_of(gpt_2(tie_word_embeddings=False))
    state, config = dict(theirs.state_dict()), from_config(theirs.config.to_dict(), GPT2, "config.json")
    with pytest.raises(IsoflopError, match=r"GPT-2 weights: transformer\.h\.1\.ln_2\.bias is missing"):
        from_family({name: t for name, t in state.items() if "h.1.ln_2.bias" not in name}, config, GPT2)
    with pytest.raises(IsoflopError, match=r"GPT-2 weights: transformer\.h\.2\.ln_1\.bias is unknown"):
        from_family(state | {"transformer.h.2.ln_1.bias": torch.zeros(32)}, config, GPT2)
    tied = ModelConfig(**vars(config) | {"tie_embeddings": True})
    with pytest.raises(IsoflopError, match=r"lm_head\.weight differs from the embedding"):
        from_family(state, tied, GPT2)


# --- folders


def as_released(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """The layout of the checkpoint that was released: no prefix, no head, and the causal masks with it."""
    bare = {n.removeprefix("transformer."): t.clone() for n, t in state.items() if n != "lm_head.weight"}
    mask = torch.ones(16, 16).tril().view(1, 1, 16, 16)
    masks = {f"h.{i}.attn.{name}": mask.clone() for i in range(2) for name in ("bias", "masked_bias")}
    return bare | masks


@pytest.mark.parametrize("form", ["safetensors", "prefixed", "shards", "shards and index", "bin"])
def test_import_of_a_gpt2_folder(form: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    theirs = theirs_of(gpt_2())
    source, target = tmp_path / "gpt2", tmp_path / "mine"
    theirs.config.save_pretrained(source)
    state = as_released(theirs.state_dict())
    if form == "prefixed":  # as `transformers` saves it today
        theirs.save_pretrained(source)
        assert "transformer.wte.weight" in load_file(source / "model.safetensors")
    elif form == "bin":
        torch.save(state, source / "pytorch_model.bin")
    elif form == "safetensors":
        save_file(state, source / "model.safetensors")
    else:
        names, where = sorted(state), {}
        for i, part in enumerate((names[::2], names[1::2]), start=1):
            save_file({name: state[name] for name in part}, source / (shard := f"model-0000{i}-of-00002.safetensors"))
            where |= dict.fromkeys(part, shard)
        if form == "shards and index":
            (source / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": where}))
            save_file({"of.another.model": torch.zeros(1)}, source / "model-00001-of-00009.safetensors")
    main(["import", "gpt2", str(source), str(target)])
    assert_same(read_imported(target), theirs)
    # 61 * 32 + 16 * 32 + 2 blocks of 12 * 32^2 + 13 * 32, and the last norm.
    assert "27,936 parameters in model.safetensors, shape in model.yaml" in capsys.readouterr().out
    assert sorted(path.name for path in target.iterdir()) == ["model.safetensors", "model.yaml"]


@pytest.mark.parametrize("values", [llama(), qwen3(num_key_value_heads=2), gpt_2()], ids=["llama", "qwen3", "gpt2"])
def test_import_of_shards_as_transformers_saves_them(values: dict[str, Any], tmp_path: Path) -> None:
    theirs, source = theirs_of(values), tmp_path / "source"
    theirs.save_pretrained(source, max_shard_size="20KB")
    shards = sorted(source.glob("model-*.safetensors"))
    assert len(shards) > 2
    main(["import", values["model_type"], str(source), str(tmp_path / "mine")])
    assert_same(read_imported(tmp_path / "mine"), theirs)
    shards[1].unlink()
    with pytest.raises(IsoflopError, match=rf"index\.json: names {shards[1].name}, which the folder lacks; fetch what"):
        main(["import", values["model_type"], str(source), str(tmp_path / "other")])
    (source / "model.safetensors.index.json").write_text("[]")
    with pytest.raises(IsoflopError, match=r"index\.json: holds no weight_map of names and files"):
        main(["import", values["model_type"], str(source), str(tmp_path / "other")])


@pytest.mark.slow
def test_import_of_a_folder_as_the_hub_has_gpt2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """At its real size, under the names and in the shapes of the released file, causal masks included."""
    from transformers import GPT2LMHeadModel

    source, target = tmp_path / "gpt2", tmp_path / "mine"
    source.mkdir()
    (source / "config.json").write_text(json.dumps(RELEASED))
    state, generator = {}, torch.Generator().manual_seed(0)
    for name, shape in released_shapes().items():
        gain = 1.0 if ".ln_" in name or name.startswith("ln_f") else 0.0
        state[name] = torch.empty(shape).normal_(gain * name.endswith("weight"), 0.1, generator=generator)
    for i in range(12):
        state[f"h.{i}.attn.bias"] = torch.ones(1024, 1024).tril().view(1, 1, 1024, 1024)
    save_file(state, source / "model.safetensors", metadata={"format": "pt"})
    del state
    main(["import", "gpt2", str(source), str(target)])
    assert "124,439,808 parameters in model.safetensors" in capsys.readouterr().out
    ours, ids = read_imported(target), torch.tensor([[50256, 464, 3290, 318, 0, 50255]])
    assert sum(parameter.numel() for parameter in ours.parameters()) == 124_439_808
    with torch.no_grad():
        expected = GPT2LMHeadModel.from_pretrained(source).eval()(ids).logits
        got = ours(ids)
    torch.testing.assert_close(got, expected, rtol=0, atol=1e-4 * float(expected.std()))


def released_shapes() -> dict[str, tuple[int, ...]]:
    """Names and shapes of the parameters in openai-community/gpt2."""
    shapes: dict[str, tuple[int, ...]] = {"wte.weight": (50257, 768), "wpe.weight": (1024, 768)}
    matrices = {"attn.c_attn": (768, 2304), "attn.c_proj": (768, 768), "mlp.c_fc": (768, 3072)}
    for i in range(12):
        for name, shape in (matrices | {"mlp.c_proj": (3072, 768)}).items():
            shapes |= {f"h.{i}.{name}.weight": shape, f"h.{i}.{name}.bias": shape[1:]}
    norms = [f"h.{i}.ln_{n}" for i in range(12) for n in (1, 2)] + ["ln_f"]
    return shapes | {f"{name}.{part}": (768,) for name in norms for part in ("weight", "bias")}


def test_the_released_gpt2_here_without_its_memory() -> None:
    """Every parameter of the released file has its place, of its size; on the meta device, so in no time."""
    config = from_config(RELEASED, GPT2, "config.json")
    state = {name: torch.empty(shape, device="meta") for name, shape in released_shapes().items()}
    state |= {f"h.{i}.attn.bias": torch.empty(1, 1, 1024, 1024, device="meta") for i in range(12)}
    made = from_family(state, config, GPT2)
    with torch.device("meta"):
        expected = {name: tensor.shape for name, tensor in GPT(config).state_dict().items()}
    assert {name: tensor.shape for name, tensor in made.items()} == expected
    assert sum(tensor.numel() for tensor in made.values()) == 124_439_808


def test_import_says_what_is_wrong_with_a_folder(tmp_path: Path) -> None:
    source, target = tmp_path / "source", str(tmp_path / "target")
    arguments = ["import", "gpt2", str(source), target]
    with pytest.raises(IsoflopError, match=r"config\.json: no such file; give the folder of a model saved by transf"):
        main(arguments)
    source.mkdir()
    (source / "config.json").write_text("{")
    with pytest.raises(IsoflopError, match=r"config\.json: is not JSON"):
        main(arguments)
    (source / "config.json").write_text(json.dumps(gpt_2()))
    with pytest.raises(IsoflopError, match=r"has neither model\.safetensors nor pytorch_model\.bin"):
        main(arguments)
    (source / "pytorch_model.bin").write_bytes(b"nothing of the kind")
    with pytest.raises(IsoflopError, match=r"pytorch_model\.bin: damaged, or holds more than tensors"):
        main(arguments)
    (source / "config.json").write_text(json.dumps(gpt_2(n_embd=16)))
    torch.save(as_released(theirs_of(gpt_2()).state_dict()), source / "pytorch_model.bin")
    with pytest.raises(IsoflopError, match=r"source: the weights are not those of its configuration(.|\n)*size mism"):
        main(arguments)
    assert not Path(target).exists(), "nothing is written before all is known to be right"


@pytest.mark.parametrize(("family", "changes"), [("llama", {}), ("qwen3", {"qk_norm": True})])
def test_export_generates_the_same_text(family: str, changes: dict[str, Any], tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    run, target = tmp_path / "runs" / "base-0", tmp_path / "there"
    model = write_run(run, plan_of(n_kv_head=2, **changes))
    main(["export", str(run), str(target), "--as", family])
    theirs, tokenizer = AutoModelForCausalLM.from_pretrained(target), AutoTokenizer.from_pretrained(target)
    assert theirs.config.model_type == family
    assert_same(model, theirs)
    given = tokenizer("Once", return_tensors="pt")
    assert given["input_ids"].tolist() == [[255, *b"Once"]]
    expected = generate(model, [[255, *b"Once"]], SampleConfig(**vars(GREEDY) | {"n_tokens": 11}), eos=255)[0]
    assert len(set(expected)) > 3
    got = theirs.generate(**given)[0]  # greedy, up to the block: generation_config.json says so
    assert got.tolist() == [255, *b"Once", *expected]
    assert tokenizer.decode(got, skip_special_tokens=True) == (b"Once" + bytes(expected)).decode(errors="replace")
    assert "Arm base, seed 0" in (target / "README.md").read_text()


def test_export_as_gpt2(tmp_path: Path) -> None:
    from transformers import GPT2LMHeadModel

    run, target = tmp_path / "base-0", tmp_path / "there"
    model = write_run(run, plan_of(**GPT_2, tie_embeddings=False))
    with pytest.raises(IsoflopError, match=r"base-0: Llama cannot express this model: (.*); .*\. `--as gpt2` can$"):
        main(["export", str(run), str(target)])
    main(["export", str(run), str(target), "--as", "gpt2"])
    theirs = GPT2LMHeadModel.from_pretrained(target)
    ids = ids_of(2, 16)
    torch.testing.assert_close(theirs(ids).logits, model(ids), rtol=0, atol=1e-4)


def test_a_real_checkpoint_goes_on_in_transformers_as_its_reference_does(shared_data: Path) -> None:
    from transformers import LlamaConfig, LlamaForCausalLM

    folder = shared_data / "stories260k"
    expected = json.loads((folder / "expected.json").read_text())["greedy_ids"]
    model = stories260k.load(folder / "stories260K.bin")
    theirs = LlamaForCausalLM(LlamaConfig(**to_config(model.config, LLAMA, eos=2))).eval()
    theirs.load_state_dict(to_family(model.state_dict(), model.config, LLAMA), strict=False)
    theirs.tie_weights()
    ids = theirs.generate(torch.tensor([[1]]), max_new_tokens=len(expected) - 1, do_sample=False, eos_token_id=None)
    assert ids[0].tolist() == expected


def test_export_refuses_what_it_cannot_do(tmp_path: Path) -> None:
    target = tmp_path / "target"
    with pytest.raises(IsoflopError, match=r"not a complete run, it lacks run\.json, config\.yaml, history\.csv"):
        main(["export", str(tmp_path), str(target)])
    write_run(tmp_path / "base-1", plan_of(), status="diverged")
    with pytest.raises(IsoflopError, match="base-1: the run diverged, there are no weights to export"):
        main(["export", str(tmp_path / "base-1"), str(target)])
    write_run(tmp_path / "base-2", plan_of(qk_norm=True, window=[4]))
    with pytest.raises(IsoflopError, match=r"normalise queries and keys\. export an arm without these settings$"):
        main(["export", str(tmp_path / "base-2"), str(target)])
    write_run(tmp_path / "base-3", plan_of(qk_norm=True))
    with pytest.raises(IsoflopError, match=r"does not normalise queries and keys\. `--as qwen3` can$"):
        main(["export", str(tmp_path / "base-3"), str(target)])
    assert not target.exists()
    write_run(tmp_path / "base-0", plan_of())
    target.mkdir()
    (target / "mine.txt").write_text("keep me")
    with pytest.raises(IsoflopError, match="target: is not an empty folder; give one that is empty or does not exist"):
        main(["export", str(tmp_path / "base-0"), str(target)])
    assert [path.name for path in target.iterdir()] == ["mine.txt"]


def test_a_mistake_on_the_command_line_is_told_without_a_traceback(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "isoflop.convert", "export", str(tmp_path), str(tmp_path / "x")]
    done = subprocess.run(command, cwd=ROOT, env={"PYTHONPATH": "src"}, capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr.startswith("error: ")
    assert "not a complete run" in done.stderr
    assert "Traceback" not in done.stderr


# --- tokenizers


def small_bpe() -> BPETokenizer:
    text = [b"the cat and the hat, the theme of the cats' lathe; a bat that sat", b"that hat, that hat! " * 3] * 4
    return from_trained(train_bpe([text], 320).get_vocab())


@pytest.mark.parametrize("make", [ByteTokenizer, small_bpe], ids=["byte", "bpe"])
def test_the_tokenizer_there_gives_the_same_ids_and_the_same_text(make: Any) -> None:
    check_tokenizer(make())


def test_the_tokenizer_of_gpt2_gives_the_same_ids_and_the_same_text(shared_data: Path) -> None:
    excerpt = (shared_data / "tinystories" / "excerpt_v2_valid.txt").read_bytes()[:200_000].decode(errors="ignore")
    check_tokenizer(gpt2(), excerpt.replace("<|endoftext|>", ""))


def check_tokenizer(ours: Tokenizer, *texts: str) -> None:
    theirs = to_tokenizers(ours)
    assert theirs.get_vocab_size() == ours.vocab_size
    for text in [*TEXTS, *texts]:
        ids = theirs.encode(text).ids
        assert ids == [ours.eos, *ours.encode(text.encode())]
        assert theirs.decode(ids, skip_special_tokens=True) == text


def test_merges_are_found_again() -> None:
    from tokenizers import models

    trained = train_bpe([[b"banana bandana, an and and ban, cabana"] * 3], 290)
    assert isinstance(trained.model, models.BPE)
    merges = json.loads(trained.to_str())["model"]["merges"]
    found = [(left.decode(), right.decode()) for left, right in merges_of(from_trained(trained.get_vocab()).tokens)]
    assert len(found) > 10
    assert [(left.replace(" ", "Ġ"), right.replace(" ", "Ġ")) for left, right in found] == [tuple(m) for m in merges]


def test_a_bpe_trained_anew_is_not_passed_off_as_the_runs_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    spec = TokenizerSpec(kind="bpe", vocab_size=257)
    raw = make_raw(tmp_path / "raw", TRAIN, VALID)
    write_tokens(raw, paths.TOKENS / "mine", spec, data_config())
    meta = read_meta(paths.TOKENS / "mine")
    settings = {"tokenizer": "mine", "tokenizer_spec": spec}
    for name, digest in (("own", meta.tokens_digest), ("other", "0" * 64)):
        plan = plan_of(vocab_size=meta.vocab_size)
        plan = type(plan)(**vars(plan) | settings | {"tokens_digest": digest})
        write_run(Path(name), plan)
        main(["export", name, f"{name}-there"])
    assert Path("own-there/tokenizer.json").is_file()
    assert not Path("other-there/tokenizer.json").exists()
    out = capsys.readouterr().out
    assert "other-there: LlamaForCausalLM of base-0; no tokenizer.json was written: " in out
    assert f"tokens_digest {meta.tokens_digest} is not the run's, {'0' * 64}" in out


def test_no_module_of_the_package_needs_transformers() -> None:
    assert isinstance(GPT(model_config()), nn.Module)
    code = "import sys, isoflop.convert; print('transformers' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env={"PYTHONPATH": "src"}, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "False"
