"""The ways of training one model that a benchmark compares: each has its own modules over the same parameters and gradients."""

import copy
import gc
import time

import torch
from torch import nn


class Variant:
    """One way of running forward and backward.

    `prepare(model)` changes the copy of the model that it is given, and may return a session of Tidetape's.
    """

    def __init__(self, name, model, batch, prepare=None):
        self.name = name
        self.model = _copy_sharing_parameters(model)
        self.batch = batch
        self.session = prepare(self.model) if prepare else None

    def zero_gradients(self):
        """Outside of what is timed. Kept allocated, so that every variant adds into the same memory."""
        for parameter in self.model.parameters():
            parameter.grad.zero_()

    def run(self):
        """One forward and backward; returns the loss."""
        if self.session is None:
            return self._forward_backward()
        with self.session.step():
            return self._forward_backward()

    def seconds(self):
        """CPU seconds of one forward and backward on the training thread."""
        self.zero_gradients()
        start = time.thread_time()
        self.run()
        return time.thread_time() - start

    def forward_seconds(self):
        """CPU seconds of the forward alone, with a backward after it, as in training."""
        self.zero_gradients()
        if self.session is None:
            return self._timed_forward()
        with self.session.step():
            return self._timed_forward()

    def result(self):
        """(loss, gradients by parameter name) of one step from zero gradients."""
        self.zero_gradients()
        loss = self.run()
        return loss, {name: parameter.grad.clone() for name, parameter in self.model.named_parameters()}

    def close(self):
        if self.session is not None:
            self.session.detach()

    def _forward_backward(self):
        loss = self.model(**self.batch).loss
        loss.backward()
        return loss.detach()

    def _timed_forward(self):
        start = time.thread_time()
        loss = self.model(**self.batch).loss
        seconds = time.thread_time() - start
        loss.backward()
        return seconds


def blocks_of(model):
    """The repeated layers: the children of the longest ModuleList."""
    return list(max((module for module in model.modules() if isinstance(module, nn.ModuleList)), key=len))


def require_equal(variant, loss, gradients):
    """Raises unless one step of `variant` gives this loss and these gradients to the bit."""
    own_loss, own_gradients = variant.result()
    if not torch.equal(own_loss, loss):
        raise AssertionError(f"{variant.name}: loss {own_loss.item()!r} is not plain training's {loss.item()!r}")
    different = [name for name, gradient in gradients.items() if not torch.equal(own_gradients[name], gradient)]
    if different:
        raise AssertionError(
            f"{variant.name}: {len(different)} of {len(gradients)} gradients differ from plain's, first {different[0]}"
        )


def step_peak(variant, meter):
    """(peak of one step, live bytes before it): everything that is alive in the process."""
    variant.zero_gradients()
    gc.collect()
    before = meter.meter_live_bytes()
    meter.meter_reset_peak()
    variant.run()
    return meter.meter_peak_bytes(), before


def _copy_sharing_parameters(model):
    shared = {id(parameter): parameter for parameter in model.parameters()}
    return copy.deepcopy(model, memo=shared)
