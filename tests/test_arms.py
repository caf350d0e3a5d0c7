"""Every setting of the architecture against a reference or a property that only the right thing has."""

from __future__ import annotations

import math
from itertools import product
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from conftest import model_config
from isoflop.config import BiasConfig, SampleConfig
from isoflop.model import attention
from isoflop.model.attention import attend, attend_explicitly, causal_mask
from isoflop.model.gpt import GPT
from isoflop.model.layers import MLP, LayerNorm, RMSNorm
from isoflop.model.positions import rope_table
from isoflop.model.retention import Retention, RetentionState, retain
from isoflop.sampling import context_start, generate
from test_model import ids_of, seeded_gpt, strong_gpt


def random(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


# --- norms


def test_norms_agree_with_torch() -> None:
    x, gain, bias = random(3, 16) * 5 + 2, random(16, seed=1), random(16, seed=2)
    rms, layer = RMSNorm(16, 1e-5), LayerNorm(16, 1e-5)
    reference_rms, reference_layer = torch.nn.RMSNorm(16, eps=1e-5), torch.nn.LayerNorm(16, eps=1e-5)
    with torch.no_grad():
        for module in (rms, layer, reference_rms, reference_layer):
            module.weight.copy_(gain)
        layer.bias.copy_(bias)
        reference_layer.bias.copy_(bias)
    torch.testing.assert_close(rms(x), reference_rms(x))
    torch.testing.assert_close(layer(x), reference_layer(x))


def test_layernorm_projects_off_the_ones_and_onto_a_sphere() -> None:
    y = LayerNorm(64, 1e-12)(random(10, 64) * 3 + 7)
    torch.testing.assert_close(y.sum(-1), torch.zeros(10), rtol=0, atol=1e-4)
    torch.testing.assert_close(y.norm(dim=-1), torch.full((10,), 8.0), rtol=1e-5, atol=0)


# --- MLPs


@pytest.mark.parametrize("bias", [False, True])
def test_mlps_are_their_formulas(bias: bool) -> None:
    x = random(5, 32)
    for kind in ("swiglu", "gelu", "relu2"):
        mlp = MLP(model_config(mlp=kind, bias=BiasConfig(qkv=False, proj=False, mlp=bias)))
        with torch.no_grad():
            for i, p in enumerate(mlp.parameters()):
                p.copy_(random(*p.shape, seed=i + 1) * 0.3)
        b = (lambda layer: layer.bias) if bias else (lambda layer: 0.0)
        up = x @ mlp.up.weight.T + b(mlp.up)
        if kind == "swiglu":
            gate = x @ mlp.gate.weight.T + b(mlp.gate)
            hidden = gate / (1 + torch.exp(-gate)) * up
        elif kind == "gelu":
            hidden = 0.5 * up * (1 + torch.tanh(math.sqrt(2 / math.pi) * (up + 0.044715 * up**3)))
        else:
            hidden = torch.where(up > 0, up * up, 0.0)
        torch.testing.assert_close(mlp(x), hidden @ mlp.down.weight.T + b(mlp.down), rtol=1e-4, atol=1e-4)


# --- positions


def test_learned_positions_are_added_and_none_makes_a_bag_of_earlier_tokens() -> None:
    learned = strong_gpt(positions="learned")
    ids = ids_of(1, 8)
    expected = learned.embedding(ids) + learned.position.weight[:8]
    caught: list[Tensor] = []
    learned.blocks[0].register_forward_pre_hook(lambda module, inputs: caught.append(inputs[0]))
    learned(ids)
    torch.testing.assert_close(caught[0], expected)
    # One layer without positions: the last output does not change when earlier tokens change places.
    swapped = ids[:, [1, 0, 2, 4, 3, 5, 6, 7]]
    for positions, same in (("none", True), ("rope", False), ("learned", False)):
        model = strong_gpt(positions=positions, n_layer=1)
        assert torch.allclose(model(ids)[0, -1], model(swapped)[0, -1], atol=1e-5) is same, positions


def test_rope_beyond_the_trained_context_agrees_with_an_independent_implementation() -> None:
    size, trained, longer, theta = 16, 32, 128, 10000.0
    stretch = longer / trained
    for scaling in ("none", "linear", "ntk", "yarn"):
        table = rope_table(size, longer, theta, trained=trained, scaling=scaling)
        for pair, position in product(range(size // 2), (0, 1, 31, 100)):
            base = theta * stretch ** (size / (size - 2)) if scaling == "ntk" else theta
            frequency = 1 / base ** (2 * pair / size)
            length = 1.0
            if scaling == "linear":
                frequency /= stretch
            if scaling == "yarn":
                wavelength = 2 * math.pi / frequency
                ratio = trained / wavelength
                ramp = 0.0 if ratio < 1 else 1.0 if ratio > 32 else (ratio - 1) / 31
                frequency = (1 - ramp) * frequency / stretch + ramp * frequency
                length = 0.1 * math.log(stretch) + 1
            expected = length * complex(math.cos(position * frequency), math.sin(position * frequency))
            assert abs(complex(*table[position, pair].tolist()) - expected) < 1e-5, (scaling, pair, position)


def test_ntk_interpolates_the_slowest_pair_and_keeps_the_fastest() -> None:
    plain, ntk = (rope_table(16, 128, 10000.0, trained=32, scaling=s) for s in ("none", "ntk"))
    torch.testing.assert_close(ntk[:, 0], plain[:, 0])
    torch.testing.assert_close(ntk[::4, -1], plain[:32, -1])


@pytest.mark.parametrize("scaling", ["none", "linear", "ntk", "yarn"])
def test_within_the_trained_context_stretching_changes_nothing(scaling: Any) -> None:
    model = strong_gpt()
    ids = ids_of(2, 16)
    before = model(ids)
    model.stretch(16, scaling)
    torch.testing.assert_close(model(ids), before)
    model.stretch(64, scaling)
    assert model.context == 64
    assert model(ids_of(1, 64)).shape == (1, 64, 61)
    assert torch.equal(model(ids), before) == (scaling == "none")


# --- dropout, initialisation


def test_dropout_acts_in_training_and_never_in_evaluation() -> None:
    model, ids = strong_gpt(dropout=0.5), ids_of(2, 16)
    model.eval()
    torch.testing.assert_close(model(ids), model(ids), rtol=0, atol=0)
    torch.testing.assert_close(model(ids), strong_gpt().eval()(ids))
    model.train()
    assert not torch.allclose(model(ids), model(ids), atol=1e-3)


COURSE: dict[str, Any] = {
    "norm": "layernorm",
    "positions": "learned",
    "mlp": "gelu",
    "vocab_size": 65,
    "block_size": 64,
    "d_model": 128,
    "n_layer": 4,
    "d_ff": 512,
    "bias": BiasConfig(qkv=False, proj=True, mlp=True),
    "tie_embeddings": False,
}


def test_initial_losses_of_the_course_gpt() -> None:
    text = " ".join(
        f"the {a} {b} sat on the {c}" for a, b, c in product(("old", "red"), ("cat", "dog"), ("mat", "log"))
    )
    ids = torch.tensor([(ord(c) - 32) % 65 for c in text * 4])[: 8 * 65].view(8, 65)
    losses = {
        init: sum(seeded_gpt(seed, **COURSE, init=init).loss(ids[:, :-1], ids[:, 1:])[0].item() for seed in range(5))
        / 5
        for init in ("torch", "gpt2")
    }
    assert losses["gpt2"] == pytest.approx(math.log(65), abs=0.05)
    assert losses["torch"] == pytest.approx(4.30, abs=0.12)


def test_torch_initialisation_has_the_spread_of_torchs_own_layers() -> None:
    model = seeded_gpt(**COURSE, init="torch")
    mine, own = model.blocks[0].mlp.up, torch.nn.Linear(128, 512)
    assert mine.weight.std().item() == pytest.approx(own.weight.std().item(), rel=0.03)
    assert mine.weight.abs().max() <= 1 / math.sqrt(128)
    assert mine.bias is not None
    assert mine.bias.std().item() == pytest.approx(1 / math.sqrt(3 * 128), rel=0.15)
    assert model.embedding.weight.std().item() == pytest.approx(1.0, rel=0.03)


# --- windows


@pytest.mark.parametrize(("window", "t"), [(4, 16), (4, 12), (4, 10), (5, 16), (16, 16), (99, 16), (1, 8)])
@pytest.mark.parametrize("kv_heads", [4, 2, 1])
def test_a_window_is_full_attention_with_a_mask(window: int, t: int, kv_heads: int) -> None:
    q, k, v = (random(2, h, t, 6, seed=i, dtype=torch.float64) for i, h in enumerate((4, kv_heads, kv_heads)))
    i = torch.arange(t)
    seen = (i[None] <= i[:, None]) & (i[None] > i[:, None] - window)
    expected = F.scaled_dot_product_attention(q, k, v, attn_mask=seen, enable_gqa=True)
    torch.testing.assert_close(attend(q, k, v, window=window), expected, rtol=1e-12, atol=1e-12)


def test_short_windows_never_make_a_matrix_of_all_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []

    def spy(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, dropout: float = 0.0) -> Tensor:
        sizes.append(k.shape[-2])
        return attend_explicitly(q, k, v, mask, dropout)

    monkeypatch.setattr(attention, "attend_explicitly", spy)
    q = random(1, 2, 64, 4)
    attend(q, q, q, window=8)
    assert sizes == [16]


@pytest.mark.parametrize("block_size", [16, 12])
def test_the_window_ends_exactly_where_it_should(block_size: int) -> None:
    w, i = 4, 10
    model = strong_gpt(window=[w], n_layer=1, block_size=block_size)
    ids = ids_of(1, block_size)
    base = model(ids)[0, i]
    for j in range(i + 1):
        changed = ids.clone()
        changed[0, j] = (changed[0, j] + 1) % 61
        same = torch.allclose(model(changed)[0, i], base, atol=1e-5)
        assert same == (j <= i - w), f"token {j} seen from {i} with {w} keys"


def test_layers_alternate_and_reach_further_together() -> None:
    model = strong_gpt(window=[0, 4], n_layer=2)
    assert [block.attention.window for block in model.blocks] == [0, 4]
    torch.testing.assert_close(strong_gpt(window=[16])(ids_of(1, 16)), strong_gpt()(ids_of(1, 16)))


def test_masks_are_usable_in_training_after_inference() -> None:
    causal_mask.cache_clear()
    model = strong_gpt(window=[5])
    with torch.inference_mode():
        model(ids_of(1, 16))
    model(ids_of(1, 16)).sum().backward()
    assert model.embedding.weight.grad is not None


# --- linear layers


def recurrence(q: Tensor, k: Tensor, v: Tensor, log_decay: Tensor) -> Tensor:
    """S_t = g_t S_{t-1} + k_t^T v_t, y_t = q_t S_t / sqrt C, one position after the other."""
    state = q.new_zeros(*q.shape[:2], q.shape[-1], q.shape[-1])
    outputs = []
    for i in range(q.shape[2]):
        state = log_decay[:, :, i, None, None].exp() * state + k[:, :, i, :, None] * v[:, :, i, None, :]
        outputs.append(torch.einsum("bhc,bhcd->bhd", q[:, :, i] / math.sqrt(q.shape[-1]), state))
    return torch.stack(outputs, dim=2)


def of_all_pairs(q: Tensor, k: Tensor, v: Tensor, log_decay: Tensor) -> Tensor:
    """The parallel form: every pair of positions at its distance."""
    cumulated = log_decay.cumsum(-1)
    decay = (cumulated[..., :, None] - cumulated[..., None, :]).exp().tril()
    return (q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1]) * decay) @ v


def with_gradients(form: Any, *given: Tensor) -> list[Tensor]:
    """What `form` makes of leaves of its own, and the gradients of a weighted sum of it."""
    leaves = [x.clone().requires_grad_() for x in given]
    y = form(*leaves)
    (y * random(*y.shape, seed=9).to(y.dtype)).sum().backward()
    return [y.detach(), *(leaf.grad for leaf in leaves)]


@pytest.mark.parametrize("t", [1, 2, 7, 8, 9, 64, 75])
@pytest.mark.parametrize("chunk", [1, 4, 8, 32, 1000])
def test_retention_in_chunks_is_all_pairs_is_the_recurrence(t: int, chunk: int) -> None:
    b, h, c = 2, 3, 4
    given = [random(b, h, t, c, seed=i, dtype=torch.float64) for i in range(3)]
    given.append(F.logsigmoid(random(b, h, t, seed=3, dtype=torch.float64)))
    chunked = with_gradients(lambda *x: retain(*x, chunk=chunk)[0], *given)
    for reference in (recurrence, of_all_pairs):
        for got, expected in zip(chunked, with_gradients(reference, *given), strict=True):
            torch.testing.assert_close(got, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("cuts", [(9,), (1,) * 9, (4, 5), (1, 7, 1)])
@pytest.mark.parametrize("chunk", [2, 32])
def test_retention_in_pieces_equals_retention_at_once(cuts: tuple[int, ...], chunk: int) -> None:
    given = [random(1, 2, 9, 4, seed=i, dtype=torch.float64) for i in range(3)]
    given.append(F.logsigmoid(random(1, 2, 9, seed=3, dtype=torch.float64)))
    state, parts = None, []
    for piece in torch.arange(9).split(cuts):
        y, state = retain(*(x[:, :, piece] for x in given), state, chunk)
        parts.append(y)
    whole, end = retain(*given)
    torch.testing.assert_close(torch.cat(parts, dim=2), whole, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(state, end, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("chunk", [16, 32])
def test_extreme_decays_neither_overflow_nor_vanish(chunk: int) -> None:
    """Memories of one token, of all tokens, and both in turns, in float32 against float64."""
    given = [random(1, 1, 256, 4, seed=i) for i in range(3)]
    turns = torch.where(torch.arange(256) % 3 == 0, -50.0, -1e-6)
    for log_decay in (torch.full((256,), -50.0), torch.full((256,), -3e4), torch.zeros(256), turns):
        got = with_gradients(lambda *x: retain(*x, chunk=chunk)[0], *given, log_decay[None, None])
        exact = [x.double() for x in (*given, log_decay[None, None])]
        assert all(torch.isfinite(x).all() for x in got)
        for mine, expected in zip(got, with_gradients(recurrence, *exact), strict=True):
            torch.testing.assert_close(mine.double(), expected, rtol=1e-4, atol=1e-3)


def test_long_retention_never_makes_a_matrix_of_all_pairs() -> None:
    sizes: list[int] = []

    def note(x: Tensor) -> Tensor:
        sizes.append(x.numel())
        return x

    def most(t: int) -> int:
        """Values in the largest tensor that the backward pass keeps."""
        sizes.clear()
        given = [random(1, 1, t, 4, seed=i).requires_grad_() for i in range(3)]
        with torch.autograd.graph.saved_tensors_hooks(note, note):
            retain(*given, -torch.rand(1, 1, t), chunk=8)
        return max(sizes)

    assert most(512) == 512 * 8
    assert most(1024) == 2 * most(512)


@pytest.mark.parametrize("kv_heads", [4, 2, 1])
def test_a_linear_layer_shares_its_keys_as_attention_does(kv_heads: int) -> None:
    """Grouped heads equal as many heads with tied weights, in values and, summed over a group, in gradients."""
    shared, tied = (Retention(model_config(n_kv_head=n, block_size=80)) for n in (kv_heads, 4))
    with torch.no_grad():
        for i, p in enumerate(shared.parameters()):
            p.copy_(random(*p.shape, seed=i) * 0.5)
        state = shared.state_dict()
        for name in ("k.weight", "v.weight"):
            state[name] = state[name].unflatten(0, (kv_heads, 8)).repeat_interleave(4 // kv_heads, 0).flatten(0, 1)
        tied.load_state_dict(state)
    x = random(2, 75, 32)
    ys = [layer(x, None) for layer in (shared, tied)]
    torch.testing.assert_close(*ys, rtol=1e-5, atol=1e-5)
    for y in ys:
        (y * random(*y.shape, seed=9)).sum().backward()
    summed = tied.k.weight.grad.unflatten(0, (kv_heads, 4 // kv_heads, 8)).sum(1).flatten(0, 1)
    torch.testing.assert_close(shared.k.weight.grad, summed, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("n_kv_head", [4, 2, 1])
@pytest.mark.parametrize("pattern", [["linear"], ["softmax", "linear"]])
def test_linear_layers_are_causal_and_their_cache_is_a_state(n_kv_head: int, pattern: list[str]) -> None:
    model = strong_gpt(attention=pattern, n_kv_head=n_kv_head).eval()
    ids = ids_of(2, 16)
    full = model(ids)
    changed = ids.clone()
    changed[:, 9] = (changed[:, 9] + 1) % 61
    torch.testing.assert_close(model(changed)[:, :9], full[:, :9], rtol=0, atol=1e-5)
    assert not torch.allclose(model(changed)[:, 9:], full[:, 9:], atol=1e-3)
    cache = model.new_cache(2)
    parts = [model(ids[:, :5], cache), *(model(ids[:, i : i + 1], cache) for i in range(5, 16))]
    torch.testing.assert_close(torch.cat(parts, dim=1), full, rtol=1e-3, atol=1e-3)
    assert isinstance(cache[-1], RetentionState)
    assert cache[-1].s.shape == (2, 4, 8, 8)


def recall_accuracy(kind: str, keys: int, values: int = 4, steps: int = 400) -> float:
    """Share of values recalled by one layer with one head of keys / 2 dimensions.

    The context holds each key once, with a value; then every key is asked for, in another order (associative recall,
    Arora et al. 2023, arXiv 2312.04927, with key and value in one token, so that one layer can do it).
    """
    generator = torch.Generator().manual_seed(0)
    model = seeded_gpt(
        n_layer=1,
        n_head=1,
        n_kv_head=1,
        d_model=keys // 2,
        d_ff=keys,
        block_size=2 * keys,
        vocab_size=keys * values + keys,
        attention=[kind],
        positions="none",
        init_std=0.1,
    )
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=0.0)

    def batch(n: int) -> tuple[Tensor, Tensor]:
        key = torch.rand(n, keys, generator=generator).argsort(-1)
        value = torch.randint(0, values, (n, keys), generator=generator)
        asked = torch.rand(n, keys, generator=generator).argsort(-1)
        ids = torch.cat([key * values + value, keys * values + key.gather(1, asked)], dim=1)
        return model(ids)[:, keys:, :values], value.gather(1, asked)

    for _ in range(steps):
        logits, answer = batch(32)
        loss = F.cross_entropy(logits.flatten(0, 1), answer.flatten())
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    with torch.no_grad():
        logits, answer = batch(500)
        return float((logits.argmax(-1) == answer).float().mean())


@pytest.mark.slow
def test_recall_of_more_pairs_than_dimensions_needs_softmax() -> None:
    softmax, linear = (recall_accuracy(kind, keys=32) for kind in ("softmax", "linear"))
    assert softmax > 0.95
    assert 0.4 < linear < softmax - 0.15, "a state of 16 dimensions holds some of 32 pairs, not all"


# --- multi-token prediction


def test_mtp_adds_a_weighted_loss_of_the_token_after_the_next() -> None:
    model, plain = strong_gpt(mtp=1, mtp_weight=0.3), strong_gpt()
    ids = ids_of(2, 17)
    total, main = model.loss(ids[:, :-1], ids[:, 1:])
    assert torch.equal(main, plain.loss(ids[:, :-1], ids[:, 1:])[1])
    second = (total - main) / 0.3
    x = model.residual(ids[:, :-1])
    joined = torch.cat([model.mtp.state_norm(x[:, :-1]), model.mtp.token_norm(model.embedding(ids[:, 1:-1]))], dim=-1)
    hidden = model.mtp.final_norm(model.mtp.block(model.mtp.project(joined), model.rope[:15], torch.float32))
    expected = F.cross_entropy(model.logits(hidden).flatten(0, 1), ids[:, 2:].flatten())
    torch.testing.assert_close(second, expected, rtol=1e-4, atol=1e-4)


def test_mtp_is_causal_and_evaluation_does_not_use_it() -> None:
    model = strong_gpt(mtp=1)
    ids = ids_of(1, 16)
    before = model(ids)
    with torch.no_grad():
        for p in model.mtp.parameters():
            p.zero_()
    assert torch.equal(model(ids), before)


# --- all together


COMBINATIONS: list[dict[str, Any]] = [
    {"positions": "learned", "norm": "layernorm", "mlp": "gelu", "bias": BiasConfig(qkv=True, proj=True, mlp=True)},
    {"positions": "none", "mlp": "relu2", "n_kv_head": 2},
    {"window": [4], "n_kv_head": 1, "qk_norm": True},
    {"window": [0, 4], "dropout": 0.2},
    {"attention": ["linear"], "n_kv_head": 2, "qk_norm": True},
    {"attention": ["linear", "softmax"], "window": [0, 4], "norm": "layernorm"},
    {"mtp": 1, "tie_embeddings": False, "init": "torch"},
]


@pytest.mark.parametrize("changes", COMBINATIONS, ids=str)
def test_every_arm_trains_and_samples_with_its_cache(changes: dict[str, Any]) -> None:
    model = GPT(model_config(**{"init_std": 0.2} | changes))
    model.initialise(0)
    ids = ids_of(4, 17)
    total, _ = model.loss(ids[:, :-1], ids[:, 1:], torch.bfloat16)
    total.backward()
    assert all(p.grad is not None and torch.isfinite(p.grad).all() for p in model.parameters())
    model.eval()
    greedy = SampleConfig(prompts=[""], n_tokens=40, temperature=0.0, top_k=None, top_p=None, seed=0)
    (got,) = generate(model, [[60]], greedy, eos=-1)
    known = [60]
    for token in got:
        with torch.no_grad():
            logits = model(torch.tensor([known[context_start(len(known), 16) :]]))[0, -1]
        assert logits[token] >= logits.max() - 1e-3, "the cache and a full pass choose the same token"
        known.append(token)


def test_retention_has_the_shapes_of_attention() -> None:
    layer = Retention(model_config(n_kv_head=2))
    assert layer(random(2, 5, 32), None).shape == (2, 5, 32)
