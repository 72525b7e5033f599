/* SPDX-License-Identifier: Apache-2.0 */
/* Keys of config.json that need no table: tools, training and generation have left them, or every family reads them. */
#include "base/text.h"
#include "runtime/model/arch.h"

/* Read for every family (config.c, generation.c, quantization.c), or notes of tools, of training and of generation. */
static const char notes[] =
    "architectures model_type dtype torch_dtype hidden_act activation_function activation hidden_activation "
    "layer_types rope_parameters rope_scaling original_max_position_embeddings bos_token_id eos_token_id pad_token_id "
    "sep_token_id decoder_start_token_id transformers_version use_cache initializer_range attention_dropout "
    "hidden_dropout classifier_dropout output_attentions output_hidden_states return_dict return_dict_in_generate "
    "is_decoder is_encoder_decoder add_cross_attention cross_attention_hidden_size chunk_size_feed_forward "
    "finetuning_task task_specific_params problem_type id2label label2id num_labels tokenizer_class prefix "
    "torchscript use_bfloat16 pruned_heads gradient_checkpointing auto_map unsloth_version unsloth_fixed "
    "bad_words_ids num_return_sequences max_length min_length do_sample temperature top_k top_p num_beams "
    "repetition_penalty length_penalty early_stopping typical_p diversity_penalty encoder_no_repeat_ngram_size "
    "no_repeat_ngram_size num_beam_groups output_scores remove_invalid_values suppress_tokens begin_suppress_tokens "
    "forced_bos_token_id forced_eos_token_id exponential_decay_length_penalty tf_legacy_loss tie_encoder_decoder "
    "quantization_config compression_config unk_token_id mask_token_id cls_token_id eod_token_id pad_token eos_token "
    "bos_token unk_token transformers.js_config is_llama_config attn_implementation norm_eps model_max_length "
    "max_sequence_length max_seq_len max_seq_length seq_len seq_length use_flash_attn use_flash_attention "
    "use_flash_attention_2 flash_attention attention_softmax_in_fp32 scale_attention_softmax_in_fp32 softmax_in_fp32 "
    "use_memory_efficient_attention use_sdpa cache_implementation use_sliding_window max_window_layers "
    "attention_probs_dropout_prob hidden_dropout_prob embd_pdrop resid_pdrop attn_pdrop attn_dropout embd_dropout "
    "resid_dropout ffn_dropout dropout dropout_rate emb_dropout_prob head_dropout classifier_pdrop "
    "summary_hidden_size tie_weights_ use_return_dict model_name name_or_path library_name hidden_states_dtype "
    "base_model_name_or_path license language tags sentence_transformers pooler_type matryoshka_dimensions "
    "trust_remote_code revision pretrained pre_trained training decoder_sparse_step mlp_only_layers moe_layer_freq "
    "router_z_loss_coef aux_loss_alpha aux_loss_coef seq_aux output_router_logits router_aux_loss_coef "
    "vocab_size_or_config_json_file pad_vocab_size_multiple make_vocab_size_divisible_by loss_type ignore_index "
    "keys_to_ignore_at_inference num_nextn_predict_layers torch_compile fp16 bf16 fp32 use_fused_qkv fused_mlp "
    "fused_attn";

bool tri_config_key_is_note(const char *key) { return tri_has_word(notes, key); }
