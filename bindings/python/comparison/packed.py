"""Packed sequences: where they lie, and an output held to attention of some of them, each alone."""

from .references import GradientReference, Reference


def _places(problem):
    """(queries, keys) of each sequence, as slices."""
    first_query = first_key = 0
    for queries, keys in problem.sequence_lengths():
        yield slice(first_query, first_query + queries), slice(first_key, first_key + keys)
        first_query, first_key = first_query + queries, first_key + keys


def _looked_at(problem, terms):
    """The first, the last, the longest and the shortest sequence that has queries and keys: each alone, where its rows lie, and its terms."""
    some = [(problem.alone(*lengths), place, {**terms, "sequence": number})
            for number, (lengths, place) in enumerate(zip(problem.sequence_lengths(), _places(problem))) if min(lengths) > 0]
    by_length = sorted(range(len(some)), key=lambda i: some[i][0].attended_pairs())
    return [some[i] for i in sorted({0, len(some) - 1, by_length[0], by_length[-1]})]


def _worst(found):
    return {"within": all(one["within"] for one in found),
            **{name: max(one[name] for one in found) for name in found[0] if name != "within"}}


class PackedReference:
    """Reference of packed sequences. Tensors are as those of one batch entry."""

    def __init__(self, torch, problem, q, k, v, seed, terms):
        self._some = [(queries, Reference(torch, alone, q[:, :, queries], k[:, :, keys], v[:, :, keys], seed, of_sequence))
                      for alone, (queries, keys), of_sequence in _looked_at(problem, terms)]

    def errors(self, out, lse, data):
        return _worst([one.errors(out[:, :, queries], None if lse is None else lse[:, :, queries], data) for queries, one in self._some])


class PackedGradientReference:
    """GradientReference of packed sequences."""

    def __init__(self, torch, problem, q, k, v, grad_out, terms):
        self._some = [(place, GradientReference(torch, alone, q[:, :, place[0]], k[:, :, place[1]], v[:, :, place[1]], grad_out[:, :, place[0]],
                                                of_sequence)) for alone, place, of_sequence in _looked_at(problem, terms)]

    def errors(self, grads, data):
        return _worst([one.errors([grad[:, :, rows] for grad, rows in zip(grads, (queries, keys, keys))], data) for (queries, keys), one in self._some])
