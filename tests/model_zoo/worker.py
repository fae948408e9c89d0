"""A process that reads model types from standard input, one a line, and writes a JSON record of each to standard output.

Its arguments are the number of random plans and the names of the precisions."""

from __future__ import annotations

import contextlib
import gc
import io
import json
import os
import sys
import time
import warnings
from collections.abc import Iterable

import tidetape  # noqa: F401  (puts the meter in place before any tensor is there)

# ruff: isort: split
import torch
import transformers

from .blocks import NoBlocks, choose_blocks
from .classes import NoModel, model_class
from .inputs import NoRule, make_inputs
from .losses import loss_of
from .models import TooLarge, build, require_tiny, seed_all
from .verdict import MODE_NAMES
from .ways import MODES, compare


def examine(model_type: str, names: Iterable[str] = MODE_NAMES, plans: int = 3) -> dict:
    """The record of a type: left out, with the reason, or compared with plain training in the precisions `names`."""
    start = time.monotonic()
    record = {"type": model_type}
    try:
        record["class"] = model_class(model_type).__name__
        require_tiny(model_type)
        model = build(model_type, torch.float32)
        inputs = make_inputs(model, torch.float32, 0)
        seed_all(7)
        loss = loss_of(model(**inputs))
        loss.backward()
        record["parameters"] = sum(parameter.numel() for parameter in model.parameters())
        record["inputs"] = sorted(inputs)
        record["built"] = True
        blocks = choose_blocks(model)
        record["blocks"] = len(blocks)
        if all(parameter.grad is None for _, block in blocks for parameter in block.parameters()):
            raise NoBlocks("its repeated modules have no part in the gradients")
        del model, blocks, inputs, loss
    except (NoModel, NoBlocks, TooLarge) as reason:
        record["left_out"] = str(reason)
    except ImportError as error:
        record["left_out"] = _missing_library(error)
    except Exception as error:
        record["left_out"] = _trouble(error)
    if "left_out" not in record:
        record["modes"] = {mode.name: compare(model_type, mode, plans) for mode in MODES if mode.name in names}
    record["seconds"] = round(time.monotonic() - start, 2)
    return record


def _trouble(error: Exception) -> str:
    """Why the general rules do not make a model of this type that trains."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [""]
    if isinstance(error, NotImplementedError) and "forward" in lines[0]:
        return "its class has no forward"
    if isinstance(error, NoRule):
        return f"a part of other models: its forward takes {error}"
    # Validation errors say what is wrong in their last line.
    return f"the rules do not build it or its inputs: {type(error).__name__}: {lines[-1]}"[:200]


def _missing_library(error: ImportError) -> str:
    words = str(error).replace("'", " ").split()
    known = ("timm", "scipy", "natten", "torchaudio", "detectron2", "torchvision", "librosa", "tf_keras")
    return "needs the library " + next((name for name in known if name in words), str(error).strip().splitlines()[0][:80])


def main() -> None:
    plans, *names = sys.argv[1:]
    warnings.simplefilter("ignore")
    transformers.logging.set_verbosity_error()
    torch.set_num_threads(1)
    # What was imported stays; the collections before each measured step need not look at it.
    gc.freeze()
    # Models print; the records have standard output for themselves.
    records = os.fdopen(os.dup(1), "w", buffering=1)
    for line in sys.stdin:
        with contextlib.redirect_stdout(io.StringIO()):
            record = examine(line.strip(), names, int(plans))
        records.write(json.dumps(record) + "\n")


if __name__ == "__main__":
    main()
