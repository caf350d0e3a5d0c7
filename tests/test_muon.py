"""The batched Muon against PyTorch's own."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from isoflop import muon
from isoflop.muon import Muon, orthogonalised, stacks

SHAPES = [(32, 32), (32, 32), (16, 32), (96, 32), (32, 96), (96, 32), (32, 32)]


def parameters(seed: int = 0) -> list[nn.Parameter]:
    generator = torch.Generator().manual_seed(seed)
    return [nn.Parameter(torch.randn(shape, generator=generator)) for shape in SHAPES]


def test_the_same_steps_as_torch_s_own() -> None:
    ours, theirs = parameters(), parameters()
    settings = {"lr": 0.02, "momentum": 0.95, "weight_decay": 0.1}
    batched, single = Muon(ours, **settings), torch.optim.Muon(theirs, **settings)
    generator = torch.Generator().manual_seed(1)
    for _ in range(10):
        for a, b in zip(ours, theirs, strict=True):
            a.grad = torch.randn(a.shape, generator=generator)
            b.grad = a.grad.clone()
        batched.step()
        single.step()
    for a, b, start in zip(ours, theirs, parameters(), strict=True):
        # Both iterate in bf16, which has 8 bits: each of the updates may differ in the last ones.
        moved = (b - start).detach().norm()
        assert float((a - b).detach().norm() / moved) < 0.02
        torch.testing.assert_close(
            batched.state[a]["momentum_buffer"], single.state[b]["momentum_buffer"], rtol=1e-5, atol=1e-6
        )


@pytest.mark.parametrize("shape", [(3, 32, 32), (2, 64, 16), (2, 16, 64)])
def test_singular_values_come_near_one(shape: tuple[int, int, int]) -> None:
    g = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    values = torch.linalg.svdvals(orthogonalised(g.bfloat16()).float())
    assert float(values.min()) > 0.3
    assert float(values.max()) < 1.35
    # The singular vectors stay: U^T X V is near the diagonal.
    u, _, vh = torch.linalg.svd(g, full_matrices=False)
    core = u.mT @ orthogonalised(g.bfloat16()).float() @ vh.mT
    off = core - torch.diag_embed(core.diagonal(dim1=-2, dim2=-1))
    assert float(off.abs().max()) < 0.1


def test_one_matrix_does_not_notice_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    generator = torch.Generator().manual_seed(2)
    grads = [torch.randn(shape, generator=generator) for shape in SHAPES]

    def after_a_step(stack: int) -> list[nn.Parameter]:
        monkeypatch.setattr(muon, "STACK", stack)
        mine = parameters()
        for p, grad in zip(mine, grads, strict=True):
            p.grad = grad.clone()
        Muon(mine, lr=0.02, momentum=0.95, weight_decay=0.1).step()
        return mine

    for a, b in zip(after_a_step(1), after_a_step(10**9), strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=2e-4)  # a step is 0.02 in spectral norm


def test_stacks_hold_each_parameter_with_a_gradient_once() -> None:
    mine = parameters()
    for p in mine[:-1]:
        p.grad = torch.ones_like(p)
    found = list(stacks(mine))
    assert sorted(id(p) for stack in found for p in stack) == sorted(id(p) for p in mine[:-1])
    assert all(len({p.shape for p in stack}) == 1 for stack in found)


def test_a_matrix_without_gradient_stays_and_a_zero_gradient_only_decays() -> None:
    still, zero = nn.Parameter(torch.ones(4, 4)), nn.Parameter(torch.ones(4, 4))
    zero.grad = torch.zeros(4, 4)
    Muon([still, zero], lr=0.1, momentum=0.9, weight_decay=0.5).step()
    assert torch.equal(still, torch.ones(4, 4))
    torch.testing.assert_close(zero.detach(), torch.full((4, 4), 0.95))


def test_state_goes_through_a_checkpoint() -> None:
    generator = torch.Generator().manual_seed(3)
    grads = [[torch.randn(shape, generator=generator) for shape in SHAPES] for _ in range(4)]

    def step(optimiser: Muon, mine: list[nn.Parameter], k: int) -> None:
        for p, grad in zip(mine, grads[k], strict=True):
            p.grad = grad.clone()
        optimiser.step()

    whole = parameters()
    straight = Muon(whole, lr=0.02, momentum=0.95, weight_decay=0.1)
    for k in range(4):
        step(straight, whole, k)
    first = parameters()
    interrupted = Muon(first, lr=0.02, momentum=0.95, weight_decay=0.1)
    for k in range(2):
        step(interrupted, first, k)
    second = [nn.Parameter(p.detach().clone()) for p in first]
    resumed = Muon(second, lr=0.02, momentum=0.95, weight_decay=0.1)
    resumed.load_state_dict(interrupted.state_dict())
    for k in (2, 3):
        step(resumed, second, k)
    assert all(torch.equal(a, b) for a, b in zip(whole, second, strict=True))
