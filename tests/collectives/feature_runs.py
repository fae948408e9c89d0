"""What one rank does for tests/collectives/test_features.py: every feature of the table, over stock FSDP2 and over Tidetape."""

import logging
import traceback
from dataclasses import dataclass, field

import torch
import torch.distributed as dist

from tests.collectives.features import FEATURES
from tests.collectives.training import local, quiet

WAIT_SECONDS = 40.0


@dataclass
class Outcome:
    """Of one feature on one rank. `error`: a traceback; the rest is then empty."""

    error: str = ""
    worst: float = 0.0
    """Largest difference to stock, over the largest number of its array."""
    where: int = -1
    missing: list[int] = field(default_factory=list)
    """Numbers that one run has and the other has not."""
    wrong_parameters: list[str] = field(default_factory=list)
    """Gathered parameters that differ from all ranks' shards put together, in any bit."""
    reasons: dict[str, str] = field(default_factory=dict)
    units: list[str] = field(default_factory=list)


class CountedGathers:
    """Counts all-gathers of FSDP2, whoever does them."""

    def __init__(self):
        from torch.distributed.fsdp._fully_shard._fsdp_param_group import FSDPParamGroup

        self.count = 0
        self._group, self._wait = FSDPParamGroup, FSDPParamGroup.wait_for_unshard

        def counted(group):
            self.count += group._all_gather_result is not None
            self._wait(group)

        FSDPParamGroup.wait_for_unshard = counted

    def stop(self):
        self._group.wait_for_unshard = self._wait
        return self.count


def _run(feature, mode, rank):
    """The numbers of a training, how many gathers it took, and the session's collectives and model."""
    import tidetape

    torch.manual_seed(7)
    model = feature.model()
    feature.shard(model)
    if mode == "stock" and feature.stock_alone is not None:
        feature.stock_alone(model)
    options = tidetape.CollectiveOptions(mode, wait_seconds=WAIT_SECONDS, join_seconds=WAIT_SECONDS, **feature.options)
    limit = feature.memory_limit if mode == "tide" else "max"
    session = tidetape.attach(model, blocks="blocks.*", memory_limit=limit, planner="none", collectives=options)
    gathers = CountedGathers()
    try:
        numbers = feature.train(model, rank)
    finally:
        count = gathers.stop()
    return numbers, count, session, model


def _wrong_parameters(model):
    """Gathers each unit and compares with its shards, collected by torch's own means."""
    from torch.distributed.fsdp import FSDPModule

    wrong = []
    for name, module in model.named_modules():
        if not isinstance(module, FSDPModule):
            continue
        state = module._get_fsdp_state()
        params = [param for group in state._fsdp_param_groups for param in group.fsdp_params]
        module.reshard()
        whole = [param.sharded_param.full_tensor().to(param.param_dtype or param.orig_dtype) for param in params]
        module.unshard()
        for param, expected in zip(params, whole, strict=True):
            gathered = local(param.unsharded_param).detach()
            same = torch.equal(gathered.contiguous().view(torch.uint8), expected.contiguous().view(torch.uint8))
            if not same:
                wrong.append(f"{name}.{param._module_info.param_name}")
        module.reshard()
    return wrong


def _compare(outcome, stock, tide, zeros_for_none):
    if len(stock) != len(tide):
        outcome.missing.append(-1)
    for index, (one, other) in enumerate(zip(stock, tide, strict=False)):
        if zeros_for_none and other is None and not one.any():
            continue
        if (one is None) != (other is None):
            outcome.missing.append(index)
        elif one is not None and one.size:
            scale = max(abs(one).max(), 1e-6)
            difference = float(abs(one - other).max() / scale)
            if not difference <= outcome.worst:
                outcome.worst, outcome.where = difference, index


def _outcome(feature, rank):
    outcome = Outcome()
    stock, stock_gathers, session, _ = _run(feature, "stock", rank)
    session.detach()
    dist.barrier()
    tide, tide_gathers, session, model = _run(feature, "tide", rank)
    outcome.reasons = dict(session.collectives.reasons)
    outcome.units = session.collectives.units
    if stock_gathers != tide_gathers:
        outcome.error = f"{tide_gathers} gathers, {stock_gathers} without Tidetape"
    _compare(outcome, stock, tide, zeros_for_none=feature.stock_alone is not None)
    outcome.wrong_parameters = _wrong_parameters(model)
    session.detach()
    dist.barrier()
    return outcome


def run_features(rank, names):
    """By name; ends with the first feature that raises, since the ranks are apart then."""
    torch.set_num_threads(1)
    logging.getLogger("tidetape").setLevel(logging.ERROR)
    outcomes = {}
    for name in names:
        try:
            with quiet():
                outcomes[name] = _outcome(FEATURES[name], rank)
        except Exception:
            outcomes[name] = Outcome(error=traceback.format_exc())
            break
    return outcomes
