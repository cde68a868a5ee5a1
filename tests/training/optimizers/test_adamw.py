"""AdamW and clipping match those of torch."""

from __future__ import annotations

import torch

from support.stepping import apply, give_gradients, parameters, update_of


def test_adamw_and_clipping_are_those_of_torch() -> None:
    trained, alone = parameters(), parameters()
    ours = update_of("adamw", trained, clip={"norm": 0.5})
    theirs = torch.optim.AdamW(alone.values(), lr=1e-2, weight_decay=0.01)
    for seed in range(5):
        for each in (trained, alone):
            give_gradients(each, seed)
        torch.nn.utils.clip_grad_norm_(alone.values(), 0.5)
        theirs.step()
        apply(ours)
    for name, p in trained.items():
        torch.testing.assert_close(p, alone[name], rtol=1e-6, atol=1e-7)
