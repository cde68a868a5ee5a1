"""The `model` of a YAML of MindONE's: networks, encoders, what is trained of them, and the mathematics of a step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mezzotint.dialects.mindone_sdxl import _optim
from mezzotint.dialects.mindone_sdxl._targets import (
    BASE,
    CONDITIONER,
    DENOISER,
    EMBEDDER,
    ENGINE,
    LOSS,
    NETWORK,
    NOTHING,
    REFINER,
    SCALING,
    SIGMAS,
    SIZES,
    TABLE,
    VAE,
    WEIGHTING,
)
from mezzotint.dialects.shared.targets import Config, Node, flag_of, lists
from mezzotint.recipe.reading.yaml_rules import Place

_HERE = ("model", "params")
_SIZE_KEYS = ("original_size_as_tuple", "crop_coords_top_left", "target_size_as_tuple")
_REFINER_KEYS = ("original_size_as_tuple", "crop_coords_top_left", "aesthetic_score")
_CLIP, _OPEN_CLIP, _NUMBERS = "FrozenCLIPEmbedder", "FrozenOpenCLIPEmbedder2", "ConcatTimestepEmbedderND"
_TOKENIZER = "openai/clip-vit-large-patch14"
_PREDICTIONS = {
    "EpsScaling": "epsilon", "EpsScaling2": "epsilon-unscaled", "VScaling": "v", "VScalingWithEDMcNoise": "v-edm",
    "EDMScaling": "edm",
}  # fmt: skip
_WEIGHTINGS = {"EpsWeighting": "epsilon", "VWeighting": "v", "UnitWeighting": "unit", "EDMWeighting": "edm"}
_PLAIN = frozenset(
    (("epsilon", "epsilon"), ("epsilon-unscaled", "epsilon"), ("v", "v"), ("v-edm", "v"), ("edm", "edm"))
)
"""Predictions with the weighting of which the squared error is the plain one of what the network says."""


def model(config: Config, *, is_drawn: bool = False) -> None:
    """Family, networks, precision of the autoencoder, recompute, attention, parts that are trained. is_drawn: the YAML
    is for drawing, and says nothing of the loss."""
    draft = config.draft
    engine = config.node(("model",), ENGINE)
    if engine is None:
        _require(config, ("model",))
        return
    draft.set("model.family", "sdxl", flag_of(("model", "target")))
    if "scale_factor" not in engine.written:
        draft.note(flag_of(("model", "target")), "scale_factor is not given; SDXL's 0.13025 is taken, there 1")
    _network(config)
    _autoencoder(config, engine)
    _conditioner(config)
    if is_drawn:
        _foretold(config)
    else:
        _diffusion(config)


def _require(config: Config, place: Place) -> None:
    """Says that something is missing, unless it is there and has been found wrong."""
    if config.at(place) is None:
        config.refuse(place, "is missing", "the YAML files that ship have it", "E1017")


def _part(config: Config, name: str, role: str) -> Node | None:
    place = (*_HERE, name)
    node = config.node(place, role)
    if node is None:
        _require(config, place)
    return node


# networks


def _network(config: Config) -> None:
    node, draft = _part(config, "network_config", NETWORK), config.draft
    if node is None:
        return
    _sizes(config, node)
    is_on = bool(node.values["use_recompute"] or node.values["use_checkpoint"])
    key = "use_recompute" if "use_recompute" in node.written else "use_checkpoint"
    draft.set("run.recompute.enabled", is_on, node.flag(key if key in node.written else "use_recompute"))
    attention, flag = node.values["spatial_transformer_attn_type"], node.flag("spatial_transformer_attn_type")
    match attention:
        case "flash-attention" | "softmax":
            draft.set("model.attention", "auto", flag)
        case "vanilla":
            draft.set("model.attention", "math", flag)
            draft.note(flag, "is the plain formula; flash-attention computes the same with a fraction of the memory")
        case "softmax-xformers":
            draft.set("model.attention", "xformers", flag)
        case _:
            here = (*node.place, "params", "spatial_transformer_attn_type")
            config.refuse(here, f"takes flash-attention or vanilla, got {attention!r}", code="E1017")


def _sizes(config: Config, node: Node) -> None:
    """What the weights decide; the depth may be less than theirs."""
    given = {key: node.values[key] for key in (*SIZES, "transformer_depth") if key in node.written}
    if all(BASE.get(key) == value for key, value in given.items()):
        return
    if all(REFINER.get(key) == value for key, value in given.items()):
        return
    odd = [key for key, value in given.items() if key != "transformer_depth" and BASE.get(key) != value]
    if odd:
        config.draft.note(node.flag(odd[0]), f"the network is as large as the weights say ({', '.join(odd)})")
    if "transformer_depth" not in given:
        return
    depth = lists(given["transformer_depth"])
    if not all(isinstance(layers, int) and layers >= 0 for layers in depth):
        here = (*node.place, "params", "transformer_depth")
        config.refuse(here, "must be a whole number, or a list of them", code="E1017")
        return
    if given["transformer_depth"] not in (BASE["transformer_depth"], REFINER["transformer_depth"]):
        config.draft.set("model.depth", list(depth), node.flag("transformer_depth"))


def _autoencoder(config: Config, engine: Node) -> None:
    draft = config.draft
    node = _part(config, "first_stage_config", VAE)
    if node is not None and node.values["lossconfig"]:
        config.node((*node.place, "params", "lossconfig"), NOTHING)
    is_exact = bool(engine.values["disable_first_stage_amp"])
    flag = engine.flag("disable_first_stage_amp")
    if draft.text("ms_amp_level") == "O0":
        return
    draft.set("run.vae_dtype", "fp32" if is_exact else "same", flag)
    if not is_exact:
        draft.note(
            flag,
            "is not True: the autoencoder computes in fp16, in which SDXL's own overflows. True is recommended, or the "
            "autoencoder that is repaired for fp16, by model.vae=madebyollin/sdxl-vae-fp16-fix",
        )


# text


def _conditioner(config: Config) -> None:
    node = _part(config, "conditioner_config", CONDITIONER)
    if node is None:
        return
    place = (*node.place, "params", "emb_models")
    embedders = list(config.nodes(place, EMBEDDER))
    if not embedders or len(embedders) < len(lists(config.at(place) or [])):
        _require(config, place)
        return
    text = [one for one in embedders if one.name != _NUMBERS]
    names = tuple(one.name for one in text)
    keys = tuple(_key(config, one) for one in embedders[len(text) :])
    fits = (names, keys) in (((_CLIP, _OPEN_CLIP), _SIZE_KEYS), ((_OPEN_CLIP,), _REFINER_KEYS))
    if not fits or embedders[: len(text)] != text:
        config.refuse(
            place,
            "SDXL is told its two text encoders, then original size, crop and target size; its refiner OpenCLIP, "
            f"original size, crop and aesthetic score; in this order. Got {', '.join((*names, *keys))}",
            code="E1081",
        )
        return
    for one in embedders[len(text) :]:
        if one.values["outdim"] != 256:
            config.refuse((*one.place, "params", "outdim"), f"SDXL has 256, got {one.values['outdim']}", code="E1081")
    _trained(config, text)
    _dropped(config, embedders, text)
    _tokenizer(config, text[0])


def _key(config: Config, node: Node) -> str:
    key = config.at((*node.place, "input_key")) or config.at((*node.place, "input_keys"))
    return str(key[0] if isinstance(key, list) and key else key)


def _trained(config: Config, text: Sequence[Node]) -> None:
    parts = {_CLIP: "text_encoder", _OPEN_CLIP: "text_encoder_2"}
    trained, draft = ["denoiser"], config.draft
    flags = []
    for one in text:
        flag = flag_of((*one.place, "is_trainable"))
        if not config.at((*one.place, "is_trainable")):
            continue
        if one.values["freeze"]:
            draft.note(flag, f"nothing of {one.name} is trained, since its `freeze` is True; write freeze: False")
            continue
        trained.append(parts[one.name])
        flags.append(flag)
    draft.set("model.train", trained, *(flags or [flag_of((*_HERE, "conditioner_config", "target"))]))


def _dropped(config: Config, embedders: Sequence[Node], text: Sequence[Node]) -> None:
    """Dropped captions, where the YAML asks for them at the embedders."""
    drops = [(config.at((*one.place, "ucg_rate")) or 0.0, config.at((*one.place, "legacy_ucg_value"))) for one in text]
    sizes = [config.at((*one.place, "ucg_rate")) for one in embedders[len(text) :]]
    place = (*text[0].place, "ucg_rate")
    if any(sizes) or any(one != drops[0] for one in drops):
        config.refuse(place, "is dropped for all text encoders together, and sizes are never", code="E1081")
        return
    rate, legacy = drops[0]
    if not rate:
        return
    if not isinstance(rate, (int, float)) or not 0 <= rate <= 1 or legacy not in (None, ""):
        config.refuse(place, f"must be a share from 0 to 1 with an empty legacy_ucg_value, got {rate}", code="E1017")
        return
    config.draft.set("data.captions.dropout", float(rate), flag_of(place))
    config.draft.set("data.captions.dropped", "empty" if legacy == "" else "zeros", flag_of(place))
    config.draft.note(flag_of(place), "states and pooled text are dropped together")


def _tokenizer(config: Config, node: Node) -> None:
    if node.name == _CLIP and node.values["version"] != _TOKENIZER:
        config.draft.note(
            node.flag("version"), f"the tokenizer of {_TOKENIZER} ships with Mezzotint, and is the one that is used"
        )


# the mathematics


def _diffusion(config: Config) -> None:
    denoiser = _part(config, "denoiser_config", DENOISER)
    loss = _part(config, "loss_fn_config", LOSS)
    if denoiser is None or loss is None:
        return
    sigmas = _sigmas(config, loss)
    scaling = config.node((*denoiser.place, "params", "scaling_config"), SCALING)
    inside = (*loss.place, "params", "loss_weighting_config")  # where Stability's files have it
    outside = (*denoiser.place, "params", "weighting_config")
    weighting = config.node(inside if config.at(inside) is not None else outside, WEIGHTING)
    for place, one in ((*denoiser.place, "params", "scaling_config"), scaling), (outside, weighting):
        if one is None:
            _require(config, place)
    if sigmas is None or scaling is None or weighting is None:
        return
    for node in (denoiser, sigmas):
        if node.values.get("discretization_config") is not None:
            config.node((*node.place, "params", "discretization_config"), TABLE)
    if sigmas.name == "DiscreteSamplingForZero3":
        _optim.shared(config, sigmas.place, parameters=True)
    _prediction(config, denoiser, scaling, sigmas)
    _weighting(config, scaling, weighting, loss)
    _loss(config, loss)


def _foretold(config: Config) -> None:
    """What the network says, without what it is trained by."""
    denoiser = _part(config, "denoiser_config", DENOISER)
    if denoiser is None:
        return
    place = (*denoiser.place, "params", "scaling_config")
    scaling = config.node(place, SCALING)
    if scaling is None:
        _require(config, place)
        return
    config.draft.set("model.prediction", _PREDICTIONS[scaling.name], flag_of((*scaling.place, "target")))


def _sigmas(config: Config, loss: Node) -> Node | None:
    inside = (*loss.place, "params", "sigma_sampler_config")
    if config.at(inside) is not None:
        return config.node(inside, SIGMAS)
    return _part(config, "sigma_sampler_config", SIGMAS)


def _prediction(config: Config, denoiser: Node, scaling: Node, sigmas: Node) -> None:
    draft, prediction = config.draft, _PREDICTIONS[scaling.name]
    tells_sigma = prediction in ("edm", "v-edm")
    is_quantized = denoiser.name == "DiscreteDenoiser" and bool(denoiser.values["quantize_c_noise"])
    is_free = sigmas.name == "EDMSampling"
    if is_quantized and tells_sigma:
        config.refuse(
            (*denoiser.place, "target"), f"tells timesteps, and {scaling.name} is told a logarithm of sigma",
            "write Denoiser, or quantize_c_noise: False", "E1081",
        )  # fmt: skip
    if not is_quantized and not tells_sigma:
        config.refuse(
            (*denoiser.place, "target"), f"tells sigmas, and with {scaling.name} SDXL's network knows timesteps",
            "write DiscreteDenoiser", "E1081",
        )  # fmt: skip
    if is_free and denoiser.name == "DiscreteDenoiser":
        config.refuse(
            (*sigmas.place, "target"), "draws any sigma, and DiscreteDenoiser knows 1000 of them", "write Denoiser",
            "E1081",
        )  # fmt: skip
    draft.set("model.prediction", prediction, flag_of((*scaling.place, "target")))
    draft.set("objective.levels", "log-normal" if is_free else "timesteps", flag_of((*sigmas.place, "target")))
    if is_free:
        pair = [sigmas.values["p_mean"], sigmas.values["p_std"]]
        draft.set("objective.log_normal", pair, sigmas.flag("p_mean"), sigmas.flag("p_std"))


def _weighting(config: Config, scaling: Node, weighting: Node, loss: Node) -> None:
    draft = config.draft
    kind = _WEIGHTINGS[weighting.name]
    is_plain = (_PREDICTIONS[scaling.name], kind) in _PLAIN
    is_squared = _loss_of(loss)[0] == "mse"  # w |D - x_0| is |c_out| w times the plain error, and only c_out² w is 1
    plain = "prediction" if is_squared else kind
    draft.set("objective.weighting", plain if is_plain else kind, flag_of((*weighting.place, "target")))
    if is_plain and not is_squared:
        draft.formerly["objective.weighting"] = "prediction"
    by_sigma = {node.values["sigma_data"]: node for node in (scaling, weighting) if "sigma_data" in node.values}
    if len(by_sigma) > 1:
        here = (*weighting.place, "params", "sigma_data")
        config.refuse(here, "scaling and weighting have one sigma_data", code="E1081")
    for value, node in by_sigma.items():
        draft.set("objective.sigma_data", value, node.flag("sigma_data"))


def _loss(config: Config, loss: Node) -> None:
    draft = config.draft
    kind, key = _loss_of(loss)
    draft.set("objective.loss", kind, loss.flag(key))
    offset: Any = loss.values["offset_noise_level"]
    draft.set("objective.noise_offset", offset, loss.flag("offset_noise_level"))
    per = "channel" if loss.name == "StandardDiffusionLoss2" else "sample"
    draft.set("objective.noise_offset_per", per, flag_of((*loss.place, "target")))


def _loss_of(loss: Node) -> tuple[str, str]:
    """Ours, and the key that says it; Stability's files call it otherwise."""
    key = "loss_type" if "loss_type" in loss.written else "type"
    return {"l2": "mse", "l1": "l1"}.get(loss.values[key], "mse"), key
