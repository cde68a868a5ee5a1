"""Keys of the settings files of the kohya_ss GUI that are not called like the options of the scripts, and the arguments
of its kinds of adapters. From published settings files and the GUI's public repository; those that no published file
shows are in `UNVERIFIED`."""

from __future__ import annotations

from typing import Literal

Tab = Literal["lora", "dreambooth", "finetune", "inversion"]


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


SCRIPTS: dict[Tab, dict[str, str]] = {
    "lora": {"sd": "train_network", "sdxl": "sdxl_train_network", "sd3": "sd3_train_network",
             "flux": "flux_train_network"},
    "dreambooth": {"sd": "train_db", "sdxl": "sdxl_train", "sd3": "sd3_train", "flux": "flux_train"},
    "finetune": {"sd": "fine_tune", "sdxl": "sdxl_train", "sd3": "sd3_train", "flux": "flux_train"},
    "inversion": {"sd": "train_textual_inversion", "sdxl": "sdxl_train_textual_inversion"},
}  # fmt: skip
"""The script of each tab, by family."""

FAMILY_KEYS = {
    "flux1_checkbox": "flux", "sd3_checkbox": "sd3", "sdxl": "sdxl", "sdxl_checkbox": "sdxl",
}  # fmt: skip
TAB_KEYS: dict[str, Tab] = {
    "LoRA_type": "lora", "token_string": "inversion", "image_folder": "finetune", "train_dir": "finetune",
    "create_caption": "finetune", "caption_metadata_filename": "finetune",
}  # fmt: skip
"""Keys that only the files of one tab have; a file without any of them is of the Dreambooth tab."""

RENAMED = {
    "optimizer": "optimizer_type",
    "max_resolution": "resolution",
    "image_folder": "train_data_dir",
    "lora_network_weights": "network_weights",
    "lowvram": "lowram",
}
"""Options of keys with other names."""
FAMILY_RENAMED = {
    **{
        f"{prefix}_cache_text_encoder_outputs{end}": (family, f"cache_text_encoder_outputs{end}")
        for prefix, family in (("sdxl", "sdxl"), ("flux1", "flux"), ("sd3", "sd3"))
        for end in ("", "_to_disk")
    },
    **{
        f"sd3_{option}": ("sd3", option)
        for option in (
            "fused_backward_pass", "clip_l", "t5xxl", "text_encoder_batch_size", "enable_scaled_pos_embed",
            "clip_l_dropout_rate", "t5_dropout_rate", "disable_mmap_load_safetensors",
        )
    },
    "flux_fused_backward_pass": ("flux", "fused_backward_pass"),
    "sdxl_no_half_vae": ("sdxl", "no_half_vae"),
}  # fmt: skip
"""(family, option) of keys that act for one family."""

UNSET_AT_ZERO = _names(
    "sample_every_n_steps sample_every_n_epochs save_every_n_steps save_every_n_epochs save_last_n_steps "
    "save_last_n_steps_state save_last_n_epochs save_last_n_epochs_state min_snr_gamma ip_noise_gamma noise_offset "
    "adaptive_noise_scale multires_noise_iterations scale_weight_norms network_dropout max_train_epochs "
    "max_train_steps vae_batch_size v_pred_like_loss seed min_timestep max_timestep fused_optimizer_groups "
    "blocks_to_swap lr_warmup_steps lr_scheduler_num_cycles lr_scheduler_power num_last_block_to_freeze "
    "t5xxl_max_token_length double_blocks_to_swap single_blocks_to_swap text_encoder_batch_size ddp_timeout "
    "max_token_length min_bucket_reso max_bucket_reso learning_rate_te learning_rate_te1 learning_rate_te2 "
    "learning_rate_te3 lr_decay_steps lr_scheduler_timescale lr_scheduler_min_lr_ratio prior_loss_weight"
)
"""Options that are not given where the file has 0."""
DEFAULTS = {"clip_skip": "1", "max_timestep": "1000"}
"""Values of options that are not given, either."""

ELSEWHERE = _names(
    "LoRA_type LyCORIS_preset conv_dim conv_alpha conv_block_dims conv_block_alphas block_dims block_alphas "
    "down_lr_weight mid_lr_weight up_lr_weight block_lr_zero_threshold rank_dropout rank_dropout_scale module_dropout "
    "use_tucker use_cp use_scalar train_norm decompose_both factor unit constrain rescaled train_on_input dora_wd "
    "bypass_mode train_blocks split_qkv img_attn_dim img_mlp_dim img_mod_dim single_dim txt_attn_dim txt_mlp_dim "
    "txt_mod_dim single_mod_dim in_dims train_double_block_indices train_single_block_indices enable_all_linear "
    "loraplus_lr_ratio loraplus_unet_lr_ratio loraplus_text_encoder_lr_ratio conv_dims "
    "conv_alphas sdxl sdxl_checkbox flux1_checkbox sd3_checkbox epoch max_train_epochs max_train_steps lr_warmup "
    "lr_warmup_steps noise_offset_type xformers unet_lr text_encoder_lr t5xxl_lr sample_prompts additional_parameters "
    "use_wandb template train_dir caption_metadata_filename latent_metadata_filename use_latent_files "
    "stop_text_encoder_training stop_text_encoder_training_pct multi_gpu num_processes num_machines "
    "max_token_length train_t5xxl train_lora_ggpo ggpo_sigma ggpo_beta"
)
"""Keys that other functions read."""

