"""Attention and its gradients in double precision, and the bounds that an output is held to: those of each element, which
runtime/oracle/reference_attention.h derives, and FlashAttention's rule.

The rule: the largest error is at most twice that of plain attention, written in PyTorch's operations in the same type, plus one rounding of
the largest element (FlashAttention's tests allow some two such roundings), and the mean error is at most twice plain attention's. In
FlashAttention's tests plain attention rounds S, too. So do the gradients here; O is held to one that keeps S in fp32 and errs less.

Plain attention takes delta from P and dP. A flash attention has only the rounded O that was saved, and where one key dominates that alone
breaks the rule for each of them: errors are told beside plain attention with such a delta, too (`error_over_rule_of_saved_o`: the rule with
the larger error of the two).
"""

import sys

from .inputs import DTYPES, UNIT_NORMAL

# Bounds of a correct result: norm of the error over the reference's for unit normal inputs, and unit roundoff for the bound of each element.
RELATIVE_BOUND = {"fp16": 4e-4, "bf16": 3e-3}
GRADIENT_RELATIVE_BOUND = {"fp16": 6e-4, "bf16": 4e-3}
UNIT_ROUNDOFF = {"fp16": 2.0**-11, "bf16": 2.0**-8}
SMALLEST_STEP = {"fp16": 2.0**-25, "bf16": 2.0**-134}  # half of the smallest subnormal number
# For bf16 what kernels lose that flush a probability below fp32's smallest normal number, 2^-126, to zero, times |dP - delta|.
SMALLEST_GRADIENT_STEP = {"fp16": 2.0**-25, "bf16": 2.0**-119}
SAMPLED_ROWS = 128
ROWS_AT_ONCE = 1024  # of scores in double precision


def _hidden(torch, problem, rows):
    """Which keys the given queries do not see."""
    keys = torch.arange(problem.kv_seq, device=rows.device)[None, :]
    if problem.window is not None:
        (left, right), apart = problem.window, keys - rows[:, None] - (problem.kv_seq - problem.seq)
        return (left >= 0) & (apart < -left) | (right >= 0) & (apart > right)
    return keys > rows[:, None] + problem.mask_offset if problem.is_causal else torch.zeros_like(rows[:, None] + keys, dtype=torch.bool)


# What kernels lose by their tanh, of what it gives: with a softcap their scores, and P with them, are off by so much of the cap.
TANH_ERROR = 2.0**-16
# The error of an LSE with ALiBi: kernels count a tile's rows from one diagonal, up to 256 keys from a row's own, for slopes up to 1
# (runtime/oracle/output_bounds.h).
ALIBI_LSE_ERROR = 2.0**-23 * 256


def _capped(torch, problem, scores):
    return scores if problem.softcap == 0 else problem.softcap * torch.tanh(scores / problem.softcap)


def _slopes(torch, problem, scores):
    """Derivatives of capped scores by the scores."""
    return torch.ones_like(scores) if problem.softcap == 0 else torch.cosh(scores / problem.softcap).square().reciprocal()


def _roundoff(problem):
    """That of the problem's type, for bounds of elements, and what a tanh adds to it."""
    return UNIT_ROUNDOFF[problem.dtype] + TANH_ERROR * problem.softcap / 2


def _softmax(torch, scores, sink):
    """(P, LSE); with a sink as one more score, whose P is left out."""
    if sink is None:
        return torch.softmax(scores, dim=-1), torch.logsumexp(scores, dim=-1)
    scores = torch.cat([scores, sink.to(scores.dtype).expand(*scores.shape[:-1], 1)], dim=-1)
    return torch.softmax(scores, dim=-1)[..., :-1], torch.logsumexp(scores, dim=-1)


