"""Command lines of other trainers that the journeys of `compare_with.py` translate, and small ones that they train."""

from __future__ import annotations

import json

LINES = """
diffusers-sd --pretrained_model_name_or_path=sd15 --train_data_dir=photos
diffusers-sd --pretrained_model_name_or_path=sd15 --train_data_dir=photos --use_ema --seed=3 --snr_gamma=5 --resolution=512 --center_crop --random_flip
diffusers-sd --pretrained_model_name_or_path=sd15 --train_data_dir=photos --mixed_precision=fp16 --gradient_accumulation_steps=4 --max_train_steps=15000 --lr_scheduler=cosine --lr_warmup_steps=500 --checkpointing_steps=500 --output_dir=out --noise_offset=0.05 --allow_tf32
diffusers-sd python train_text_to_image.py --pretrained_model_name_or_path=sd15 --train_data_dir=photos --use_8bit_adam --gradient_checkpointing --validation_prompts fox cat
diffusers-sdxl --pretrained_model_name_or_path=sdxl --train_data_dir=photos --mixed_precision=bf16
diffusers-sdxl --pretrained_model_name_or_path=sdxl --pretrained_vae_model_name_or_path=madebyollin/sdxl-vae-fp16-fix --train_data_dir=photos --proportion_empty_prompts=0.2 --use_ema --timestep_bias_strategy=later
everydream2 --resume_ckpt sd15 --data_root images --max_epochs 30 --lr 2e-6
everydream2 --resume_ckpt sd15 --data_root images --batch_size 6 --ema_strength_target 0.1 --zero_frequency_noise_ratio -1
everydream2 python train.py --resume_ckpt sd15 --project_name fox --lr_scheduler cosine --shuffle_tags --keep_tags 2 --min_snr_gamma 5 --write_schedule --rated_dataset
mindone-sdxl python train.py --config sd_xl_base_finetune_910b.yaml --weight base.ckpt --data_path photos/
mindone-sdxl python train.py --config sd_xl_base_finetune_910b_fa.yaml --data_path photos/ --ms_amp_level O2 --cache_latent True --cache_text_embedding True
mindone-sdxl mpirun --allow-run-as-root -n 8 python train.py --config sd_xl_base_finetune_multi_graph_910b.yaml --data_path photos/ --is_parallel True
open-sora-plan --video_data video_data.txt --pretrained LatteT2V/65x512x512 --num_frames 65 --batch_size 2 --use_recompute True
open-sora-plan --video_data video.txt --image_data image.txt --use_image_num 4 --pretrained LatteT2V/17x256x256 --num_frames 17 --max_image_size 256 --precision bf16 --use_ema True --start_learning_rate 2e-5
diffusers-lora --pretrained_model_name_or_path=sd15 --train_data_dir=photos --resolution=512 --center_crop --random_flip --mixed_precision=fp16 --rank=8 --learning_rate=1e-4
diffusers-lora-sdxl --pretrained_model_name_or_path=sdxl --train_data_dir=photos --train_text_encoder --snr_gamma=5 --lr_scheduler=cosine --lr_warmup_steps=0
diffusers-textual-inversion --pretrained_model_name_or_path=sd15 --train_data_dir=cat --placeholder_token=<toy> --initializer_token=toy --learnable_property=style --num_vectors=2 --scale_lr
diffusers-textual-inversion-sdxl --pretrained_model_name_or_path=sdxl --train_data_dir=cat --placeholder_token=<toy> --initializer_token=toy --mixed_precision=fp16
diffusers-dreambooth --pretrained_model_name_or_path=sd15 --instance_data_dir=cat --instance_prompt=sks --with_prior_preservation --class_data_dir=cats --class_prompt=cat --prior_loss_weight=0.5 --train_text_encoder
diffusers-dreambooth-flux --pretrained_model_name_or_path=flux --instance_data_dir=cat --instance_prompt=sks --guidance_scale=1 --mixed_precision=bf16 --weighting_scheme=logit_normal
diffusers-dreambooth-sd3 --pretrained_model_name_or_path=sd3 --instance_data_dir=cat --instance_prompt=sks --mixed_precision=fp16 --weighting_scheme=mode --mode_scale=1.1
diffusers-dreambooth-lora --pretrained_model_name_or_path=sd15 --instance_data_dir=cat --instance_prompt=sks --rank=16 --train_text_encoder --lr_scheduler=constant_with_warmup
diffusers-dreambooth-lora-sdxl --pretrained_model_name_or_path=sdxl --instance_data_dir=cat --instance_prompt=sks --use_dora --output_kohya_format --snr_gamma=5
diffusers-dreambooth-lora-flux --pretrained_model_name_or_path=flux --instance_data_dir=cat --instance_prompt=sks --rank=16 --lora_layers=attn.to_k,attn.to_q --cache_latents
diffusers-dreambooth-lora-flux2-klein --pretrained_model_name_or_path=klein --instance_data_dir=cat --instance_prompt=sks --rank=16 --lora_alpha=8 --guidance_scale=1
diffusers-dreambooth-lora-qwen-image --pretrained_model_name_or_path=qwen --instance_data_dir=cat --instance_prompt=sks --rank=16 --cache_latents --weighting_scheme=none
diffusers-dreambooth-lora-sd3 --pretrained_model_name_or_path=sd3 --instance_data_dir=cat --instance_prompt=sks --rank=16 --train_text_encoder --text_encoder_lr=5e-6
diffusers-dreambooth-lora-z-image --pretrained_model_name_or_path=z --instance_data_dir=cat --instance_prompt=sks --rank=16 --gradient_checkpointing
diffusers-instruct-pix2pix --pretrained_model_name_or_path=sd15 --train_data_dir=pairs --conditioning_dropout_prob=0.05 --random_flip --use_ema
diffusers-instruct-pix2pix-sdxl --pretrained_model_name_or_path=sdxl --dataset_name=me/edits --original_image_column=before --vae_precision=bf16
"""  # noqa: E501
"""Lines to translate, the name of the dialect first."""

