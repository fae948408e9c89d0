"""About 25 types of the zoo, one precision each: nothing saved and random plans equal plain training to the bit."""

import gc
import itertools

import pytest

from tests.model_zoo.verdict import Verdict
from tests.model_zoo.worker import examine

_SAMPLE = {
    "dense language models": ("llama", "qwen3", "gemma3_text", "gpt2", "bert"),
    "mixtures of experts": ("mixtral", "qwen3_moe", "deepseek_v3"),
    "state spaces, linear attention and hybrids": ("mamba", "rwkv", "falcon_h1", "qwen3_next"),
    "encoder and decoder": ("t5", "bart"),
    "pictures": ("vit", "swin", "convnext", "resnet", "mobilenet_v2"),
    "detection": ("detr",),
    "sound": ("wav2vec2", "whisper"),
    "several modalities": ("clip", "llava", "qwen2_5_vl"),
    "time series": ("time_series_transformer",),
}
_PRECISIONS = itertools.cycle(("fp32", "bf16", "autocast"))
_CASES = [(name, next(_PRECISIONS)) for names in _SAMPLE.values() for name in names]


@pytest.fixture(scope="module", autouse=True)
def quick_collections():
    """Objects that were there before are left out of the collections before each measured step."""
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.mark.parametrize(("model_type", "precision"), _CASES, ids=lambda value: value)
def test_equal_to_plain_training_within_checkpointing_memory(model_type, precision):
    verdict = Verdict(examine(model_type, [precision], plans=2))
    record = verdict.modes[precision]
    assert record["plain"] == "equal"
    assert record["recorded_ops"] > 0
    assert len(record["plans"]) == 2
    assert verdict.problems() == ""
    assert verdict.passed_through == {}
    assert verdict.within_bound or verdict.demotions, verdict.peaks_above()