ONLY_GUI = _names(
    "model_list save_as_bool headless print_only gpu_ids num_cpu_threads_per_process main_process_port dynamo_mode "
    "dynamo_use_dynamic dynamo_use_fullgraph extra_accelerate_launch_args create_caption create_buckets full_path "
    "batch_size dynamo_backend save_as file_path training_preset"
)
"""Keys that change nothing in training: they start the script, or belong to windows of the GUI."""

UNVERIFIED = frozenset(("t5xxl_lr", "flux_fused_backward_pass", "train_lora_ggpo"))
"""Keys whose meaning is known from memory only."""

_KOHYA = (
    "down_lr_weight", "mid_lr_weight", "up_lr_weight", "block_lr_zero_threshold", "block_dims", "block_alphas",
    "conv_block_dims", "conv_block_alphas", "rank_dropout", "module_dropout", "loraplus_lr_ratio",
    "loraplus_unet_lr_ratio", "loraplus_text_encoder_lr_ratio",
)  # fmt: skip
_DROPOUTS = ("rank_dropout", "module_dropout", "rank_dropout_scale", "train_norm", "dora_wd", "bypass_mode")
_FLUX = (
    "train_blocks", "split_qkv", "img_attn_dim", "img_mlp_dim", "img_mod_dim", "single_dim", "txt_attn_dim",
    "txt_mlp_dim", "txt_mod_dim", "single_mod_dim", "in_dims", "train_double_block_indices",
    "train_single_block_indices", "train_t5xxl",
)  # fmt: skip

ADAPTERS: dict[str, tuple[str, dict[str, str], tuple[str, ...], tuple[str, ...]]] = {
    "Standard": ("networks.lora", {}, (), _KOHYA),
    "Kohya LoCon": ("networks.lora", {}, ("conv_dim", "conv_alpha"), _KOHYA),
    "Kohya DyLoRA": ("networks.dylora", {}, ("conv_dim", "conv_alpha", "unit"), _KOHYA),
    "LoRA-FA": ("networks.lora_fa", {}, (), _KOHYA),
    "Flux1": ("networks.lora_flux", {}, (), (*_KOHYA, *_FLUX)),
    "Flux1 OFT": ("networks.oft_flux", {}, (), ("enable_all_linear",)),
    **{
        f"LyCORIS/{name}": ("lycoris.kohya", {"algo": algo}, ("conv_dim", "conv_alpha", *always), optional)
        for name, algo, always, optional in (
            ("LoCon", "locon", (), (*_DROPOUTS, "use_tucker", "use_scalar")),
            ("LoHa", "loha", (), (*_DROPOUTS, "use_tucker", "use_scalar")),
            ("LoKr", "lokr", ("factor",), (*_DROPOUTS, "use_tucker", "use_cp", "use_scalar", "decompose_both")),
            ("iA3", "ia3", (), ("train_on_input",)),
            ("DyLoRA", "dylora", ("unit",), (*_DROPOUTS, "use_tucker")),
            ("Diag-OFT", "diag-oft", (), (*_DROPOUTS, "use_tucker", "use_scalar", "constrain", "rescaled")),
            ("BOFT", "boft", (), (*_DROPOUTS, "use_tucker", "use_scalar", "constrain", "rescaled")),
            ("GLoRA", "glora", (), _DROPOUTS),
            ("Native Fine-Tuning", "full", (), (*_DROPOUTS, "use_tucker", "use_scalar")),
        )
    },
    "LoCon": ("lycoris.kohya", {"algo": "locon"}, ("conv_dim", "conv_alpha"), (*_DROPOUTS, "use_tucker", "use_scalar")),
}  # fmt: skip
"""Of each kind of adapter: the module, fixed arguments, keys that are always arguments, and those that are unless they
are off or 0."""
ARGUMENT_NAMES = {"unit": "block_size"}
"""Names of arguments of lycoris.kohya with other keys."""
NONE_AS_ALL = ("all", "None", "none")
"""Values that mean that an argument is not given."""
