"""The section `model` of MindONE's YAML files: networks, encoders, trained parts, and the objective."""

from __future__ import annotations

from collections.abc import Sequence

from mezzotint.compat.kit.dialect import Draft
from mezzotint.compat.mindone import _optim
from mezzotint.compat.mindone._config import Config, Node, as_list, flag_of
from mezzotint.compat.mindone._targets import BASE, REFINER, SIZES
from mezzotint.settings.reading.yaml_rules import KeyPath

_MODEL_PATH = ("model", "params")
_SIZE_KEYS = ("original_size_as_tuple", "crop_coords_top_left", "target_size_as_tuple")
_REFINER_KEYS = ("original_size_as_tuple", "crop_coords_top_left", "aesthetic_score")
_CLIP, _OPEN_CLIP, _NUMBERS = "FrozenCLIPEmbedder", "FrozenOpenCLIPEmbedder2", "ConcatTimestepEmbedderND"
_TOKENIZER = "openai/clip-vit-large-patch14"
_ATTENTION = {"flash-attention": "auto", "softmax": "auto", "vanilla": "math", "softmax-xformers": "xformers"}
_PREDICTIONS = {
    "EpsScaling": "epsilon", "EpsScaling2": "epsilon-unscaled", "VScaling": "v", "VScalingWithEDMcNoise": "v-edm",
    "EDMScaling": "edm",
}  # fmt: skip
_WEIGHTINGS = {"EpsWeighting": "epsilon", "VWeighting": "v", "UnitWeighting": "unit", "EDMWeighting": "edm"}
_PLAIN = frozenset(
    (("epsilon", "epsilon"), ("epsilon-unscaled", "epsilon"), ("v", "v"), ("v-edm", "v"), ("edm", "edm"))
)
"""Pairs of prediction and weighting for which the loss is the plain squared error of the network's output."""


def model(config: Config, *, is_inference: bool = False) -> None:
    """Sets family, networks, precision of the autoencoder, recompute, attention and trained parts. is_inference: the
    YAML is for sampling and has no loss."""
    engine = config.require(("model",), "model")
    if engine is None:
        return
    config.draft.set("model.family", "sdxl", engine.flag())
    if "scale_factor" not in engine.written:
        config.draft.note(engine.flag(), "scale_factor is not given; SDXL's 0.13025 is used, in MindONE 1")
    _set_network(config)
    _set_autoencoder(config, engine)
    _set_conditioner(config)
    _set_diffusion(config, is_inference=is_inference)


# networks


def _set_network(config: Config) -> None:
    node, draft = config.require((*_MODEL_PATH, "network_config"), "denoising network"), config.draft
    if node is None:
        return
    _set_sizes(draft, node)
    is_checkpointed = "use_checkpoint" in node.written and "use_recompute" not in node.written
    flag = node.flag("use_checkpoint" if is_checkpointed else "use_recompute")
    draft.set("run.gradient_checkpointing.enabled", bool(node["use_recompute"] or node["use_checkpoint"]), flag)
    key = "spatial_transformer_attn_type"
    if node[key] not in _ATTENTION:
        node.refuse(key, f"takes flash-attention or vanilla, got {node[key]!r}", code="E1017")
        return
    draft.set("model.attention", _ATTENTION[node[key]], node.flag(key))
    if node[key] == "vanilla":
        message = "is the plain formula; flash-attention computes the same with much less memory"
        draft.note(node.flag(key), message)


def _set_sizes(draft: Draft, node: Node) -> None:
    """Checks the sizes of the network, which the weights decide, and sets a smaller depth."""
    written = {key: node[key] for key in (*SIZES, "transformer_depth") if key in node.written}
    if any(all(sizes.get(key) == value for key, value in written.items()) for sizes in (BASE, REFINER)):
        return
    different = [key for key, value in written.items() if key != "transformer_depth" and BASE.get(key) != value]
    if different:
        draft.note(
            node.flag(different[0]), f"the sizes of the network are those of the weights ({', '.join(different)})"
        )
    if "transformer_depth" not in written:
        return
    depth = as_list(written["transformer_depth"])
    if not all(isinstance(layers, int) and layers >= 0 for layers in depth):
        node.refuse("transformer_depth", "must be an integer, or a list of them", code="E1017")
    elif written["transformer_depth"] not in (BASE["transformer_depth"], REFINER["transformer_depth"]):
        draft.set("model.depth", depth, node.flag("transformer_depth"))


