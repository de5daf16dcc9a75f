"""Lengths of packed sequences with a named distribution: those with which `attune tune` times them (generator/problem/sequence_lengths.h)."""

DISTRIBUTIONS = {"loguniform": "log-uniform", "equal": "equal", "one-long": "one long"}  # as a problem's text has them, and a title
_LONGEST_TO_SHORTEST, _SHARE_OF_LONG_ONE = 64.0, 0.5
_BITS = 2**64 - 1


def _mixed(number):
    """SplitMix64's output function of a multiple of the golden ratio."""
    z = (number + 1) * 0x9E3779B97F4A7C15 & _BITS
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & _BITS
    z = (z ^ z >> 27) * 0x94D049BB133111EB & _BITS
    return z ^ z >> 31


def distributed_lengths(distribution, rows, sequences):
    """Lengths whose sum is `rows`, in an order that favours nothing: the same for each call."""

    def weight(i):
        if distribution == "equal":
            return 1.0
        if distribution == "one-long":
            return _SHARE_OF_LONG_ONE if i == sequences - 1 else (1 - _SHARE_OF_LONG_ONE) / max(1, sequences - 1)
        return _LONGEST_TO_SHORTEST ** ((i + 0.5) / sequences)

    weights = [weight(i) for i in sorted(range(sequences), key=_mixed)]
    whole, lengths, total, begin = sum(weights), [], 0.0, 0
    for one in weights:
        total += one
        end = min(max(int(rows * (total / whole) + 0.5), begin), rows)
        lengths.append(end - begin)
        begin = end
    lengths[-1] += rows - begin
    return lengths
