"""Runs all tests, C++ under Bazel and Python under pytest, and ends with one line that sums up their cases."""

import argparse
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "build" / "test-results"
BAZEL_NO_TESTS = 4
PYTEST_NO_TESTS = 5


def count_cases(path: Path) -> tuple[int, int, int]:
    """(passed, failed, skipped) test cases of a JUnit-style XML file, as gtest, Bazel and pytest write it."""
    passed = failed = skipped = 0
    for case in ElementTree.parse(path).iter("testcase"):
        if case.find("failure") is not None or case.find("error") is not None:
            failed += 1
        elif case.find("skipped") is not None or case.get("status") == "notrun" or case.get("result") in ("skipped", "suppressed"):
            skipped += 1
        else:
            passed += 1
    return passed, failed, skipped


LONG = "attr(tags, '\\blong\\b', tests(//...))"
MANUAL = "attr(tags, '\\bmanual\\b', tests(//...))"
# What the long tests run under sanitizers as well, by .bazelrc's name of each.
SANITIZED = {"asan": "attr(tags, '\\bsanitized\\b', tests(//...))", "tsan": f"tests(//server/...) except {LONG} except {MANUAL}"}


def bazel_results(expression: str, *config: str) -> list[Path]:
    """Where Bazel leaves the results of the tests that the query names. A test that did not run has none."""
    command = ["bazel", "info", *config, "bazel-testlogs"]
    logs = Path(subprocess.check_output(command, cwd=ROOT, text=True, stderr=subprocess.DEVNULL).strip())
    labels = subprocess.check_output(["bazel", "query", expression], cwd=ROOT, text=True, stderr=subprocess.DEVNULL).split()
    return [logs / label.removeprefix("//").replace(":", "/", 1) / "test.xml" for label in labels]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--long", action="store_true", help="run the tests that are marked long, and only those")
    options = parser.parse_args()

    RESULTS.mkdir(parents=True, exist_ok=True)
    pytest_results = RESULTS / "pytest.xml"
    pytest_results.unlink(missing_ok=True)
    # The pattern //... leaves out what is tagged manual.
    expression = f"({LONG if options.long else f'tests(//...) except {LONG}'}) except {MANUAL}"
    results = bazel_results(expression)
    for path in results:
        path.unlink(missing_ok=True)

    filters = "--test_tag_filters=" + ("long" if options.long else "-long")
    bazel = subprocess.run(["bazel", "test", "--keep_going", "--nocache_test_results", filters, "//..."], cwd=ROOT).returncode
    for sanitizer, tests in SANITIZED.items() if options.long else ():
        config = f"--config={sanitizer}"
        sanitized = bazel_results(tests, config)
        for path in sanitized:
            path.unlink(missing_ok=True)
        labels = subprocess.check_output(["bazel", "query", tests], cwd=ROOT, text=True, stderr=subprocess.DEVNULL).split()
        command = ["bazel", "test", "--keep_going", config, "--nocache_test_results", *labels]
        bazel = subprocess.run(command, cwd=ROOT).returncode or bazel
        results += sanitized
    marks = "long" if options.long else "not long"
    pytest = subprocess.run([sys.executable, "-m", "pytest", "-m", marks, f"--junitxml={pytest_results}"], cwd=ROOT).returncode

    passed = failed = skipped = 0
    for path in [*results, pytest_results]:
        if not path.exists():
            print(f"no results: {path.parent.name} did not run", file=sys.stderr)
            failed += 1
            continue
        counts = count_cases(path)
        passed, failed, skipped = passed + counts[0], failed + counts[1], skipped + counts[2]
    good = bazel in (0, BAZEL_NO_TESTS) and pytest in (0, PYTEST_NO_TESTS) and failed == 0
    if not good and failed == 0:
        # The programs failed beside their cases, as in a test that crashes while it exits.
        failed = 1
    sys.stderr.flush()
    print(f"{passed} passed, {failed} failed, {skipped} skipped", flush=True)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
