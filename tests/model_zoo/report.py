"""The zoo's records as a page of Markdown."""

from __future__ import annotations

from collections import Counter, defaultdict
from pathlib import Path

import torch
import transformers

from .verdict import MODE_NAMES, Verdict, runs


def write_report(records: dict[str, dict], path: Path) -> None:
    """Writes the page: counts, the table, what was left out."""
    verdicts = [Verdict(records[name]) for name in sorted(records)]
    run = [verdict for verdict in verdicts if verdict.runs]
    parts = [_summary(verdicts, run), _exceptions(run), _table(run), _left_out(verdicts)]
    path.write_text("\n\n".join(parts) + "\n")


def _summary(verdicts: list[Verdict], run: list[Verdict]) -> str:
    consumed = sum(verdict.total("consumed_bytes") for verdict in run)
    demoted = sum(verdict.total("demoted_bytes") for verdict in run)
    counts = [
        ("model types in transformers", len(verdicts)),
        ("build and train in fp32", sum(verdict.built for verdict in verdicts)),
        ("run: they have repeated blocks, and plain training equals itself", len(run)),
        ("equal to plain training wherever they run, with nothing saved and under every random plan", sum(v.equal for v in run)),
        ("of those, without a whole-block fallback", sum(v.equal and not v.passed_through for v in run)),
        ("wrong or failing", sum(not v.equal for v in run)),
        ("with nothing saved above checkpointing's peak + 1 % + 4 KiB", sum(not v.within_bound for v in run)),
        ("with a value that is kept because it cannot be reproduced", sum(bool(v.demotions) for v in run)),
        ("wrong or failing under torch.utils.checkpoint", sum(not v.checkpoint_right for v in run)),
        ("left out", sum(not verdict.runs for verdict in verdicts)),
    ]
    lines = [
        "# Model zoo",
        "",
        f"Every model type of transformers {transformers.__version__}, a tiny configuration with random weights, trained for two"
        f" steps on CPU (torch {torch.__version__.split('+')[0]}) in fp32, in bf16, and in fp32 under bf16 autocast: plain, with"
        " nothing saved, under three random plans, and under `torch.utils.checkpoint(use_reentrant=False)` on the same blocks."
        " Equal means: losses, gradients, buffers and the generator's state after each step are plain training's to the bit.",
        "",
        "This page is written by the run itself: `python -m tests.model_zoo.run --report docs/model-zoo.md`.",
        "",
        "| types | |",
        "|--:|---|",
        *(f"| {count} | {what} |" for what, count in counts),
        "",
        f"Demoted: {demoted:,} of {consumed:,} consumed bytes ({demoted / max(consumed, 1):.3%}), types and precisions together.",
        "",
        "| precision | types that run | nothing saved equal | random plans equal | checkpoint right |",
        "|---|--:|--:|--:|--:|",
    ]
    for mode in MODE_NAMES:
        of_mode = [v.modes[mode] for v in run if runs(v.modes.get(mode, {}))]
        plans = [plan for record in of_mode for plan in record.get("plans", [])]
        lines.append(
            f"| {mode} | {len(of_mode)} | {sum(r.get('nothing_saved') == 'equal' for r in of_mode)}"
            f" | {plans.count('equal')} of {len(plans)} | {sum(r.get('checkpoint') == 'equal' for r in of_mode)} |"
        )
    return "\n".join(lines)


def _exceptions(run: list[Verdict]) -> str:
    return "\n\n".join(
        [
            _list("## Wrong or failing", [(v.type, v.problems()) for v in run if not v.equal]),
            _list("## Above checkpointing's peak", [(v.type, v.peaks_above()) for v in run if not v.within_bound]),
            _list("## Kept because they cannot be reproduced", [(v.type, v.demoted_ops()) for v in run if v.demotions]),
            _list("## Whole-block fallbacks", [(v.type, v.fallbacks()) for v in run if v.passed_through]),
            _list(
                "## What torch.utils.checkpoint got wrong",
                [(v.type, v.checkpoint_problems()) for v in run if not v.checkpoint_right],
            ),
            _list("## Precisions in which plain training fails", [(v.type, v.not_run()) for v in run if v.not_run()]),
        ]
    )


def _list(title: str, items: list[tuple[str, str]]) -> str:
    return "\n".join([title, "", *(f"- `{name}`: {_escaped(text)}" for name, text in items)] if items else [title, "", "None."])


def _table(run: list[Verdict]) -> str:
    lines = [
        "## All types that run",
        "",
        "Peaks: nothing saved over checkpoint, the second step's bytes above those before it.",
        "",
        "| type | class | blocks | " + " | ".join(f"{mode} | peaks" for mode in MODE_NAMES) + " | demoted | checkpoint |",
        "|---|---|--:|" + "---|--:|" * len(MODE_NAMES) + "--:|---|",
    ]
    for v in run:
        cells = " | ".join(f"{v.word(mode)} | {v.ratio(mode)}" for mode in MODE_NAMES)
        checkpoint = "right" if v.checkpoint_right else "wrong"
        lines.append(f"| {v.type} | {v.class_name} | {v.blocks} | {cells} | {v.demoted_share()} | {checkpoint} |")
    return "\n".join(lines)


def _left_out(verdicts: list[Verdict]) -> str:
    by_reason = defaultdict(list)
    for verdict in verdicts:
        if not verdict.runs:
            by_reason[verdict.reason].append(verdict.type)
    order = Counter({reason: len(names) for reason, names in by_reason.items()})
    lines = ["## Left out", ""]
    for reason, count in order.most_common():
        lines.append(f"- {_escaped(reason)} ({count}): {', '.join(f'`{name}`' for name in by_reason[reason])}")
    return "\n".join(lines)


def _escaped(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")