class _Head:
    """What terms make of the scores and the softmax of a head. "sequence" among them: the batch entry is that one of packed sequences."""

    def __init__(self, terms, batch, head):
        self._dropout_state, self._place = terms.get("dropout_state"), (terms.get("sequence", batch), head)
        self._pairs = {name: terms[name][batch % terms[name].shape[0], head % terms[name].shape[1]] for name in ("bias", "attention_mask")
                       if name in terms}
        self.sink = terms["sinks"][head] if "sinks" in terms else None
        self._slope = terms["alibi_slopes"][head] if "alibi_slopes" in terms else None

    def add_to(self, torch, problem, scores, rows):
        """Of the queries `rows`, before the mask."""
        if self._slope is not None:
            keys = torch.arange(problem.kv_seq, device=scores.device)
            distance = (rows[:, None] + problem.kv_seq - problem.seq - keys).abs()
            scores = scores - self._slope.to(scores.dtype) * distance.to(scores.dtype)
        if "bias" in self._pairs:
            scores = scores + self._rows("bias", rows).to(scores.dtype)
        if "attention_mask" in self._pairs:
            scores = scores.masked_fill(~self._rows("attention_mask", rows), float("-inf"))
        return scores

    def kept(self, torch, problem, rows):
        """What each element of the softmax of the queries `rows` counts: 1 but for dropout."""
        if problem.dropout == 0:
            return 1
        from attune_kernels import _dropout  # apart from what the kernels do

        (batch, head), keys = self._place, torch.arange(problem.kv_seq, device=rows.device)
        mask = _dropout.keeps(problem.dropout, self._dropout_state, batch * problem.heads + head, rows[:, None], keys)
        return mask / (1 - problem.dropout)

    def hides(self, rows, hidden):
        """What the mask and the attention mask hide from the queries `rows`."""
        return hidden | ~self._rows("attention_mask", rows) if "attention_mask" in self._pairs else hidden

    def _rows(self, name, rows):
        plane = self._pairs[name]
        return plane if plane.shape[0] == 1 else plane[rows]


def _plain_probabilities(torch, problem, queries, keys, rows, hidden, rounds_scores, head):
    """Rounded to the problem's type, in fp32."""
    scores = head.add_to(torch, problem, _capped(torch, problem, problem.softmax_scale * queries.float() @ keys.float().T), rows)
    scores = (_rounded(torch, problem, scores) if rounds_scores else scores).masked_fill_(hidden, float("-inf"))
    p = _softmax(torch, scores, head.sink)[0].masked_fill(head.hides(rows, hidden), 0)  # a query that sees nothing has NaN
    return _rounded(torch, problem, p)


def _rounded(torch, problem, tensor):
    return tensor.to(getattr(torch, DTYPES[problem.dtype])).float()


def _over_rule(actual, plains, exact, unit_roundoff, floor=0.0):
    """By how much errors exceed what the rule allows: above 1 they break it. `plains`: ways of plain attention, of which the larger error
    counts. `floor`: what sums in fp32 may leave where plain attention has an exact zero."""
    error = (actual.double() - exact).nan_to_num(nan=float("inf")).abs()
    plain_errors = [(plain.double() - exact).abs() for plain in plains]
    largest, mean = (max(of(one).item() for one in plain_errors) for of in (lambda one: one.max(), lambda one: one.mean()))
    allowed = {"max": 2 * largest + unit_roundoff * exact.abs().max().item() + floor, "mean": 2 * mean + floor}
    found = {"max": error.max().item(), "mean": error.mean().item()}
    return max(found[what] / allowed[what] if allowed[what] else float("inf") if found[what] else 0.0 for what in found)