def _set_autoencoder(config: Config, engine: Node) -> None:
    draft = config.draft
    node = config.require((*_MODEL_PATH, "first_stage_config"), "autoencoder")
    if node is not None and node["lossconfig"]:
        config.node((*node.params_path, "lossconfig"), "placeholder")
    if draft.text("ms_amp_level") == "O0":
        return
    is_exact, flag = bool(engine["disable_first_stage_amp"]), engine.flag("disable_first_stage_amp")
    draft.set("run.vae_dtype", "fp32" if is_exact else "same", flag)
    if not is_exact:
        draft.note(
            flag,
            "is not True: the autoencoder computes in fp16, in which SDXL's one overflows. True is recommended, "
            "or the autoencoder that is fixed for fp16, model.vae=madebyollin/sdxl-vae-fp16-fix",
        )


# text


def _set_conditioner(config: Config) -> None:
    node = config.require((*_MODEL_PATH, "conditioner_config"), "conditioner")
    if node is None:
        return
    embedders_path = (*node.params_path, "emb_models")
    embedders = list(config.nodes(embedders_path, "embedder"))
    if not embedders or len(embedders) < len(as_list(config.at(embedders_path) or [])):
        if config.at(embedders_path) is None:
            node.refuse("emb_models", "is missing", "see the shipped YAML files", "E1017")
        return
    text = [one for one in embedders if one.name != _NUMBERS]
    sizes = embedders[len(text) :]
    names, keys = tuple(one.name for one in text), tuple(_key(config, one) for one in sizes)
    fits = (names, keys) in (((_CLIP, _OPEN_CLIP), _SIZE_KEYS), ((_OPEN_CLIP,), _REFINER_KEYS))
    if not fits or embedders[: len(text)] != text:
        message = (
            "SDXL needs the text of its two encoders, then original size, crop and target size; its refiner that of "
            f"OpenCLIP, original size, crop and aesthetic score; in this order. Got {', '.join((*names, *keys))}"
        )
        node.refuse("emb_models", message, code="E1081")
        return
    for one in sizes:
        if one["outdim"] != 256:
            one.refuse("outdim", f"SDXL needs 256, got {one['outdim']}", code="E1081")
    _set_trained_parts(config, node, text)
    _set_dropout(config, text, sizes)
    if text[0].name == _CLIP and text[0]["version"] != _TOKENIZER:
        message = f"the tokenizer of {_TOKENIZER} is used, which ships with Mezzotint"
        config.draft.note(text[0].flag("version"), message)


def _key(config: Config, node: Node) -> str:
    key = config.at((*node.key_path, "input_key")) or config.at((*node.key_path, "input_keys"))
    return str(key[0] if isinstance(key, list) and key else key)


def _set_trained_parts(config: Config, conditioner: Node, text: Sequence[Node]) -> None:
    parts = {_CLIP: "text_encoder", _OPEN_CLIP: "text_encoder_2"}
    trained, flags = ["denoiser"], []
    for one in text:
        key_path = (*one.key_path, "is_trainable")
        if config.at(key_path) and one["freeze"]:
            message = f"{one.name} is not trained, because its `freeze` is True; write freeze: False"
            config.draft.note(flag_of(key_path), message)
        elif config.at(key_path):
            trained.append(parts[one.name])
            flags.append(flag_of(key_path))
    config.draft.set("model.train", trained, *(flags or [conditioner.flag()]))


def _set_dropout(config: Config, text: Sequence[Node], sizes: Sequence[Node]) -> None:
    """Sets caption dropout from the ucg_rate of the embedders."""
    drops = [
        (config.at((*one.key_path, "ucg_rate")) or 0.0, config.at((*one.key_path, "legacy_ucg_value"))) for one in text
    ]
    key_path = (*text[0].key_path, "ucg_rate")
    rate, legacy = drops[0]
    if any(config.at((*one.key_path, "ucg_rate")) for one in sizes) or any(one != drops[0] for one in drops):
        config.refuse(key_path, "must be the same for all text encoders, and 0 for sizes", code="E1081")
    elif rate and (not isinstance(rate, (int, float)) or not 0 <= rate <= 1 or legacy not in (None, "")):
        config.refuse(key_path, f"must be a share from 0 to 1 with an empty legacy_ucg_value, got {rate}", code="E1017")
    elif rate:
        dropped = "empty" if legacy == "" else "zeros"
        config.draft.set_all(
            {"data.captions.dropout": float(rate), "data.captions.dropped": dropped}, flag_of(key_path)
        )
        config.draft.note(flag_of(key_path), "states and pooled text are dropped together")


# the objective


