"""A model in training under one limit, with every plan's predictions beside the steps that it was in force for."""

import statistics

import torch

# The planner needs a few steps to measure; where no plan stays in force after so many, something is wrong.
MOST_STEPS = 200


class FidelityTraining:
    """Forward, backward and AdamW of a `fidelity_models.TrainedModel`, the only one in its process."""

    def __init__(self, model, limit):
        import tidetape

        self._model = model.build()
        self._generator = torch.Generator().manual_seed(1)
        self._draw_batch = model.draw_batch
        self._optimizer = torch.optim.AdamW(self._model.parameters(), lr=1e-4)
        self._session = tidetape.attach(self._model, memory_limit=limit, planner="none" if limit == "max" else "local")

    def train_saving_all(self, steps):
        """The largest step peak and the median step without replay. Two steps before make the optimizer's state."""
        measured = [self._step() for _ in range(steps + 2)][2:]
        return {
            "peak_bytes": max(stats["step_peak_bytes"] for stats in measured),
            "step_seconds": statistics.median(stats["step_seconds"] for stats in measured),
        }

    def train_under_plan(self, steps):
        """Trains until the last plan has been in force for `steps` steps; one entry for each plan that was for two or more.

        The step in which a plan came into force is not among its steps: what the earlier one saved still lives in it.
        """
        parts = {}
        for _ in range(MOST_STEPS):
            plan = self._session.plan
            stats = self._step()
            if plan.generation and stats["generation"] == plan.generation:
                measured = parts.setdefault(plan.generation, (plan, []))[1]
                measured.append(stats)
                if len(measured) == steps:
                    break
        else:
            raise AssertionError(f"no plan stayed in force for {steps} steps of {MOST_STEPS}; there were {len(parts)}")
        return [_summary(plan, measured) for plan, measured in parts.values() if len(measured) >= 2]

    def close(self):
        self._session.detach()

    def _step(self):
        loss = self._model(**self._draw_batch(self._generator)).loss
        loss.backward()
        self._optimizer.step()
        self._optimizer.zero_grad(set_to_none=True)
        del loss
        return self._session.stats()


def _summary(plan, measured):
    return {
        "generation": plan.generation,
        "steps": len(measured),
        "feasible": plan.feasible,
        "predicted_peak_bytes": plan.step_peak_bytes,
        "measured_peak_bytes": max(stats["step_peak_bytes"] for stats in measured),
        "predicted_replay_seconds": plan.replay_seconds,
        "measured_replay_seconds": statistics.median(stats["replay_seconds"] for stats in measured),
    }
