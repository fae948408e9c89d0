"""Prints what a benchmark measured: tables for people, one JSON object on the last line for programs."""

import json


def print_table(title, header, rows):
    """A text table with its first column left-aligned."""
    cells = [[str(cell) for cell in row] for row in [header, *rows]]
    widths = [max(len(row[column]) for row in cells) for column in range(len(header))]
    print(f"\n{title}")
    for number, row in enumerate(cells):
        print(
            "  " + row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)), sep="  "
        )
        if number == 0:
            print("  " + "  ".join("-" * width for width in widths))


def print_json(result):
    """One line, the last that a benchmark prints. Floats are cut to six significant digits."""
    print(json.dumps(_rounded(result)), flush=True)


def mebibytes(size):
    return f"{size / 2**20:.1f}"


def _rounded(value):
    if isinstance(value, float):
        return float(f"{value:.6g}")
    if isinstance(value, dict):
        return {key: _rounded(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_rounded(item) for item in value]
    return value