def _set_diffusion(config: Config, *, is_inference: bool) -> None:
    """Sets the loss and its noise levels; for an inference YAML only the prediction."""
    denoiser = config.require((*_MODEL_PATH, "denoiser_config"), "denoiser")
    loss = None if is_inference else config.require((*_MODEL_PATH, "loss_fn_config"), "loss")
    if denoiser is None or (loss is None and not is_inference):
        return
    sigmas = _inside_or(config, loss, "sigma_sampler_config", _MODEL_PATH, "sigma sampler")
    scaling = config.require((*denoiser.params_path, "scaling_config"), "scaling")
    if scaling is None or loss is None:
        if scaling is not None:
            config.draft.set("model.prediction", _PREDICTIONS[scaling.name], scaling.flag())
        return
    weighting = _inside_or(config, loss, "loss_weighting_config", denoiser.params_path, "weighting")
    if sigmas is None or weighting is None:
        return
    for node in (denoiser, sigmas):
        if node.values.get("discretization_config") is not None:
            config.node((*node.params_path, "discretization_config"), "table of sigmas")
    if sigmas.name == "DiscreteSamplingForZero3":
        _optim.set_sharding(sigmas, parameters=True)
    _set_prediction(config.draft, denoiser, scaling, sigmas)
    _set_weighting(config.draft, scaling, weighting, loss)
    _set_loss(config.draft, loss)


def _inside_or(config: Config, loss: Node | None, key: str, outside: KeyPath, role: str) -> Node | None:
    """An object inside the loss, as in Stability's files, or inside `outside`."""
    if loss is None:
        return None
    inside = (*loss.params_path, key)
    return config.require(inside if config.at(inside) is not None else (*outside, key.removeprefix("loss_")), role)


def _set_prediction(draft: Draft, denoiser: Node, scaling: Node, sigmas: Node) -> None:
    prediction = _PREDICTIONS[scaling.name]
    takes_sigma = prediction in ("edm", "v-edm")
    is_quantized = denoiser.name == "DiscreteDenoiser" and bool(denoiser["quantize_c_noise"])
    is_free = sigmas.name == "EDMSampling"
    if is_quantized and takes_sigma:
        message = f"passes timesteps, but {scaling.name} needs a logarithm of sigma"
        denoiser.refuse("", message, "write Denoiser, or quantize_c_noise: False", "E1081")
    if not is_quantized and not takes_sigma:
        message = f"passes sigmas, but with {scaling.name} SDXL's network needs timesteps"
        denoiser.refuse("", message, "write DiscreteDenoiser", "E1081")
    if is_free and denoiser.name == "DiscreteDenoiser":
        sigmas.refuse(
            "", "samples any sigma, but DiscreteDenoiser supports only 1000 of them", "write Denoiser", "E1081"
        )
    draft.set("model.prediction", prediction, scaling.flag())
    draft.set("objective.noise_levels", "log-normal" if is_free else "timesteps", sigmas.flag())
    if is_free:
        pair = [sigmas["p_mean"], sigmas["p_std"]]
        draft.set("objective.log_normal", pair, sigmas.flag("p_mean"), sigmas.flag("p_std"))


def _set_weighting(draft: Draft, scaling: Node, weighting: Node, loss: Node) -> None:
    kind = _WEIGHTINGS[weighting.name]
    is_plain = (_PREDICTIONS[scaling.name], kind) in _PLAIN
    is_squared = _read_loss(loss)[0] == "mse"  # w |D - x_0| is |c_out| w times the plain error, and only c_out² w is 1
    draft.set("objective.weighting", "prediction" if is_plain and is_squared else kind, weighting.flag())
    by_sigma = {node["sigma_data"]: node for node in (scaling, weighting) if "sigma_data" in node.values}
    if len(by_sigma) > 1:
        weighting.refuse("sigma_data", "scaling and weighting must have the same sigma_data", code="E1081")
    for node in by_sigma.values():
        node.copy("objective.sigma_data", "sigma_data")


def _set_loss(draft: Draft, loss: Node) -> None:
    kind, key = _read_loss(loss)
    draft.set("objective.loss", kind, loss.flag(key))
    loss.copy("objective.noise_offset", "offset_noise_level")
    per = "channel" if loss.name == "StandardDiffusionLoss2" else "sample"
    draft.set("objective.noise_offset_per", per, loss.flag())


def _read_loss(loss: Node) -> tuple[str, str]:
    """The loss of the recipe, and its key in the YAML, which Stability's files name differently."""
    key = "loss_type" if "loss_type" in loss.written else "type"
    return {"l2": "mse", "l1": "l1"}.get(loss[key], "mse"), key
