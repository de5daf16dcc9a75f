"""Attention and its gradients in double precision, and the bounds that an output is held to."""

import sys

# Bounds of a correct result: norm of the error over the reference's for unit normal inputs, and unit roundoff for the bound of each element.
RELATIVE_BOUND = {"fp16": 4e-4, "bf16": 3e-3}
GRADIENT_RELATIVE_BOUND = {"fp16": 6e-4, "bf16": 4e-3}
UNIT_ROUNDOFF = {"fp16": 2.0**-11, "bf16": 2.0**-8}
SMALLEST_STEP = {"fp16": 2.0**-25, "bf16": 2.0**-134}  # half of the smallest subnormal number
SAMPLED_ROWS = 128
ROWS_AT_ONCE = 1024  # of scores in double precision


def _hidden(torch, problem, rows):
    """Which keys the given queries do not see."""
    keys = torch.arange(problem.kv_seq, device=rows.device)[None, :]
    return keys > rows[:, None] + problem.mask_offset if problem.is_causal else torch.zeros_like(rows[:, None] + keys, dtype=torch.bool)


class Reference:
    """Attention of the first, the last and random rows of the first and the last head."""

    def __init__(self, torch, problem, q, k, v, seed):
        self.problem = problem
        rows = torch.randperm(problem.seq, generator=torch.Generator().manual_seed(seed))[:SAMPLED_ROWS]
        self.rows = torch.unique(torch.cat([rows, torch.tensor([0, problem.seq - 1])])).to(q.device)
        hidden, group = _hidden(torch, problem, self.rows), problem.heads // problem.kv_heads
        self.heads = sorted({(0, 0), (problem.batch - 1, problem.heads - 1)})
        self.expected = []
        for batch, head in self.heads:
            keys, values = k[batch, head // group].double(), v[batch, head // group].double()
            scores = (problem.softmax_scale * q[batch, head, self.rows].double() @ keys.T).masked_fill_(hidden, float("-inf"))
            p = torch.softmax(scores, dim=-1).masked_fill_(hidden, 0)  # a query that sees nothing has NaN
            self.expected.append((p @ values, p @ values.abs(), torch.logsumexp(scores, dim=-1)))

    def errors(self, out, lse, is_unit_normal):
        """What the row of a contender says of its output; without an LSE that is None."""
        u = UNIT_ROUNDOFF[self.problem.dtype]
        error_squares = reference_squares = worst = worst_lse = 0.0
        for (batch, head), (o, weight, expected_lse) in zip(self.heads, self.expected):
            difference = (out[batch, head, self.rows].double() - o).nan_to_num(nan=float("inf"))
            error_squares += difference.square().sum().item()
            reference_squares += o.square().sum().item()
            worst = max(worst, (difference.abs() / (2 * u * weight + u * o.abs())).nan_to_num(nan=0).max().item())
            if lse is not None:
                actual = lse[batch, head, self.rows].double()
                distance = (actual - expected_lse).nan_to_num(nan=float("inf")).abs().masked_fill(actual == expected_lse, 0)
                worst_lse = max(worst_lse, (distance / (1e-5 + 1e-6 * expected_lse.abs())).nan_to_num(nan=0).max().item())
        return _judged(error_squares, reference_squares, worst, RELATIVE_BOUND[self.problem.dtype], worst_lse if lse is not None else None)


class GradientReference:
    """Gradients of the first and the last key/value head and of the query heads that read them, with what the bound of each element is
    relative to: the roundings of P and dS, and of O, of which delta is made."""

    def __init__(self, torch, problem, q, k, v, grad_out):
        self.problem, self.heads = problem, sorted({(0, 0), (problem.batch - 1, problem.kv_heads - 1)})
        self.group = problem.heads // problem.kv_heads
        self.expected = [self._differentiate(torch, batch, head, q, k, v, grad_out) for batch, head in self.heads]

    def _differentiate(self, torch, batch, head_kv, q, k, v, grad_out):
        scale = self.problem.softmax_scale
        tiny = SMALLEST_STEP[self.problem.dtype] / UNIT_ROUNDOFF[self.problem.dtype]
        keys, values = k[batch, head_kv].double(), v[batch, head_kv].double()
        grad_k, weight_k, grad_v, weight_v = (torch.zeros_like(keys) for _ in range(4))
        of_queries = []
        for head in range(head_kv * self.group, (head_kv + 1) * self.group):
            for first in range(0, self.problem.seq, ROWS_AT_ONCE):
                queries = q[batch, head, first : first + ROWS_AT_ONCE].double()
                grads = grad_out[batch, head, first : first + ROWS_AT_ONCE].double()
                hidden = _hidden(torch, self.problem, torch.arange(first, first + queries.shape[0], device=q.device))
                visible = ~hidden
                p = torch.softmax((scale * queries @ keys.T).masked_fill_(hidden, float("-inf")), dim=-1).masked_fill_(hidden, 0)
                out = p @ values
                error_of_delta = (grads.abs() * (2 * p @ values.abs() + out.abs() + tiny)).sum(-1, keepdim=True)
                ds = p * (grads @ values.T - (grads * out).sum(-1, keepdim=True))
                weight = ds.abs() + tiny * visible + p * error_of_delta / 2
                of_queries.append((scale * ds @ keys, scale * weight @ keys.abs()))
                grad_k += scale * ds.T @ queries
                weight_k += scale * weight.T @ queries.abs()
                grad_v += p.T @ grads
                weight_v += (p + tiny * visible).T @ grads.abs()
        return [torch.cat(parts) for parts in zip(*of_queries)], (grad_k, weight_k), (grad_v, weight_v)

    def errors(self, grads, is_unit_normal):
        """The largest relative error of the three and the largest error of an element over its bound. Where scores are wide apart dS is a
        difference of nearly equal numbers, and only the bound of each element knows by how much its rounding grows."""
        u, step = UNIT_ROUNDOFF[self.problem.dtype], SMALLEST_STEP[self.problem.dtype]
        squares, worst = (0.0, 1.0), 0.0
        for number, grad in enumerate(grads):
            error_squares = reference_squares = 0.0
            for (batch, head_kv), expected in zip(self.heads, self.expected):
                reference, weight = expected[number]
                heads = slice(head_kv * self.group, (head_kv + 1) * self.group) if number == 0 else slice(head_kv, head_kv + 1)
                actual = grad[batch, heads].double().reshape(reference.shape)
                difference = (actual - reference).nan_to_num(nan=float("inf")).abs()
                error_squares += difference.square().sum().item()
                reference_squares += reference.square().sum().item()
                worst = max(worst, (difference / (2 * u * weight + u * reference.abs() + step)).max().item())
            squares = max(squares, (error_squares, reference_squares), key=lambda pair: pair[0] / pair[1] if pair[0] else 0.0)
        bound = GRADIENT_RELATIVE_BOUND[self.problem.dtype] if is_unit_normal else float("inf")
        return _judged(*squares, worst, bound)


def _judged(error_squares, reference_squares, worst, relative_bound, worst_lse=None):
    relative = (error_squares / reference_squares) ** 0.5 if error_squares and reference_squares else float(error_squares > 0)
    within = relative <= relative_bound and worst <= 1 and (worst_lse is None or worst_lse <= 1)
    errors = {"relative_error": relative, "worst_over_bound": worst, **({} if worst_lse is None else {"worst_lse_over_bound": worst_lse})}
    largest = sys.float_info.max  # JSON has no infinity
    return {"within": within, **{name: min(error, largest) for name, error in errors.items()}}
