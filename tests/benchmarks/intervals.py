"""Medians with distribution-free confidence intervals."""

import dataclasses
import math
import statistics


@dataclasses.dataclass(frozen=True)
class Estimate:
    """A median and the interval that covers the true one with at least the confidence asked for."""

    median: float
    low: float
    high: float
    count: int

    def as_json(self):
        return {"median": self.median, "low": self.low, "high": self.high, "pairs": self.count}

    def __str__(self):
        return f"{self.median:.3f} [{self.low:.3f}, {self.high:.3f}]"


def median_interval(samples, confidence=0.90):
    """The median of `samples` and its interval between order statistics.

    The number of samples below the true median is binomial(n, 1/2): the interval leaves out as many samples at either end as keeps
    the chance of missing it at most 1 - confidence. With fewer than five samples it is all of them.
    """
    ordered = sorted(samples)
    count = len(ordered)
    if not count:
        raise ValueError("no samples")
    tail, left_out = 0.0, 0
    while left_out < count // 2:
        tail += math.comb(count, left_out) * 0.5**count
        if tail > (1 - confidence) / 2:
            break
        left_out += 1
    low = max(left_out - 1, 0)
    return Estimate(statistics.median(ordered), ordered[low], ordered[count - 1 - low], count)


def ratio(numerators, denominators):
    """The median of the pairwise ratios: pair i was measured within one round."""
    return median_interval([a / b for a, b in zip(numerators, denominators, strict=True)])


def difference(minuends, subtrahends, divisor=1.0):
    """The median of the pairwise differences, each divided by `divisor`."""
    return median_interval([(a - b) / divisor for a, b in zip(minuends, subtrahends, strict=True)])


def excess_ratio(numerators, denominators, base):
    """The median of how far the numerators lie above `base`, over how far the denominators do; pairs as in ratio()."""
    return median_interval([(a - c) / (b - c) for a, b, c in zip(numerators, denominators, base, strict=True)])