_IMAGES = "--train_data_dir={world}/table --resolution=32 --train_batch_size=2 --max_train_steps=2 --seed=7"
_SD = f"--pretrained_model_name_or_path={{world}}/narrow {_IMAGES} --learning_rate=1e-3 --output_dir=out"
_SDXL = f"--pretrained_model_name_or_path={{world}}/models/tiny-sdxl {_IMAGES} --learning_rate=1e-3 --output_dir=out"
_SUBJECT = (
    "--instance_data_dir={world}/cat --instance_prompt=sks --resolution=32 --max_train_steps=2 --train_batch_size=2 "
    "--seed=7 --output_dir=out --learning_rate=1e-2"
)
_TOKEN = (
    "--train_data_dir={world}/cat --placeholder_token=<toy> --initializer_token=a --resolution=32 --max_train_steps=2 "
    "--train_batch_size=2 --learning_rate=1e-2 --seed=7 --output_dir=out --save_steps=1 --repeats=2 --lr_warmup_steps=0"
)
_EDITS = (
    "--original_image_column=before --edited_image_column=image --edit_prompt_column=text "
    "--conditioning_dropout_prob=0.2"
)
_PRIOR = "--with_prior_preservation --class_data_dir=kind --class_prompt=a --num_class_images=1"


def _model(name: str, more: str = "") -> str:
    length = "" if name in ("tiny-sdxl", "narrow") else " --max_sequence_length=48"
    place = "{world}/narrow" if name == "narrow" else f"{{world}}/models/{name}"
    return f"--pretrained_model_name_or_path={place} {_SUBJECT}{length} {more}"


