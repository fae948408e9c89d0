"""What the general rules do not get right, by model type."""

from __future__ import annotations

import torch


def _names(text: str) -> set[str]:
    return set(text.split())


_WIDE = _names("""
    hgnet_v2 uvdoc textnet bit lilt clvp_encoder pp_ocrv5_server_rec pp_ocrv6_small_rec pp_ocrv6_tiny_rec
    pp_ocrv6_small_det pp_ocrv5_server_det pp_ocrv6_medium_det pp_lcnet pp_lcnet_v3 pp_lcnet_v4 bridgetower_vision_model
    univnet cvt rt_detr rt_detr_v2 deimv2 d_fine pp_doclayout_v2 pp_doclayout_v3 pp_doclayout_v4 rt_detr_resnet
    sam2_mask_decoder sam2_prompt_encoder
""")
"""Types whose widths hang together in ways that their config does not say: only layers, tokens and pictures are made small."""

_SWIN = {"image_size": 128, "patch_size": 4, "embed_dim": 16, "depths": [1, 1, 2, 1], "num_heads": [2, 2, 4, 4], "window_size": 4}
_HEAD = {"head_dim": 8}
_IMAGE_TOKEN = {"image_token_id": 112}
_FOUR_OUTPUTS = {"num_hidden_layers": 4, "out_indices": [1, 2, 3, 4]}
_SERIES = {"prediction_length": 4, "context_length": 8, "lags_sequence": [1, 2], "num_time_features": 1}
_WINDOWS = {"window_size": 32, "fullatt_block_indexes": [1]}

