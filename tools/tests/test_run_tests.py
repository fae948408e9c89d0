from run_tests import count_cases

GTEST = """<testsuites tests="4"><testsuite name="A">
<testcase name="passes" status="run" result="completed" />
<testcase name="fails" status="run" result="completed"><failure message="1 != 2" /></testcase>
<testcase name="skips" status="run" result="skipped"><skipped message="no GPU" /></testcase>
<testcase name="DISABLED_sleeps" status="notrun" result="suppressed" />
</testsuite></testsuites>"""

BAZEL = """<testsuites><testsuite name="script" tests="1" errors="1">
<testcase name="script" status="run"><error message="exited with error code 1" /></testcase></testsuite></testsuites>"""

PYTEST = """<testsuites><testsuite tests="3" errors="1">
<testcase name="a" /><testcase name="b"><skipped type="pytest.skip" /></testcase>
<testcase name="c"><error message="fixture" /></testcase></testsuite></testsuites>"""


def count(tmp_path, text):
    (tmp_path / "test.xml").write_text(text)
    return count_cases(tmp_path / "test.xml")


def test_every_writers_cases_are_counted(tmp_path):
    assert count(tmp_path, GTEST) == (1, 1, 2)
    assert count(tmp_path, BAZEL) == (0, 1, 0)
    assert count(tmp_path, PYTEST) == (1, 1, 1)