TRAINED: dict[str, str] = {
    "diffusers-sd": f"{_SD} --use_ema --center_crop --random_flip --snr_gamma=5 --noise_offset=0.05",
    "diffusers-sdxl": f"{_SDXL} --use_ema --random_flip --proportion_empty_prompts=0.2 --timestep_bias_strategy=later",
    "diffusers-lora": f"{_SD} --center_crop --rank=3",
    "diffusers-lora-sdxl": f"{_SDXL} --train_text_encoder --rank=3",
    "diffusers-textual-inversion": f"--pretrained_model_name_or_path={{world}}/narrow {_TOKEN} --num_vectors=2",
    "diffusers-textual-inversion-sdxl": f"--pretrained_model_name_or_path={{world}}/models/tiny-sdxl {_TOKEN}",
    "diffusers-dreambooth": _model("narrow", f"--train_text_encoder {_PRIOR}"),
    "diffusers-dreambooth-flux": _model("tiny-flux", "--train_text_encoder --text_encoder_lr=1e-3"),
    "diffusers-dreambooth-sd3": _model("tiny-sd3", "--train_text_encoder --text_encoder_lr=1e-3"),
    "diffusers-dreambooth-lora": _model("narrow", f"--rank=3 {_PRIOR}"),
    "diffusers-dreambooth-lora-sdxl": _model("tiny-sdxl", "--rank=3 --train_text_encoder --output_kohya_format"),
    "diffusers-dreambooth-lora-flux": _model("tiny-flux", "--rank=3 --lora_alpha=6"),
    "diffusers-dreambooth-lora-flux2-klein": _model("tiny-flux2", "--rank=3"),
    "diffusers-dreambooth-lora-qwen-image": _model("tiny-qwen-image", "--rank=3"),
    "diffusers-dreambooth-lora-sd3": _model("tiny-sd3", "--rank=3 --train_text_encoder --text_encoder_lr=1e-2"),
    "diffusers-dreambooth-lora-z-image": _model("tiny-z-image", "--rank=3"),
    "diffusers-instruct-pix2pix": f"{_SD} {_EDITS} --use_ema --random_flip",
    "diffusers-instruct-pix2pix-sdxl": f"{_SDXL} {_EDITS}",
    "everydream2": "python train.py --config=train.json --ema_decay_rate=0.9 --ema_update_interval=1 --write_schedule",
    "open-sora-plan": (
        "--video_data={world}/clips.txt --image_data={world}/stills.txt --use_image_num=2 --num_frames=5 "
        "--max_image_size=32 --model_max_length=24 --pretrained={world}/models/tiny-latte "
        "--ae_path={world}/models/tiny-latte/vae --text_encoder_name={world}/t5 "
        "--text_embed_cache=False --use_recompute=True --device=cpu --precision=fp32 --vae_precision=fp32 "
        "--text_encoder_precision=fp32 --batch_size=2 --max_train_steps=2 --checkpointing_steps=1 "
        "--start_learning_rate=1e-3 --output_dir=out"
    ),
}
"""A small line of each dialect that is trained with random weights; MindONE's have a journey of their own."""

TRAINED_OURS: dict[str, tuple[str, ...]] = {
    "diffusers-dreambooth-lora-z-image": ("model.z_image.distilled=true",),
    "everydream2": (
        "data.resolution=32", "data.buckets.shape=square", "data.buckets.step=16", "run.preview.every=null",
    ),
}  # fmt: skip
"""Settings of ours before such a line."""

EVERYDREAM_FILES = (
    ("train.json", json.dumps({
        "resume_ckpt": "{world}/narrow", "data_root": "{world}/dreams", "batch_size": 2, "max_epochs": 1,
        "disable_amp": True, "shuffle_tags": True, "lr": None, "log_step": 1, "wandb": False, "notebook": False,
    })),
    ("optimizer.json", json.dumps({
        "base": {"optimizer": "adamw", "lr": 1e-3}, "text_encoder_overrides": {"lr": 1e-4},
    })),
)  # fmt: skip

_YAML = "{world}/mindone/finetune.yaml"
_CKPT = "base.ckpt"
_TRAIN = (
    f"python train.py --config {_YAML} --weight {_CKPT} --data_path {{world}}/mindone/images --device_target CPU "
    "--save_path_with_time False --cache_latent True --cache_text_embedding True --cache_path cache_data "
    "--ms_amp_level O0 --save_path out"
)
MINDONE: dict[str, tuple[str, str]] = {
    "to MindSpore": (
        "convert",
        f"python convert_weight.py --task pt_to_ms --weight_safetensors {{base}} --weight_ms {_CKPT}",
    ),
    "cache": ("train", f"{_TRAIN} --task = cache"),
    "train": ("train", _TRAIN),
    "merge": (
        "merge",
        f"python tools/weight_merge/merge_weight.py --base_weight {_CKPT} --additional_weights out/weights/unet_2.ckpt",
    ),
    "sample": (
        "sample",
        "python demo/sampling_without_streamlit.py --weight merged_weight.ckpt --prompt shape --device_target CPU "
        "--ms_amp_level O0 --sample_step 2 --sd_xl_base_ratios 1.0_512 --seed 7",
    ),
}
"""MindONE's document from its first command to its last; {base}: a folder with weights."""
