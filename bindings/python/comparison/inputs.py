"""Tensors of a problem, as (batch, heads, seq, head_dim) views whatever the layout in memory."""

DTYPES = {"bf16": "bfloat16", "fp16": "float16"}


def normal(torch, sizes, generator, spread):
    """Standard normal q, k, v and grad_out, q times what makes the scores' standard deviation `spread`."""
    q, *others = (torch.randn(size, generator=generator, device="cuda") for size in sizes)
    return q * spread, *others


# A kind of data by its name: a function of torch, the sizes of q, k, v and grad_out, a generator and a factor on q. It returns four tensors
# in float32.
KINDS = {"normal": normal}


def make_inputs(torch, problem, seed, spread=1.0, kind="normal"):
    """(q, k, v, grad_out). `spread`: the standard deviation of the scaled scores."""
    generator = torch.Generator(device="cuda").manual_seed(seed)
    of_queries, of_keys = (
        (problem.batch, heads, seq, problem.head_dim) for heads, seq in ((problem.heads, problem.seq), (problem.kv_heads, problem.kv_seq))
    )
    factor = spread / (problem.softmax_scale * problem.head_dim**0.5)
    made = KINDS[kind](torch, (of_queries, of_keys, of_keys, of_queries), generator, factor)
    return tuple(_in_memory_as(problem.layout, tensor.to(getattr(torch, DTYPES[problem.dtype]))) for tensor in made)


def _in_memory_as(layout, tensor):
    return tensor if layout == "bhsd" else tensor.transpose(1, 2).contiguous().transpose(1, 2)


def as_attune_takes_it(layout, tensor):
    return tensor if layout == "bhsd" else tensor.transpose(1, 2)


def shapes_without_memory(torch, problem):
    """q, k, v of the right shapes, strides of 0, for a kernel to be prepared by."""
    row = torch.empty(problem.head_dim, device="cuda", dtype=getattr(torch, DTYPES[problem.dtype]))

    def tensor(heads, seq):
        shape = (problem.batch, heads, seq) if problem.layout == "bhsd" else (problem.batch, seq, heads)
        return row.expand(*shape, problem.head_dim)

    return tensor(problem.heads, problem.seq), *(tensor(problem.kv_heads, problem.kv_seq) for _ in range(2))
