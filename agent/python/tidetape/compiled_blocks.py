"""Options of blocks that torch.compile has: the same block compiled under several activation memory budgets.

The one file that reaches into torch._dynamo and torch._functorch. A budget is read while the backend compiles. Each one has a
backend object of its own here, and a region of its own among what Dynamo has compiled, so that no budget runs what was compiled for
another. Equal blocks share both, as they share what their own calls compile.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn

from .blocks import compiled_forward

BUDGETS = (0.0, 0.5, 1.0)
"""From the leanest on: shares of the activation memory that torch's partitioner would take for speed."""


@dataclass(frozen=True)
class _BudgetBackend:
    """A block's own backend under one budget."""

    backend: Callable
    budget: float

    def __call__(self, graph, inputs, **kwargs):
        from torch._functorch import config

        with config.patch(activation_memory_budget=self.budget), _no_budget_for_random_graphs():
            return self.backend(graph, inputs, **kwargs)


class BudgetOptions:
    """Makes the options of a model's compiled blocks."""

    def __init__(self):
        # Dynamo bounds what it compiles of one function in one region; so each class of blocks has its own.
        self._regions: dict[tuple[type, float], int] = {}

    def of_block(self, module: nn.Module) -> dict[str, Callable | None]:
        """By label, the ways to run the block. The budget that is set in torch runs what is compiled already.

        Raises RuntimeError where this torch does not tell how the block was compiled.
        """
        from torch._functorch import config

        compiled = compiled_forward(module)
        try:
            context = _context_of(compiled)
            backend = torch._dynamo.eval_frame.innermost_backend(context.callback)
            settings = {"fullgraph": context.fullgraph, "dynamic": context._dynamic}
            target = compiled._torchdynamo_orig_callable
            own_budget = config.activation_memory_budget
        except (AttributeError, KeyError, TypeError) as error:
            raise RuntimeError(f"torch {torch.__version__} does not tell how it was compiled") from error
        options = {}
        for budget in BUDGETS:
            option = None
            if budget != own_budget:
                inner = module._modules.get("_orig_mod", module)
                option = self._compile((type(inner), budget), target, _BudgetBackend(backend, budget), settings)
            options[f"activation_memory_budget={budget:g}"] = option
        return options

    def _compile(self, region: tuple[type, float], target: Callable, backend: _BudgetBackend, settings: dict) -> Callable:
        compiled = torch.compile(target, backend=backend, isolate_recompiles=True, **settings)
        context = _context_of(compiled)
        context._isolate_recompiles_id = self._regions.setdefault(region, context._isolate_recompiles_id)

        def run(_forward, *args, **kwargs):
            return compiled(*args, **kwargs)

        return run


@contextlib.contextmanager
def _no_budget_for_random_graphs():
    """Under a budget, torch's partitioner may draw random numbers once more in backward, and get others: gradients would be wrong
    without a word. A graph that draws any is divided as without a budget."""
    from torch._functorch import partitioners

    choose = partitioners.choose_saved_values_set

    def choose_safely(graph, node_info, memory_budget=1):
        return choose(graph, node_info, 1 if any(map(_draws, graph.nodes)) else memory_budget)

    partitioners.choose_saved_values_set = choose_safely
    try:
        yield
    finally:
        partitioners.choose_saved_values_set = choose


def _draws(node: torch.fx.Node) -> bool:
    """Whether an op of a graph draws random numbers. Attention is tagged as one that does, but without dropout it does not."""
    op = node.target
    if not isinstance(op, torch._ops.OpOverload) or torch.Tag.nondeterministic_seeded not in op.tags:
        return False
    names = [argument.name for argument in op._schema.arguments]
    given = dict(zip(names, node.args, strict=False)) | node.kwargs
    return "dropout_p" not in names or given.get("dropout_p", 0.0) != 0.0


def _context_of(compiled: Callable):
    """What torch.compile has noted beside a function that it returned."""
    return inspect.getclosurevars(compiled).nonlocals["self"]
