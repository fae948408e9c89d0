"""What the general rules do not get right, by model type."""

_WIDE = (
    "hgnet_v2 glpn poolformer pvt uvdoc textnet levit bit lilt layoutlmv3 codegen gptj clvp_encoder clvp xlstm dory"
    " pp_ocrv5_server_rec pp_ocrv6_small_rec pp_ocrv6_tiny_rec pp_ocrv6_small_det pp_ocrv5_server_det pp_ocrv6_medium_det"
    " pp_lcnet pp_lcnet_v3 pp_lcnet_v4 mimi mimi_decoder mimi_encoder csm kyutai_speech_to_text pocket_tts_audio_tokenizer"
    " pocket_tts_audio_tokenizer_decoder donut-swin swin swinv2 swin2sr maskformer-swin bridgetower_vision_model univnet cvt"
).split()

CONFIGS = {
    **{name: {"wide": True} for name in _WIDE},
    "d_fine": {"wide": True},
}
CLASSES = {}
INPUTS = {}
CHANNELS_LAST = set(
    "parakeet_ctc parakeet_encoder parakeet_rnnt parakeet_tdt lasr_ctc lasr_encoder canary cohere_asr nemo_speechlm"
    " nemotron3_5_asr nemotron3_5_transcribe_asr_audio nemotron3_5_transcribe_audio nemotron3_diarization"
    " nemotron3_diarization_audio nemotron_asr_streaming nemotron_asr_streaming_encoder granite_speech5_ctc granite_speech5_encoder"
    " gemma4_audio audio-spectrogram-transformer speech_to_text wav2vec2-bert seamless_m4t seamless_m4t_v2 univnet"
    " granite_speech granite_speech_plus pop2piano fun_asr_nano_encoder".split()
)
ONE_CHANNEL = set(
    "dac encodec xcodec xcodec2 wavtokenizer wavtokenizer_encoder neucodec omniasr omniasr_audio omniasr_ctc pe_audio pe_audio_encoder"
    " mimi mimi_encoder pocket_tts_audio_tokenizer pocket_tts_audio_tokenizer_encoder".split()
)
SEVERAL_IMAGES = set("idefics idefics2 idefics3 smolvlm colmodernvbert modernvbert ultravbert paddleocr_vl_vision".split())
VIDEOS = set("timesformer videomae vivit xclip xclip_vision_model".split())