class Reference:
    """Attention of the first, the last and random rows of the first and the last head."""

    def __init__(self, torch, problem, q, k, v, seed, terms={}):
        self.problem = problem
        rows = torch.randperm(problem.seq, generator=torch.Generator().manual_seed(seed))[:SAMPLED_ROWS]
        self.rows = torch.unique(torch.cat([rows, torch.tensor([0, problem.seq - 1])])).to(q.device)
        hidden, group = _hidden(torch, problem, self.rows), problem.heads // problem.kv_heads
        self.heads = sorted({(0, 0), (problem.batch - 1, problem.heads - 1)})
        self.expected, plain = [], []
        for batch, head in self.heads:
            of_head = _Head(terms, batch, head)
            plain_p = _plain_probabilities(torch, problem, q[batch, head, self.rows], k[batch, head // group], self.rows, hidden, False, of_head)
            kept = of_head.kept(torch, problem, self.rows)
            plain.append(_rounded(torch, problem, _rounded(torch, problem, plain_p * kept) @ v[batch, head // group].float()))
            keys, values = k[batch, head // group].double(), v[batch, head // group].double()
            scores = _capped(torch, problem, problem.softmax_scale * q[batch, head, self.rows].double() @ keys.T)
            scores = of_head.add_to(torch, problem, scores, self.rows).masked_fill_(hidden, float("-inf"))
            p, expected_lse = _softmax(torch, scores, of_head.sink)
            p = p.masked_fill(of_head.hides(self.rows, hidden), 0)  # a query that sees nothing has NaN
            # A P that is subnormal beside the row's largest, 1 in a kernel, is off by half of the smallest subnormal number.
            smallest_p = SMALLEST_STEP[problem.dtype] / UNIT_ROUNDOFF[problem.dtype] * p.amax(-1, keepdim=True)
            self.expected.append(((p * kept) @ values, ((p + smallest_p * ~hidden) * kept) @ values.abs(), expected_lse))
        self.plain = torch.stack(plain)
        self.exact = torch.stack([o for o, _, _ in self.expected])

    def errors(self, out, lse, data):
        """What the row of a contender says of its output; without an LSE that is None."""
        u, step = _roundoff(self.problem), SMALLEST_STEP[self.problem.dtype]
        actual_rows = self.plain.new_empty(self.plain.shape)
        for number, (batch, head) in enumerate(self.heads):
            actual_rows[number] = out[batch, head, self.rows].float()
        over_rule = _over_rule(actual_rows, [self.plain], self.exact, UNIT_ROUNDOFF[self.problem.dtype])
        error_squares = reference_squares = worst = worst_lse = 0.0
        for (batch, head), (o, weight, expected_lse) in zip(self.heads, self.expected):
            difference = (out[batch, head, self.rows].double() - o).nan_to_num(nan=float("inf"))
            error_squares += difference.square().sum().item()
            reference_squares += o.square().sum().item()
            worst = max(worst, (difference.abs() / (2 * u * weight + u * o.abs() + step)).max().item())
            if lse is not None:
                actual = lse[batch, head, self.rows].double()
                distance = (actual - expected_lse).nan_to_num(nan=float("inf")).abs().masked_fill(actual == expected_lse, 0)
                bound = 1e-5 + 1e-6 * expected_lse.abs() + TANH_ERROR * self.problem.softcap + ALIBI_LSE_ERROR * self.problem.alibi
                worst_lse = max(worst_lse, (distance / bound).nan_to_num(nan=0).max().item())
        return _judged(error_squares, reference_squares, worst, over_rule, RELATIVE_BOUND[self.problem.dtype],
                       worst_lse if lse is not None else None)


class GradientReference:
    """Gradients of the first and the last key/value head and of the query heads that read them, with what the bound of each element is
    relative to: the roundings of P and dS, and of O, of which delta is made. Those of sinks and of a bias are not among them: `attune check` compares them."""

    def __init__(self, torch, problem, q, k, v, grad_out, terms={}):
        self._terms = terms
        self._torch, self.problem, self.heads = torch, problem, sorted({(0, 0), (problem.batch - 1, problem.kv_heads - 1)})
        self.group = problem.heads // problem.kv_heads
        self.expected = [self._differentiate(torch, batch, head, q, k, v, grad_out) for batch, head in self.heads]
        # By PyTorch's operations, and with the delta of a saved O.
        self.plains = [[self._plain(torch, batch, head, q, k, v, grad_out, saves_o) for batch, head in self.heads] for saves_o in (False, True)]
        # Delta, a sum of dO o O, cancels dP, a sum of dO o V, where a row hardly sees more than one key; both are in fp32, in other orders.
        ds = 2.0**-22 * problem.softmax_scale * problem.head_dim**0.5 * grad_out.float().norm(dim=-1).max().item() * v.abs().max().item()
        self.floors = (ds * k.abs().max().item(), ds * q.abs().max().item(), 0.0)

    def _differentiate(self, torch, batch, head_kv, q, k, v, grad_out):
        scale = self.problem.softmax_scale
        tiny = SMALLEST_GRADIENT_STEP[self.problem.dtype] / UNIT_ROUNDOFF[self.problem.dtype]
        keys, values = k[batch, head_kv].double(), v[batch, head_kv].double()
        grad_k, weight_k, grad_v, weight_v = (torch.zeros_like(keys) for _ in range(4))
        of_queries = []
        for head in range(head_kv * self.group, (head_kv + 1) * self.group):
            of_head = _Head(self._terms, batch, head)
            for first in range(0, self.problem.seq, ROWS_AT_ONCE):
                queries = q[batch, head, first : first + ROWS_AT_ONCE].double()
                grads = grad_out[batch, head, first : first + ROWS_AT_ONCE].double()
                rows = torch.arange(first, first + queries.shape[0], device=q.device)
                hidden = _hidden(torch, self.problem, rows)
                visible = ~hidden
                scores = scale * queries @ keys.T
                slopes = _slopes(torch, self.problem, scores)
                changed = of_head.add_to(torch, self.problem, _capped(torch, self.problem, scores), rows).masked_fill(hidden, float("-inf"))
                p = _softmax(torch, changed, of_head.sink)[0].masked_fill(of_head.hides(rows, hidden), 0)
                kept = of_head.kept(torch, self.problem, rows)
                out = (p * kept) @ values
                error_of_delta = (grads.abs() * (2 * (p * kept) @ values.abs() + out.abs() + tiny)).sum(-1, keepdim=True)
                difference = kept * (grads @ values.T) - (grads * out).sum(-1, keepdim=True)
                ds = slopes * p * difference
                # A kernel may multiply by the rounded P, too: dP - delta multiplies what a subnormal P has lost.
                of_tanh = TANH_ERROR / UNIT_ROUNDOFF[self.problem.dtype] * (1 - slopes) * p * difference.abs()
                weight = ds.abs() + tiny * (1 + difference.abs()) * visible + slopes * p * error_of_delta / 2 + of_tanh
                of_queries.append((scale * ds @ keys, scale * weight @ keys.abs()))
                grad_k += scale * ds.T @ queries
                weight_k += scale * weight.T @ queries.abs()
                grad_v += (p * kept).T @ grads
                weight_v += ((p + tiny * visible) * kept).T @ grads.abs()
        return [torch.cat(parts) for parts in zip(*of_queries)], (grad_k, weight_k), (grad_v, weight_v)

    def _plain(self, torch, batch, head_kv, q, k, v, grad_out, saves_o):
        """dQ of the head's queries, dK and dV, as autograd makes them of plain attention."""
        problem, scale = self.problem, self.problem.softmax_scale
        keys, values = k[batch, head_kv].float(), v[batch, head_kv].float()
        grad_q, grad_k, grad_v = [], torch.zeros_like(keys), torch.zeros_like(values)
        for head in range(head_kv * self.group, (head_kv + 1) * self.group):
            for first in range(0, problem.seq, ROWS_AT_ONCE):
                queries = q[batch, head, first : first + ROWS_AT_ONCE].float()
                grads = grad_out[batch, head, first : first + ROWS_AT_ONCE].float()
                rows = torch.arange(first, first + queries.shape[0], device=q.device)
                hidden = _hidden(torch, problem, rows)
                of_head = _Head(self._terms, batch, head)
                p = _plain_probabilities(torch, problem, queries, keys, rows, hidden, True, of_head)
                kept = of_head.kept(torch, problem, rows)
                dropped = _rounded(torch, problem, p * kept)
                dp = _rounded(torch, problem, kept * _rounded(torch, problem, grads @ values.T))
                products = grads * _rounded(torch, problem, dropped @ values) if saves_o else p * dp  # delta is their sum
                slopes = _slopes(torch, problem, scale * queries @ keys.T)
                ds = _rounded(torch, problem, slopes * p * (dp - products.sum(-1, keepdim=True)))
                grad_q.append(scale * ds @ keys)
                grad_k += scale * ds.T @ queries
                grad_v += dropped.T @ grads
        return [_rounded(torch, problem, grad) for grad in (torch.cat(grad_q), grad_k, grad_v)]

    def _over_rule(self, number, grads, has_offsets, plains):
        """Of dQ (0), dK (1) or dV (2). Element 0 of dQ's rows is larger than the others where keys have offsets, and is judged apart."""
        actual = self._torch.cat([self._of_head(grads[number], number, batch, head_kv) for batch, head_kv in self.heads])
        ways = [self._torch.cat([of_head[number] for of_head in plain]) for plain in plains]
        exact = self._torch.cat([of_head[number][0] for of_head in self.expected])
        parts = (slice(0, 1), slice(1, None)) if number == 0 and has_offsets else (slice(None),)
        return max(_over_rule(actual[:, part], [way[:, part] for way in ways], exact[:, part], UNIT_ROUNDOFF[self.problem.dtype],
                              self.floors[number]) for part in parts)

    def _of_head(self, grad, number, batch, head_kv):
        """Rows of dQ, of all query heads that read a key/value head, or of dK or dV."""
        heads = slice(head_kv * self.group, (head_kv + 1) * self.group) if number == 0 else slice(head_kv, head_kv + 1)
        return grad[batch, heads].reshape(-1, self.problem.head_dim)

    def errors(self, grads, data):
        """The largest relative error of the three and the largest error of an element over its bound. Where scores are wide apart dS is a
        difference of nearly equal numbers, and only the bound of each element knows by how much its rounding grows."""
        u, step = _roundoff(self.problem), SMALLEST_GRADIENT_STEP[self.problem.dtype]
        over_rule, over_rule_of_saved_o = (
            max(self._over_rule(number, grads, data.has_offsets, plains) for number in range(3)) for plains in (self.plains[:1], self.plains))
        squares, worst = (0.0, 1.0), 0.0
        for number, grad in enumerate(grads[:3]):
            error_squares = reference_squares = 0.0
            for (batch, head_kv), expected in zip(self.heads, self.expected):
                reference, weight = expected[number]
                actual = self._of_head(grad, number, batch, head_kv).double()
                difference = (actual - reference).nan_to_num(nan=float("inf")).abs()
                error_squares += difference.square().sum().item()
                reference_squares += reference.square().sum().item()
                worst = max(worst, (difference / (2 * u * weight + u * reference.abs() + step)).max().item())
            squares = max(squares, (error_squares, reference_squares), key=lambda pair: pair[0] / pair[1] if pair[0] else 0.0)
        bound = GRADIENT_RELATIVE_BOUND[self.problem.dtype] if data == UNIT_NORMAL else float("inf")
        return {**_judged(*squares, worst, over_rule, bound), "error_over_rule_of_saved_o": min(over_rule_of_saved_o, sys.float_info.max)}


def _judged(error_squares, reference_squares, worst, over_rule, relative_bound, worst_lse=None):
    relative = (error_squares / reference_squares) ** 0.5 if error_squares and reference_squares else float(error_squares > 0)
    within = relative <= relative_bound and worst <= 1 and over_rule <= 1 and (worst_lse is None or worst_lse <= 1)
    errors = {"relative_error": relative, "worst_over_bound": worst, "error_over_rule": over_rule,
              **({} if worst_lse is None else {"worst_lse_over_bound": worst_lse})}
    largest = sys.float_info.max  # JSON has no infinity
    return {"within": within, **{name: min(error, largest) for name, error in errors.items()}}
