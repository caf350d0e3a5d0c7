"""The training step that a user would write with somebody else's model: Hugging Face Llama, or nanoGPT's GPT."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

BATCHES = 64  # kept in memory: the peer pays nothing for its data


class Peer:
    """A step with AdamW (fused), gradient clipping and no schedule."""

    def __init__(self, spec: dict[str, Any]) -> None:
        shape = spec["shape"]
        self.spec, self.index, self.batch_s = spec, 0, 0.0
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        torch.manual_seed(0)
        model = (nanogpt if spec["side"] == "nanogpt" else llama)(shape, spec.get("attention", "sdpa"))
        model.to(self.device, torch.bfloat16 if spec["precision"] == "pure-bf16" else torch.float32).train()
        self.model = model
        self.run = torch.compile(model, mode=spec.get("compile_mode")) if spec["compile"] else model
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.1, betas=(0.9, 0.95), fused=True)
        rows, t = shape["batch_size"], shape["block_size"]
        self.tokens_per_step = rows * t
        stream = np.fromfile(Path(spec["tokens"]) / "train.bin", np.uint8)
        ids = np.resize(stream, BATCHES * rows * t).reshape(BATCHES, rows, t)
        self.batches = torch.from_numpy(ids.astype(np.int64)).to(self.device)

    def step(self) -> Tensor:
        ids = self.batches[self.index % BATCHES]
        self.index += 1
        autocast = torch.autocast(self.device.type, torch.bfloat16)
        with autocast if self.spec["precision"] == "autocast" else nullcontext():
            # Labels are shifted inside: a row gives T - 1 predictions and is counted as T tokens.
            loss: Tensor = self.run(input_ids=ids, labels=ids).loss
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return loss.detach()

    def wait(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize()

    def describe(self) -> dict[str, Any]:
        return {"threads": torch.get_num_threads(), "parameters": sum(p.numel() for p in self.model.parameters())}

    def answer(self, do: str, arguments: dict[str, Any]) -> dict[str, Any]:
        raise NotImplementedError(do)


def llama(shape: dict[str, int], attention: str) -> nn.Module:
    """LlamaForCausalLM at this shape: the same parameters and the same arithmetic as ours."""
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=shape["vocab_size"],
        hidden_size=shape["d_model"],
        intermediate_size=shape["d_ff"],
        num_hidden_layers=shape["n_layer"],
        num_attention_heads=shape["n_head"],
        max_position_embeddings=shape["block_size"],
        tie_word_embeddings=True,
        use_cache=False,
        attn_implementation="eager" if attention == "explicit" else attention,  # type: ignore[call-arg]
    )
    model: nn.Module = LlamaForCausalLM(config)
    return model


class _Block(nn.Module):
    """nanoGPT's block without biases and dropout: LayerNorm, fused qkv, flash attention, GELU of width 4 d."""

    def __init__(self, d: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList(nn.LayerNorm(d, bias=False) for _ in range(2))
        self.qkv, self.proj = nn.Linear(d, 3 * d, bias=False), nn.Linear(d, d, bias=False)
        self.mlp = nn.Sequential(nn.Linear(d, 4 * d, bias=False), nn.GELU(), nn.Linear(4 * d, d, bias=False))

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in self.qkv(self.norms[0](x)).chunk(3, -1))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(y.transpose(1, 2).flatten(-2))
        out: Tensor = x + self.mlp(self.norms[1](x))
        return out


class _Output:
    def __init__(self, loss: Tensor) -> None:
        self.loss = loss


class _NanoGPT(nn.Module):
    def __init__(self, shape: dict[str, int]) -> None:
        super().__init__()
        d = shape["d_model"]
        self.tokens, self.positions = nn.Embedding(shape["vocab_size"], d), nn.Embedding(shape["block_size"], d)
        self.blocks = nn.Sequential(*(_Block(d, shape["n_head"]) for _ in range(shape["n_layer"])))
        self.norm = nn.LayerNorm(d, bias=False)
        for parameter in self.parameters():
            if parameter.ndim >= 2:
                nn.init.normal_(parameter, std=0.02)

    def forward(self, input_ids: Tensor, labels: Tensor) -> _Output:
        x = self.tokens(input_ids) + self.positions.weight[: input_ids.shape[1]]
        logits = F.linear(self.norm(self.blocks(x)), self.tokens.weight)
        return _Output(F.cross_entropy(logits[:, :-1].flatten(0, 1).float(), labels[:, 1:].flatten()))


def nanogpt(shape: dict[str, int], attention: str) -> nn.Module:
    """The model of nanoGPT (Karpathy 2022), written down again; its MLP has 4/3 of the parameters of a SwiGLU's."""
    assert attention == "sdpa"
    return _NanoGPT(shape)