CONFIGS = {
    **{name: {"wide": True} for name in _WIDE},
    **dict.fromkeys(("swin", "swinv2", "donut-swin", "maskformer-swin"), _SWIN),
    **dict.fromkeys(("hunyuan_v1_dense", "hunyuan_v1_moe", "hunyuan_vl_text", "ministral", "nemotron"), _HEAD),
    **dict.fromkeys(("blip-2", "instructblip", "instructblipvideo", "deepseek_vl", "janus"), _IMAGE_TOKEN),
    **dict.fromkeys(("autoformer", "informer", "time_series_transformer"), _SERIES),
    **{name: {"sliding_window": 8} for name in ("step3p5", "step3p7_text")},
    **{name: {"vocab_size": 32} for name in ("wav2vec2-bert", "wav2vec2-conformer")},
    **{name: {"dropout_rate": 0.1} for name in ("t5gemma2_decoder", "t5gemma2_text", "t5gemma2_encoder")},
    **dict.fromkeys(
        ("qwen2_5_vl_vision", "exaone4_5_vision", "qwen2_5_omni_vision_encoder", "hyperclovax_vision_v2_vision"), _WINDOWS
    ),
    **{name: {"backbone_config": _FOUR_OUTPUTS} for name in ("depth_anything", "prompt_depth_anything", "chmv2", "tipsv2_dpt")},
    **{name: {"rotary_dim": 4} for name in ("gptj", "codegen")},
    **{name: {"index_kpool": 4} for name in ("glm5_next_text",)},
    "align": {"vision_config": {"hidden_dim": 32}, "projection_dim": 32},
    "swin2sr": {"image_size": 32, "embed_dim": 16, "depths": [2, 2], "num_heads": [2, 2], "window_size": 4},
    "clap_audio_model": {
        "spec_size": 64,
        "num_mel_bins": 64,
        "patch_embeds_hidden_size": 16,
        "depths": [1, 1, 2, 1],
        "num_attention_heads": [2, 2, 4, 4],
        "window_size": 4,
        "hidden_size": 128,
    },
    "vitpose": {"backbone_config": {"out_indices": [2]}},
    "vitmatte": {"backbone_config": {"out_features": ["stage2"]}},
    "efficientnet": {"width_coefficient": 0.2, "depth_coefficient": 0.4, "hidden_dim": 256},
    "align_vision_model": {"width_coefficient": 0.2, "depth_coefficient": 0.4, "hidden_dim": 256},
    "blt": {"encoder_hash_byte_group_vocab": 64, "encoder_hash_byte_group_size": [3, 4]},
    "aria": {"projector_patch_to_query_dict": {16: 4}},
    "audio-spectrogram-transformer": {"max_length": 64, "num_mel_bins": 32},
    "bros": {"hidden_size": 64},
    "dbrx": {"attn_config": {"rope_theta": 10000.0, "clip_qkv": 8.0}},
    "cosmos3_edge_text": {"rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [2, 1, 1]}},
    "hy_v4_vl_text": {"rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [2, 1, 1]}},
    "neomme": {"head_dim": 16},
    "gemma4_assistant": {"text_config": {"hidden_size_per_layer_input": 0}},
    "apertus1p5": {"image_token_offset": 96, "audio_token_offset": 128},
    "fun_asr_nano": {"adaptor_config": {"intermediate_size": 8}},
    "muse_spark_audio": {"num_hidden_layers": 4},
    "lw_detr_vit": {"num_windows": 4, "num_hidden_layers": 4, "out_indices": [1, 3], "window_block_indices": [0, 2]},
    "lw_detr": {
        "backbone_config": {"num_windows": 4, "num_hidden_layers": 4, "out_indices": [1, 3], "window_block_indices": [0, 2]}
    },
    "dpt": {"num_hidden_layers": 4, "backbone_out_indices": [0, 1, 2, 3]},
    "deepseek_v2": {"n_group": 1, "topk_group": 1, "num_experts_per_tok": 2},
    "dots1": {"n_routed_experts": 4, "n_shared_experts": 1, "num_experts_per_tok": 2},
    "dots3_note_vision_encoder": {"per_layer_config": None},
    "esm": {"vocab_size": 33, "pad_token_id": 1, "mask_token_id": 32},
    "gemma3n_text": {"num_kv_shared_layers": 0, "num_hidden_layers": 2, "layer_types": ["sliding_attention", "full_attention"]},
    "gpt_neo": {"attention_types": [[["global", "local"], 1]], "num_layers": 2},
    "layoutlmv3": {"coordinate_size": 6, "shape_size": 4},
    "levit": {"image_size": 64},
    "lfm2_moe": {"layer_types": ["conv", "full_attention"], "num_hidden_layers": 2},
    "llava_next": {"image_grid_pinpoints": [[32, 32]]},
    "llava_next_video": {"image_grid_pinpoints": [[32, 32]]},
    "llava_onevision": {"image_grid_pinpoints": [[32, 32]]},
    "mamba2": {"num_heads": 8, "head_dim": 8},
    "mobilevitv2": {"image_size": 64},
    "molmo2": {"adapter_config": {"vision_feature_layer": [1, 0]}},
    "moonshine_streaming": {"num_key_value_heads": 4},
    "jamba": {
        "num_hidden_layers": 4,
        "attn_layer_period": 2,
        "attn_layer_offset": 1,
        "expert_layer_period": 2,
        "expert_layer_offset": 1,
    },
    "bamba": {"attn_layer_indices": [1]},
    "granitemoehybrid": {"layer_types": ["mamba", "attention"], "num_hidden_layers": 2},
    "recurrent_gemma": {"num_hidden_layers": 3},
    "reformer": {"axial_pos_embds": False, "attn_layers": ["local", "lsh"], "num_buckets": 4, "max_position_embeddings": 128},
    "qwen3_asr_encoder": {"n_window": 8},
    "qwen3_omni_moe_talker_text": {"shared_expert_intermediate_size": 64},
    "sam_vision_model": {"num_pos_feats": 16},
    "sam_hq_vision_model": {"num_pos_feats": 16},
    "vibevoice_acoustic_tokenizer": {"num_filters": 2, "hidden_size": 8},
    "vibevoice_acoustic_tokenizer_encoder": {"num_filters": 2},
    "vibevoice_acoustic_tokenizer_decoder": {"num_filters": 2},
    "vipllava": {"vision_feature_layers": [-1, -2]},
    "voxtral": {"audio_token_id": 113},
    "xlstm": {"mlstm_round_up_to_multiple_of": 1, "ffn_round_up_to_multiple_of": 1},
    "xmod": {"default_language": "en_XX"},
    "zamba": {"num_hidden_layers": 3, "layer_types": ["linear_attention", "linear_attention", "hybrid"]},
    "zamba2": {"num_hidden_layers": 4, "layer_types": ["linear_attention", "hybrid"] * 2},
    "idefics": {"use_resampler": False},
}
"""Fields of configs, also where the type is part of another's. A dict stands for the fields of a config inside."""

CLASSES = {
    "autoformer": "AutoformerForPrediction",
    "informer": "InformerForPrediction",
    "time_series_transformer": "TimeSeriesTransformerForPrediction",
    "speech-encoder-decoder": "SpeechEncoderDecoderModel",
}

BLOCKS = {
    "janus": "model.language_model.layers.*",
    "inkling2": "model.language_model.layers.*",
    "inkling2_loop": "model.language_model.layers.*",
    "pe_audio": ["audio_encoder.layers.*", "text_model.layers.*"],
    "pe_audio_encoder": "layers.*",
    "poolformer": "poolformer.encoder.block.*.*",
    "xcodec": "acoustic_decoder.block.*",
    "wavtokenizer": "backbone.convnext.*",
}
"""Where the largest lists of modules do not run in training, or have no part in the loss."""

NO_LABELS = _names("""
    dia lasr_ctc parakeet_ctc omniasr_ctc granite_speech5_ctc musicgen_decoder musicgen_melody_decoder perceiver
""")

TEXT_ONLY = _names("""
    embedding_gemma2 gemma4 gemma4_unified fuyu granite_docling kosmos-2 kosmos-2.5 llama4 mllama molmo2 nemotron_h_omni
    inkling2 inkling2_loop
""")
"""Multimodal types whose pictures need more than a general rule: only their text part is trained."""

CHANNELS_LAST = _names("""
    parakeet_ctc parakeet_encoder parakeet_rnnt parakeet_tdt lasr_ctc lasr_encoder canary cohere_asr nemo_speechlm
    nemotron3_5_asr nemotron3_5_transcribe_asr_audio nemotron3_5_transcribe_audio nemotron3_diarization
    nemotron3_diarization_audio nemotron_asr_streaming nemotron_asr_streaming_encoder granite_speech5_ctc
    granite_speech5_encoder gemma4_audio speech_to_text wav2vec2-bert seamless_m4t seamless_m4t_v2 univnet granite_speech
    granite_speech_plus pop2piano fun_asr_nano_encoder
""")
"""Audio features come as (batch, time, mel) instead of (batch, mel, time)."""

ONE_CHANNEL = _names("""
    dac encodec xcodec xcodec2 wavtokenizer wavtokenizer_encoder neucodec omniasr omniasr_audio omniasr_ctc pe_audio
    pe_audio_encoder mimi mimi_encoder pocket_tts_audio_tokenizer pocket_tts_audio_tokenizer_encoder
    vibevoice_acoustic_tokenizer vibevoice_acoustic_tokenizer_encoder
""")
SEVERAL_IMAGES = {
    **dict.fromkeys(_names("idefics idefics2 idefics3 smolvlm colmodernvbert modernvbert ultravbert"), 1),
    **dict.fromkeys(_names("llava_next llava_next_video llava_onevision"), 2),
}
PATCH_IMAGES = {"kimi_k25": (), "kimi_k25_vision": (), "paddleocr_vl": (), "paddleocr_vl_vision": (1,)}
VIDEOS = _names("""
    timesformer videomae vivit xclip xclip_vision_model
""")
IMAGE_SIZES = dict.fromkeys(_names("pp_ocrv5_mobile_rec pp_ocrv5_server_rec pp_ocrv6_small_rec pp_ocrv6_tiny_rec"), (48, 160))


def _series(make):
    past = make.config.context_length + max(make.config.lags_sequence)
    future = make.config.prediction_length
    return {
        "past_values": make.uniform(2, past),
        "past_time_features": make.normal(2, past, 1),
        "past_observed_mask": torch.ones(2, past, dtype=make.dtype),
        "future_values": make.uniform(2, future),
        "future_time_features": make.normal(2, future, 1),
    }


def _decisions(make):
    return {
        "states": make.normal(2, 6, make.config.state_dim),
        "actions": make.normal(2, 6, make.config.act_dim),
        "rewards": make.normal(2, 6, 1),
        "returns_to_go": make.normal(2, 6, 1),
        "timesteps": torch.arange(6).expand(2, 6),
        "attention_mask": make.ones(2, 6),
    }


def _segments(make):
    image = make.image()
    return {"pixel_values": image, "prompt_pixel_values": make.image(), "prompt_masks": make.image()}


INPUTS = {
    "autoformer": _series,
    "informer": _series,
    "time_series_transformer": _series,
    "decision_transformer": _decisions,
    "seggpt": _segments,
    "audio-spectrogram-transformer": lambda make: {
        "input_values": make.normal(2, 64, 32),
        "labels": make.integers(make.config.num_labels, 2),
    },
    "bros": lambda make: {"input_ids": make.tokens(), "bbox": make.uniform(2, 12, 8)},
    "musicgen_decoder": lambda make: {"input_ids": make.tokens(rows=8)},
    "musicgen_melody_decoder": lambda make: {"input_ids": make.tokens(rows=8)},
    "perceiver": lambda make: {"inputs": make.tokens(128), "labels": make.tokens(128)},
    "speech-encoder-decoder": lambda make: {"input_values": make.normal(2, 8000), "labels": make.tokens()},
    "clap": lambda make: {
        "input_ids": make.tokens(),
        "input_features": make.normal(2, 1, 64, 64),
        "is_longer": make.ones(2, 1) > 0,
    },
    "clap_audio_model": lambda make: {"input_features": make.normal(2, 1, 64, 64), "is_longer": make.ones(2, 1) > 0},
}
"""Arguments of the forward, made by hand."""
