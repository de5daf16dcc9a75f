"""A small transformer learns to go on with a phrase, with each backend of attention: step time and loss beside PyTorch's. Run from anywhere after
scripts/build.

A sequence is a random phrase again and again: what comes next stands one phrase before, so the loss falls only if attention and its gradients work.
The models begin with the same weights and see the same data; their steps take turns, so that they see the same clock of the GPU.
"""

import argparse
import contextlib
import pathlib
import statistics
import sys

import torch
from torch import nn
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "bindings" / "python"))
import attune_kernels as attune  # noqa: E402

PYTORCH = {"cudnn": SDPBackend.CUDNN_ATTENTION, "flash": SDPBackend.FLASH_ATTENTION, "efficient": SDPBackend.EFFICIENT_ATTENTION}


def rotated(x):
    """Rotary positions: pairs of elements of (batch, heads, length, head_dim) turn with the position."""
    half = x.shape[-1] // 2
    rates = 10000.0 ** (-torch.arange(half, device=x.device) / half)
    angles = torch.arange(x.shape[-2], device=x.device)[:, None] * rates
    sine, cosine = angles.sin().to(x.dtype), angles.cos().to(x.dtype)
    a, b = x[..., :half], x[..., half:]
    return torch.cat((a * cosine - b * sine, a * sine + b * cosine), -1)


class Block(nn.Module):
    def __init__(self, heads, head_dim, attention):
        super().__init__()
        width = heads * head_dim
        self.heads, self.attention = heads, attention
        self.before_attention, self.before_mlp = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = self.qkv(self.before_attention(x)).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        x = x + self.out(self.attention(rotated(q), rotated(k), v).transpose(1, 2).reshape(batch, length, width))
        return x + self.mlp(self.before_mlp(x))


class Model(nn.Module):
    def __init__(self, options, attention):
        super().__init__()
        width = options.heads * options.head_dim
        self.token = nn.Embedding(options.words, width)
        self.blocks = nn.Sequential(*(Block(options.heads, options.head_dim, attention) for _ in range(options.layers)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, options.words, bias=False)

    def forward(self, words):
        return self.head(self.norm(self.blocks(self.token(words))))


def attention_of(backend):
    if backend == "attune":
        return lambda q, k, v: attune.attention(q, k, v, causal=True)
    return lambda q, k, v: functional.scaled_dot_product_attention(q, k, v, is_causal=True)


class Run:
    """A model with one backend, its optimizer, its losses and the milliseconds of its steps."""

    def __init__(self, backend, options):
        torch.manual_seed(options.seed)
        self.backend = contextlib.nullcontext if backend == "attune" else lambda: sdpa_kernel(PYTORCH[backend])
        self.model = Model(options, attention_of(backend)).to("cuda", torch.bfloat16)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=options.rate, weight_decay=0.0)
        self.losses, self.milliseconds = [], []

    def step(self, words, first_known):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        with self.backend():
            logits = self.model(words[:, :-1])
            loss = functional.cross_entropy(logits[:, first_known:].flatten(0, 1).float(), words[:, 1 + first_known :].flatten())
            loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        end.record()
        self.losses.append(loss.item())
        self.milliseconds.append(begin.elapsed_time(end))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backends", default="attune,cudnn,flash,efficient")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--batch", type=int, default=2)
    parser.add_argument("--length", type=int, default=4096, help="of a sequence; a multiple of --phrase")
    parser.add_argument("--phrase", type=int, default=32, help="words of a phrase")
    parser.add_argument("--heads", type=int, default=16)
    parser.add_argument("--head-dim", type=int, default=128)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--words", type=int, default=64, help="in the vocabulary")
    parser.add_argument("--rate", type=float, default=3e-4)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    backends = options.backends.split(",")
    unknown = [backend for backend in backends if backend not in ("attune", *PYTORCH)]
    if unknown:
        parser.error(f"--backends: there is no backend {unknown[0]!r}; they are attune, {', '.join(PYTORCH)}")
    if options.length % options.phrase or options.length == options.phrase:
        parser.error(f"--length {options.length}: it must hold a phrase of {options.phrase} words several times")

    runs = {backend: Run(backend, options) for backend in backends}
    source = torch.Generator("cuda").manual_seed(options.seed)
    for step in range(options.steps):
        phrase = torch.randint(options.words, (options.batch, options.phrase), generator=source, device="cuda")
        words = phrase.repeat(1, options.length // options.phrase)
        for backend in backends[step % len(backends) :] + backends[: step % len(backends)]:
            runs[backend].step(words, options.phrase)
        if step % 10 == 0 or step == options.steps - 1:
            print(f"step {step:3}: " + "  ".join(f"{backend} {run.losses[-1]:.4f}" for backend, run in runs.items()), flush=True)

    counted = options.steps // 4  # the first steps compile and warm up
    own = statistics.median(runs[backends[0]].milliseconds[counted:])
    print(f"{'backend':10} {'ms a step':>10} {'beside ' + backends[0]:>15} {'last loss':>10}")
    for backend, run in runs.items():
        time = statistics.median(run.milliseconds[counted:])
        print(f"{backend:10} {time:10.2f} {time / own:15.3f} {run.losses[-1]:10.4f}")


if __name__ == "__main__":
    main()
