"""FSDP2's features on 2, 3 and 4 ranks: numbers as with stock collectives, parameters equal to the bit, reasons as documented."""

import sys

import pytest

from tests.collectives.feature_runs import run_features
from tests.collectives.features import FEATURES
from tests.conftest import ROOT

sys.path.insert(0, str(ROOT / "agent" / "python" / "tests"))
from ranks import run_ranks

CASES = [(ranks, name) for ranks in (2, 3, 4) for name, feature in FEATURES.items() if ranks in feature.ranks]


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory):
    """By number of ranks and feature, each rank's outcome; one start of the ranks serves all features."""
    found = {}

    def of(ranks, name):
        if ranks not in found:
            names = [other for count, other in CASES if count == ranks]
            results = run_ranks(run_features, ranks, tmp_path_factory.mktemp("ranks"), names, timeout_seconds=600)
            found[ranks] = {other: [result.get(other) for result in results] for other in names}
        return found[ranks][name]

    return of


@pytest.mark.parametrize(("ranks", "name"), CASES)
def test_feature(outcomes, ranks, name):
    feature = FEATURES[name]
    for rank, outcome in enumerate(outcomes(ranks, name)):
        assert outcome is not None, f"rank {rank} did not come here: an earlier feature failed"
        assert outcome.error == "", f"rank {rank}: {outcome.error}"
        assert outcome.missing == []
        assert outcome.worst <= feature.tolerance, f"rank {rank}: off by {outcome.worst} at number {outcome.where}"
        assert outcome.wrong_parameters == []
        assert outcome.reasons.keys() == feature.stock.keys()
        for unit, part in feature.stock.items():
            assert part in outcome.reasons[unit]
