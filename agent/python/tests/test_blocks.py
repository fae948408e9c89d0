import pytest
import torch
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper

from tidetape.blocks import compiled_reason, find_blocks


class Block(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.first = nn.Linear(width, width)
        self.second = nn.Linear(width, width)

    def forward(self, x):
        return x + self.second(self.first(x).relu())


class ExpertBlock(Block):
    def __init__(self, width=8):
        super().__init__(width)
        self.experts = nn.ModuleList(nn.Sequential(nn.Linear(width, 4 * width), nn.ReLU()) for _ in range(4))


class Model(nn.Module):
    def __init__(self, block=Block, layers=3):
        super().__init__()
        self.embed = nn.Embedding(16, 8)
        self.layers = nn.ModuleList(block() for _ in range(layers))
        self.head = nn.Linear(8, 16)

    def forward(self, x):
        x = self.embed(x)
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


class EncoderDecoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = Model()
        self.decoder = Model(layers=2)
        self.probes = nn.ModuleList(nn.Sequential(nn.Linear(1, 1)) for _ in range(2))


def names(blocks):
    return [name for name, _ in blocks]


def test_finds_the_children_of_the_repeated_list():
    model = Model()
    assert find_blocks(model) == [(f"layers.{i}", model.layers[i]) for i in range(3)]


def test_experts_inside_a_block_are_no_blocks():
    assert names(find_blocks(Model(ExpertBlock))) == ["layers.0", "layers.1", "layers.2"]


def test_encoder_and_decoder_are_both_found_and_small_lists_are_not():
    expected = ["encoder.layers.0", "encoder.layers.1", "encoder.layers.2", "decoder.layers.0", "decoder.layers.1"]
    assert names(find_blocks(EncoderDecoder())) == expected


def test_works_on_the_meta_device():
    with torch.device("meta"):
        model = Model()
    assert names(find_blocks(model)) == ["layers.0", "layers.1", "layers.2"]


def test_a_list_of_modules_is_taken_in_the_models_order():
    model = Model()
    assert names(find_blocks(model, [model.layers[2], model.layers[0]])) == ["layers.0", "layers.2"]


def test_globs_stay_within_one_part_of_the_name():
    model = Model(ExpertBlock)
    assert names(find_blocks(model, "layers.*")) == ["layers.0", "layers.1", "layers.2"]
    assert names(find_blocks(model, ["layers.[02]", "head"])) == ["layers.0", "layers.2", "head"]


def test_a_glob_without_a_match_names_what_is_near():
    with pytest.raises(ValueError, match=r"matches 'layer\.\*'; near names: .*layers\.\*"):
        find_blocks(Model(), "layer.*")


def test_foreign_modules_and_nested_blocks_are_refused():
    model = Model()
    with pytest.raises(ValueError, match="Block is no part of Model"):
        find_blocks(model, [Block()])
    with pytest.raises(ValueError, match=r"block layers\.1\.first lies inside block layers\.1"):
        find_blocks(model, ["layers.*", "layers.1.first"])
    with pytest.raises(ValueError, match="no repeated blocks in Linear"):
        find_blocks(nn.Linear(2, 2))


def test_wrappers_are_looked_through_and_not_named():
    model = Model()
    inner = model.layers[1]
    model.layers[1] = checkpoint_wrapper(inner)
    assert find_blocks(model)[1] == ("layers.1", inner)
    assert find_blocks(model, "layers.1") == [("layers.1", inner)]


def test_compiled_blocks_are_found_and_reported():
    model = Model()
    model.layers[0].compile()
    model.layers[1] = torch.compile(model.layers[1])
    blocks = find_blocks(model)
    assert names(blocks) == ["layers.0", "layers.1", "layers.2"]
    reasons = [compiled_reason(block) for _, block in blocks]
    assert reasons == ["compiled by module.compile()", "compiled by torch.compile(module)", None]


@pytest.fixture
def one_rank():
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()


def test_fsdp_units_below_the_root_are_the_blocks(one_rank):
    from torch.distributed.fsdp import fully_shard

    model = Model()
    for module in (model.embed, *model.layers[:2], model.head, model):
        fully_shard(module)
    # The third layer is no unit, the embedding and the head have nothing to replay.
    assert names(find_blocks(model)) == ["layers.0", "layers.1"]


def test_experts_sharded_apart_leave_the_block_around_them(one_rank):
    from torch.distributed.fsdp import fully_shard

    model = Model(ExpertBlock)
    for layer in model.layers:
        for expert in layer.experts:
            fully_shard(expert)
    fully_shard(model)
    assert names(find_blocks(model)) == ["layers.0", "layers.1", "layers.2"]


def test_ddp_is_looked_through(one_rank):
    model = nn.parallel.DistributedDataParallel(Model())
    assert names(find_blocks(model)) == ["layers.0", "layers.1", "layers.2"]
