"""One attention call on torch tensors and its gradients, beside PyTorch's own. Run from anywhere after scripts/build."""

import pathlib
import sys

import torch

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "bindings" / "python"))
import attune_kernels as attune  # noqa: E402

q, k, v = (torch.randn(2, 8, 1000, 128, device="cuda", dtype=torch.bfloat16, requires_grad=True) for _ in range(3))
o, lse = attune.attention(q, k, v, causal=True, return_lse=True)
loss_gradient = torch.randn_like(o)
gradients = torch.autograd.grad(o, (q, k, v), loss_gradient)

doubles = [tensor.detach().double().requires_grad_() for tensor in (q, k, v)]
expected = torch.nn.functional.scaled_dot_product_attention(*doubles, is_causal=True)
expected_gradients = torch.autograd.grad(expected, doubles, loss_gradient.double())
for name, tensor, exact in zip(("o", "dq", "dk", "dv"), (o, *gradients), (expected, *expected_gradients)):
    print(f"relative error of {name} {((tensor.double() - exact).norm() / exact.norm()).item():.2e}")
print(f"lse {tuple(lse.shape)}")
print("configs:", attune.prepare(q, k, v, causal=True).config, "|", attune.prepare_backward(q, k, v, causal=True).config)
