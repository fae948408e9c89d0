"""Small models of six kinds, each with batches that change from step to step, for comparing predictions with measurements."""

import dataclasses
from collections.abc import Callable

import torch
from transformers import AutoConfig, AutoModelForImageClassification, AutoModelForSeq2SeqLM

from tests.benchmarks import shapes


@dataclasses.dataclass(frozen=True)
class TrainedModel:
    """How to build a model in training mode, and how to draw a batch (keyword arguments of its forward) from a generator."""

    name: str
    build: Callable[[], torch.nn.Module]
    draw_batch: Callable[[torch.Generator], dict]


def _language_model(name, shape):
    """A causal language model of bench_replay's, trained on random tokens."""

    def draw(generator):
        tokens = torch.randint(shape.config["vocab_size"], (shape.batch, shape.tokens), generator=generator)
        return {"input_ids": tokens, "labels": tokens}

    return TrainedModel(name, lambda: shapes.build_model(shape), draw)


def _encoder_decoder():
    torch.manual_seed(0)
    config = AutoConfig.for_model(
        "t5",
        d_model=256,
        d_kv=64,
        d_ff=768,
        num_layers=4,
        num_decoder_layers=4,
        num_heads=4,
        vocab_size=1024,
        dropout_rate=0.1,
        decoder_start_token_id=0,
        use_cache=False,
    )
    return AutoModelForSeq2SeqLM.from_config(config).train()


def _draw_pairs(generator):
    source, target = torch.randint(1, 1024, (2, 4, 96), generator=generator).unbind(0)
    return {"input_ids": source, "labels": target[:, :64].contiguous()}


def _vision():
    torch.manual_seed(0)
    config = AutoConfig.for_model(
        "vit",
        hidden_size=256,
        intermediate_size=1024,
        num_hidden_layers=6,
        num_attention_heads=4,
        image_size=64,
        patch_size=8,
        hidden_dropout_prob=0.1,
        num_labels=10,
    )
    return AutoModelForImageClassification.from_config(config).train()


def _draw_images(generator):
    return {
        "pixel_values": torch.randn(8, 3, 64, 64, generator=generator),
        "labels": torch.randint(10, (8,), generator=generator),
    }


_DENSE = dataclasses.replace(
    shapes.COMPUTE_FP32, config=shapes.COMPUTE_FP32.config | {"hidden_size": 256, "intermediate_size": 768}, batch=2
)

# Small experts and many tokens, so that blocks and not the optimizer hold the step peak.
_MANY_TOKENS = {"batch": 4, "tokens": 256}
_MOE = dataclasses.replace(shapes.MOE, config=shapes.MOE.config | {"moe_intermediate_size": 64}, **_MANY_TOKENS)
_MOE_EAGER = dataclasses.replace(shapes.MOE_EAGER, config=shapes.MOE_EAGER.config | {"moe_intermediate_size": 64}, **_MANY_TOKENS)

MODELS = {
    model.name: model
    for model in (
        _language_model("dense", _DENSE),
        _language_model("moe", _MOE),
        _language_model("moe_eager", _MOE_EAGER),
        _language_model("hybrid", shapes.HYBRID),
        TrainedModel("encoder_decoder", _encoder_decoder, _draw_pairs),
        TrainedModel("vision", _vision, _draw_images),
    )
}
