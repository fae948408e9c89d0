"""What the record of a type says."""

from __future__ import annotations

import functools

from .bounds import within_bound

MODE_NAMES = ("fp32", "bf16", "autocast")


def runs(record: dict) -> bool:
    """Whether there is a plain training in this precision to compare with."""
    return record.get("plain") == "equal"


class Verdict:
    """Reads one record."""

    def __init__(self, record: dict):
        self.type: str = record["type"]
        self.class_name: str = record.get("class", "")
        self.blocks: int = record.get("blocks", 0)
        self.built: bool = record.get("built", False)
        self.modes: dict[str, dict] = record.get("modes", {})
        self.crashed: str = record.get("crashed", "")
        fp32 = self.modes.get("fp32", {})
        self.runs = bool(self.crashed) or runs(fp32)
        self.reason = record.get("left_out") or _reason(fp32)

    @functools.cached_property
    def compared(self) -> dict[str, dict]:
        return {name: record for name, record in self.modes.items() if runs(record)}

    @property
    def equal(self) -> bool:
        return not self.crashed and not self.problems()

    @property
    def within_bound(self) -> bool:
        return all(map(within_bound, self.compared.values()))

    @property
    def checkpoint_right(self) -> bool:
        return all(record["checkpoint"] == "equal" for record in self.compared.values())

    @functools.cached_property
    def demotions(self) -> dict[str, int]:
        merged: dict[str, int] = {}
        for record in self.compared.values():
            for label, count in record.get("demotions", {}).items():
                merged[label] = max(merged.get(label, 0), count)
        return merged

    @functools.cached_property
    def passed_through(self) -> dict[str, int]:
        merged: dict[str, int] = {}
        for record in self.compared.values():
            for reason, count in record.get("passed_through", {}).items():
                merged[reason] = merged.get(reason, 0) + count
        return merged

    def total(self, name: str) -> int:
        return sum(record.get(name, 0) for record in self.compared.values())

    # --- as text -------------------------------------------------------------------------------------------------------------

    def problems(self) -> str:
        found = [self.crashed] if self.crashed else []
        for mode, record in self.compared.items():
            ways = [("nothing saved", record.get("nothing_saved"))]
            ways += [(f"plan {number}", plan) for number, plan in enumerate(record.get("plans", []))]
            if not record.get("plans"):
                found.append(f"{mode}: the agent names no sites, so that no random plan ran")
            found += [f"{mode}, {way}: {word}" for way, word in ways if word != "equal"]
        return "; ".join(found)

    def checkpoint_problems(self) -> str:
        words = {mode: record["checkpoint"] for mode, record in self.compared.items() if record["checkpoint"] != "equal"}
        first = next(iter(words.values()), "")
        return f"{', '.join(words)}: {first}"

    def peaks_above(self) -> str:
        return "; ".join(
            f"{mode}: {record['peak']:,} against {record['checkpoint_peak']:,} bytes"
            for mode, record in self.compared.items()
            if not within_bound(record)
        )

    def demoted_ops(self) -> str:
        ops: dict[str, int] = {}
        for label, count in self.demotions.items():
            op = label.rsplit(": ", 1)[-1]
            ops[op] = ops.get(op, 0) + count
        return ", ".join(f"{op} ({count:,} bytes)" for op, count in sorted(ops.items(), key=lambda item: -item[1]))

    def fallbacks(self) -> str:
        return ", ".join(f"{reason} ({count})" for reason, count in self.passed_through.items())

    def not_run(self) -> str:
        return "; ".join(f"{mode}: {record['plain']}" for mode, record in self.modes.items() if not runs(record))

    def word(self, mode: str) -> str:
        record = self.modes.get(mode, {})
        if not runs(record):
            return "-"
        words = [record.get("nothing_saved"), *record.get("plans", [])]
        return "equal" if all(word == "equal" for word in words) else "WRONG"

    def ratio(self, mode: str) -> str:
        record = self.modes.get(mode, {})
        ours, theirs = record.get("peak"), record.get("checkpoint_peak")
        return f"{ours / theirs:.3f}" if ours and theirs else "-"

    def demoted_share(self) -> str:
        consumed = self.total("consumed_bytes")
        return f"{self.total('demoted_bytes') / consumed:.1%}" if consumed else "-"


def _reason(fp32: dict) -> str:
    word = fp32.get("plain", "")
    if word.startswith(("step", "loss", "gradient", "buffer")):
        return "plain training differs from itself"
    return f"plain training fails in its second step: {word}" if word and word != "equal" else ""
