"""Llama, Qwen3 and GPT-2 as `transformers` has them: what each can express, and what it calls the parts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from isoflop.config import ModelConfig

FamilyName = Literal["llama", "qwen3", "gpt2"]


@dataclass(frozen=True, kw_only=True)
class Family:
    """What a model class of `transformers` can express, and what its parts are called."""

    title: str
    architecture: str
    fixed: Mapping[str, str]  # settings of `model` that it knows one value of
    qk_norm: bool  # queries and keys normalised per head, before they are rotated: always, or never
    mlp_bias: bool  # its MLPs may have biases
    keys: Mapping[str, str]  # setting of `model` -> key of config.json
    defaults: Mapping[str, object]  # what `transformers` assumes where config.json is silent
    constants: Mapping[str, tuple[object, ...]]  # values of other keys that mean what this model does
    outer: Mapping[str, str]
    block: str  # prefix of a layer
    inner: Mapping[str, str]

    @property
    def rotates(self) -> bool:
        """Positions by RoPE, in halves of a head: a descendant of Llama."""
        return self.fixed["positions"] == "rope"


LLAMA = Family(
    title="Llama",
    architecture="LlamaForCausalLM",
    fixed={"norm": "rmsnorm", "positions": "rope", "mlp": "swiglu"},
    qk_norm=False,
    mlp_bias=True,
    keys={
        "vocab_size": "vocab_size",
        "d_model": "hidden_size",
        "d_ff": "intermediate_size",
        "n_layer": "num_hidden_layers",
        "n_head": "num_attention_heads",
        "n_kv_head": "num_key_value_heads",
        "block_size": "max_position_embeddings",
        "norm_eps": "rms_norm_eps",
        "rope_theta": "rope_theta",
        "init_std": "initializer_range",
        "tie_embeddings": "tie_word_embeddings",
    },
    defaults={
        "num_key_value_heads": None,
        "rms_norm_eps": 1e-6,
        "rope_theta": 10000.0,
        "initializer_range": 0.02,
        "tie_word_embeddings": False,
        "attention_bias": False,
        "mlp_bias": False,
    },
    constants={"model_type": ("llama",), "hidden_act": ("silu", "swish")},
    outer={"embedding": "model.embed_tokens", "final_norm": "model.norm", "head": "lm_head"},
    block="model.layers",
    inner={
        "attention_norm": "input_layernorm",
        "attention.q": "self_attn.q_proj",
        "attention.k": "self_attn.k_proj",
        "attention.v": "self_attn.v_proj",
        "attention.out": "self_attn.o_proj",
        "mlp_norm": "post_attention_layernorm",
        "mlp.gate": "mlp.gate_proj",
        "mlp.up": "mlp.up_proj",
        "mlp.down": "mlp.down_proj",
    },
)

# Llama with QK-norm, without biases in the MLP, and with a head size of its own (Yang et al. 2025, arXiv 2505.09388).
QWEN3 = replace(
    LLAMA,
    title="Qwen3",
    architecture="Qwen3ForCausalLM",
    qk_norm=True,
    mlp_bias=False,
    defaults={
        "num_key_value_heads": 32,
        "head_dim": 128,
        "rms_norm_eps": 1e-6,
        "rope_theta": 10000.0,
        "initializer_range": 0.02,
        "tie_word_embeddings": False,
        "attention_bias": False,
    },
    constants={"model_type": ("qwen3",), "hidden_act": ("silu", "swish"), "use_sliding_window": (False,)},
    inner={**LLAMA.inner, "attention.q_norm": "self_attn.q_norm", "attention.k_norm": "self_attn.k_norm"},
)

GPT2 = Family(
    title="GPT-2",
    architecture="GPT2LMHeadModel",
    fixed={"norm": "layernorm", "positions": "learned", "mlp": "gelu"},
    qk_norm=False,
    mlp_bias=True,
    keys={
        "vocab_size": "vocab_size",
        "d_model": "n_embd",
        "d_ff": "n_inner",
        "n_layer": "n_layer",
        "n_head": "n_head",
        "block_size": "n_positions",
        "norm_eps": "layer_norm_epsilon",
        "init_std": "initializer_range",
        "tie_embeddings": "tie_word_embeddings",
    },
    defaults={
        "n_inner": None,
        "layer_norm_epsilon": 1e-5,
        "initializer_range": 0.02,
        "tie_word_embeddings": True,
    },
    constants={
        "model_type": ("gpt2",),
        "activation_function": ("gelu_new", "gelu_pytorch_tanh"),
        "scale_attn_weights": (True,),
        "scale_attn_by_inverse_layer_idx": (False,),
        "add_cross_attention": (False,),
    },
    outer={
        "embedding": "transformer.wte",
        "position": "transformer.wpe",
        "final_norm": "transformer.ln_f",
        "head": "lm_head",
    },
    block="transformer.h",
    inner={
        "attention_norm": "ln_1",
        "attention.qkv": "attn.c_attn",
        "attention.out": "attn.c_proj",
        "mlp_norm": "ln_2",
        "mlp.up": "mlp.c_fc",
        "mlp.down": "mlp.c_proj",
    },
)

FAMILIES: Mapping[FamilyName, Family] = {"llama": LLAMA, "qwen3": QWEN3, "gpt2": GPT2}


def obstacles(config: ModelConfig, family: Family) -> list[str]:
    """Why `family` cannot express the model; empty where it can. `mtp` is no reason: only training uses it."""
    found = [
        f"model.{key} = {getattr(config, key)}, it has {value} only"
        for key, value in family.fixed.items()
        if getattr(config, key) != value
    ]
    layers = range(config.n_layer)
    if any(config.attention_of(layer) == "linear" for layer in layers):
        found.append(f"model.attention = {config.attention}, it has no linear layers")
    if any(0 < config.window_of(layer) < config.block_size for layer in layers):
        why = "its windows are not converted" if family is QWEN3 else "it has no windows"
        found.append(f"model.window = {config.window}, {why}")
    if config.qk_norm != family.qk_norm:
        rule = "always normalises" if family.qk_norm else "does not normalise"
        found.append(f"model.qk_norm = {str(config.qk_norm).lower()}, it {rule} queries and keys")
    if config.bias.mlp and not family.mlp_bias:
        found.append("model.bias.mlp = true, its MLP has no biases")
    if family is GPT2 and config.n_kv_head != config.n_head:
        found.append(f"model.n_kv_head = {config.n_kv_head}, it has as many as model.n_head = {config.n_head}")
    return found
