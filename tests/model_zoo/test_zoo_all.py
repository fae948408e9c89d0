"""All types of the zoo in every precision. Writes docs/model-zoo.md."""

import hashlib
import os

import pytest

from tests.model_zoo.models import model_types
from tests.model_zoo.report import write_report
from tests.model_zoo.run import ROOT, run_all
from tests.model_zoo.verdict import Verdict

# With this few types the rules for tiny configurations, not the agent, would have gone wrong.
_LEAST_TYPES = 450
_LEAST_EQUAL_SHARE = 0.99
_MOST_DEMOTED_SHARE = 0.01


@pytest.fixture(scope="module")
def verdicts():
    """Of all types that run. A run that was stopped goes on where it was, with the same agent."""
    records = run_all(ROOT / "build" / f"model-zoo-{_agent()}.jsonl", os.cpu_count())
    assert sorted(records) == model_types()
    write_report(records, ROOT / "docs" / "model-zoo.md")
    return [verdict for verdict in map(Verdict, records.values()) if verdict.runs]


def _agent() -> str:
    """Short hash of the agent and of the zoo."""
    files = [ROOT / "bazel-bin/agent/session/_C.so", *(ROOT / "agent/python/tidetape").glob("*.py")]
    files += (ROOT / "tests/model_zoo").glob("*.py")
    return hashlib.sha256(b"".join(path.read_bytes() for path in sorted(files))).hexdigest()[:12]


pytestmark = pytest.mark.long


def test_enough_types_run(verdicts):
    assert len(verdicts) >= _LEAST_TYPES


def test_no_wrong_gradient_or_buffer(verdicts):
    assert {verdict.type: verdict.problems() for verdict in verdicts if not verdict.equal} == {}


def test_hardly_a_type_needs_a_whole_block_fallback(verdicts):
    equal = [verdict for verdict in verdicts if verdict.equal and not verdict.passed_through]
    assert len(equal) >= _LEAST_EQUAL_SHARE * len(verdicts)


def test_hardly_a_byte_is_demoted(verdicts):
    consumed = sum(verdict.total("consumed_bytes") for verdict in verdicts)
    demoted = sum(verdict.total("demoted_bytes") for verdict in verdicts)
    assert consumed > 0
    assert demoted <= _MOST_DEMOTED_SHARE * consumed


def test_every_demotion_is_named(verdicts):
    assert [v.type for v in verdicts if v.total("demoted_bytes") and not v.demotions] == []


def test_only_values_that_must_be_kept_cost_more_than_checkpointing(verdicts):
    assert {v.type: v.peaks_above() for v in verdicts if not v.within_bound and not v.demotions} == {}
