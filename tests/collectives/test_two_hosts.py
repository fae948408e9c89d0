"""Two hosts of two ranks each: shared memory within, TCP between."""

import sys

import pytest

from tests.collectives.feature_runs import run_features
from tests.collectives.features import FEATURES
from tests.collectives.test_exactness import wrong_gradients
from tests.collectives.two_hosts import TwoHosts
from tests.conftest import ROOT

sys.path.insert(0, str(ROOT / "agent" / "python" / "tests"))
from ranks import run_ranks

NAMES = (
    "float32",
    "mixed precision",
    "copies (HSDP)",
    "expert mesh",
    "gradients without sync",
    "unused on some ranks",
    "uneven shards",
)

# Four ranks between two namespaces: minutes on a machine that does other things. Names are no part of it: torch's look-ups fail at
# once where there is no route to a name server, with a warning.
pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def hosts():
    try:
        with TwoHosts() as two:
            yield two
    except OSError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def outcomes(hosts, tmp_path_factory):
    return run_ranks(
        run_features,
        4,
        tmp_path_factory.mktemp("ranks"),
        NAMES,
        timeout_seconds=1200,
        meeting=hosts.meeting,
        before=hosts.enter(per_host=2),
    )


@pytest.mark.parametrize("name", NAMES)
def test_feature(outcomes, name):
    for rank, found in enumerate(outcomes):
        outcome = found.get(name)
        assert outcome is not None, f"rank {rank} did not come here: an earlier feature failed"
        assert outcome.error == "", f"rank {rank}: {outcome.error}"
        assert outcome.missing == []
        assert outcome.worst <= FEATURES[name].tolerance
        assert outcome.wrong_parameters == []
        assert outcome.reasons == {}


def test_gradients_equal_the_sum_in_order(hosts, tmp_path):
    results = run_ranks(
        wrong_gradients,
        4,
        tmp_path,
        "bfloat16",
        2,
        timeout_seconds=900,
        meeting=hosts.meeting,
        before=hosts.enter(per_host=2),
    )
    for rank, (wrong, units, _) in enumerate(results):
        assert wrong == [], f"rank {rank}"
        assert units == 4
