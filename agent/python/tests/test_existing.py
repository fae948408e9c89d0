import pytest
import torch
from torch import nn
from torch.distributed._composable import checkpoint as composable_checkpoint
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import (
    CheckpointImpl,
    apply_activation_checkpointing,
    checkpoint_wrapper,
)
from transformers import AutoModelForCausalLM, Qwen3Config, T5Config, T5ForConditionalGeneration

from tidetape.blocks import find_blocks
from tidetape.existing import find_checkpointing, handle_existing


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        return self.linear(x).relu()


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(Block() for _ in range(3))

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x


def forwards(model):
    """How often each block's forward runs in one training step: twice where it is checkpointed."""
    blocks = [block for _, block in find_blocks(model)]
    for block in blocks:
        block.calls = 0
    model(torch.ones(2, 4)).sum().backward()
    return [block.calls for block in blocks]


def with_wrapper(model):
    apply_activation_checkpointing(model, check_fn=lambda module: isinstance(module, Block))


def with_reentrant_wrapper(model):
    for i, layer in enumerate(model.layers):
        model.layers[i] = checkpoint_wrapper(layer, checkpoint_impl=CheckpointImpl.REENTRANT)
    # Reentrant checkpointing needs an input with a gradient.
    model.layers[0].register_forward_pre_hook(lambda module, args: (args[0].requires_grad_(),))


def with_composable(model):
    for layer in model.layers:
        composable_checkpoint(layer)


@pytest.mark.parametrize(
    ("turn_on", "kind"),
    [
        (with_wrapper, "torch's checkpoint_wrapper"),
        (with_reentrant_wrapper, "torch's checkpoint_wrapper"),
        (with_composable, "torch's composable checkpoint"),
    ],
)
def test_replace_turns_torch_checkpointing_off_and_restore_on(turn_on, kind):
    model = Model()
    assert find_checkpointing(model) == []
    turn_on(model)
    assert forwards(model) == [2, 2, 2]
    handled = handle_existing(model, find_blocks(model), "replace")
    assert [one.kind for one in handled.found] == [kind] * 3
    assert kind in handled.message
    assert forwards(model) == [1, 1, 1]
    assert handle_existing(model, find_blocks(model), "replace").found == []
    handled.restore()
    handled.restore()
    assert forwards(model) == [2, 2, 2]


def test_keep_leaves_checkpointed_blocks_unmanaged():
    model = Model()
    model.layers[1] = checkpoint_wrapper(model.layers[1])
    handled = handle_existing(model, find_blocks(model), "keep")
    assert [name for name, _ in handled.managed] == ["layers.0", "layers.2"]
    assert handled.unmanaged == {"layers.1": "torch's checkpoint_wrapper"}
    assert forwards(model) == [1, 2, 1]


def test_a_wrapper_inside_and_around_blocks_touches_them():
    model = Model()
    model.layers[0].linear = checkpoint_wrapper(model.layers[0].linear)
    assert set(handle_existing(model, find_blocks(model), "keep").unmanaged) == {"layers.0"}
    around = nn.Sequential(checkpoint_wrapper(Model()))
    assert len(handle_existing(around, find_blocks(around), "keep").unmanaged) == 3


def test_error_names_what_is_on_and_policies_are_checked():
    model = Model()
    model.layers[1] = checkpoint_wrapper(model.layers[1])
    with pytest.raises(RuntimeError, match=r"already on: torch's checkpoint_wrapper on layers\.1; turn it off"):
        handle_existing(model, find_blocks(model), "error")
    with pytest.raises(ValueError, match="'replace', 'keep', 'error'"):
        handle_existing(model, find_blocks(model), "ignore")


def test_nothing_is_said_where_nothing_is_on():
    handled = handle_existing(Model(), [], "error")
    assert (handled.found, handled.message) == ([], "")


def tiny_qwen3():
    sizes = {"vocab_size": 16, "hidden_size": 8, "intermediate_size": 8, "head_dim": 8}
    config = Qwen3Config(num_hidden_layers=4, num_attention_heads=1, num_key_value_heads=1, **sizes)
    return AutoModelForCausalLM.from_config(config).train()


def test_hugging_face_layers_that_checkpoint_themselves():
    model = tiny_qwen3()
    blocks = find_blocks(model)
    assert handle_existing(model, blocks).found == []
    model.gradient_checkpointing_enable()
    handled = handle_existing(model, blocks)
    assert [one.name for one in handled.found] == [f"model.layers.{i}" for i in range(4)]
    assert not any(block.gradient_checkpointing for _, block in blocks)
    # The model's own flag stays: it is what keeps the key-value cache off.
    assert model.model.gradient_checkpointing
    handled.restore()
    assert all(block.gradient_checkpointing for _, block in blocks)


def test_hugging_face_every_other_layer():
    model = tiny_qwen3()
    model._set_gradient_checkpointing(enable=True, every_n_layers=2)
    handled = handle_existing(model, find_blocks(model), "keep")
    assert sorted(handled.unmanaged) == ["model.layers.0", "model.layers.2"]


def test_hugging_face_encoder_decoder():
    config = T5Config(vocab_size=16, d_model=8, d_kv=8, d_ff=8, num_layers=2, num_heads=1, decoder_start_token_id=0)
    model = T5ForConditionalGeneration(config).train()
    model.gradient_checkpointing_enable()
    blocks = find_blocks(model)
    assert len(blocks) == 4
    assert len(handle_existing(model, blocks, "keep").unmanaged) == 4
