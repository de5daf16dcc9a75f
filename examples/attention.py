"""One attention call on torch tensors, beside PyTorch's own. Run from anywhere after scripts/build."""

import pathlib
import sys

import torch

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "bindings" / "python"))
import attune  # noqa: E402

q, k, v = (torch.randn(2, 8, 1000, 128, device="cuda", dtype=torch.bfloat16) for _ in range(3))
o, lse = attune.attention(q, k, v, causal=True, return_lse=True)

expected = torch.nn.functional.scaled_dot_product_attention(q.double(), k.double(), v.double(), is_causal=True)
print(f"relative error {((o.double() - expected).norm() / expected.norm()).item():.2e}, lse {tuple(lse.shape)}")
print("config:", attune.prepare(q, k, v, causal=True).config)
