"""The model: its family, its files, which parts are trained."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, NonNegativeInt, PositiveInt

from mezzotint import registry
from mezzotint.settings.base import ALLOW, FREE, NEVER, InputPath, ModelPath, Section, as_list
from mezzotint.settings.families import base as families
from mezzotint.settings.sections import tokens
from mezzotint.settings.sections.adapter import AdapterSettings
from mezzotint.settings.sections.tokens import TokenSettings
from mezzotint.settings.sections.under import Under

Names = Annotated[tuple[str, ...], BeforeValidator(as_list)]
Paths = Annotated[tuple[InputPath, ...], BeforeValidator(as_list)]


class ModelSettings(Section):
    """The model: its files and which parts are trained."""

    family: Annotated[str, NEVER] = "sd"
    """The kind of model: a file name in `families/`. `sd` is Stable Diffusion 1.x and 2.x, `sdxl` SDXL's base model and
    its refiner; for flow-matching models see `docs/guides/flow.md`. `mezzotint ls families` lists all."""

    path: Annotated[ModelPath, FREE] = Path("tiny-sd")
    """A folder in diffusers' layout (model_index.json, unet/, vae/, text_encoder/, tokenizer/, scheduler/), a
    single-file model (.safetensors, .ckpt, .pt, .bin), or the name of a model that ships with Mezzotint. Relative paths
    are looked up next to the recipe, then in the current folder. On resume only the content is compared, not the path.
    A family may read other folders and files, see its section."""

    config: Annotated[ModelPath | None, FREE] = None
    """For a single-file model: a folder with its configurations, tokenizer and scheduler, in diffusers' layout. None
    uses the shipped ones that fit the file's tensors: SD 1.x, SD 2.x, SDXL, its refiner, SD3, FLUX.1. Other
    flow-matching models require it. It may be a hub id in the local cache, such as `Qwen/Qwen-Image`. Parts that are in
    no file of their own are read from it, see `docs/guides/flow.md`. With `weights=random` its configurations define
    the networks instead of those in the folder `path`. No effect with a folder whose weights are read."""

    vae: Annotated[InputPath | None, FREE] = None
    """An autoencoder that replaces the model's: its folder (config.json and weights), another model's folder, or its
    .safetensors file, such as SDXL's repaired for half precision (fp16-fix). Exports contain it. None keeps the
    model's. For flow-matching models it may also be an original-format file, such as ComfyUI's `ae.safetensors`, see
    `docs/guides/flow.md`."""

    over: Annotated[Paths, FREE] = ()
    """Files or folders whose tensors replace the model's, later ones winning: some parts, such as a denoiser trained by
    a run (`run.export.parts: trained`), or all. `mezzotint merge` applies them in the same way and writes the result.
    Exports contain them. For the families `sd` and `sdxl`; for flow-matching models whole files of text encoders
    (`t5xxl_fp16.safetensors`) or of an image encoder (`clip_vision_h.safetensors`), each recognised by its tensors."""

    ema_weights: Annotated[Literal["ignore", "use"], NEVER] = "ignore"
    """For a single-file model with an averaged copy of its denoiser (`model_ema.*`): `ignore` trains from the plain
    weights, as usual in fine-tuning; `use` from the averaged ones."""

    weights: Annotated[Literal["files", "random"], NEVER] = "files"
    """`files` reads the folder's weights. `random` initialises them from `run.seed`: for a folder with configurations
    and no weights, and only to train from scratch."""

    prediction: Annotated[Literal["epsilon", "v", "edm", "v-edm", "epsilon-unscaled"] | None, NEVER] = None
    """What the denoiser predicts: the noise (`epsilon`) or the velocity (`v`, Salimans and Ho 2022, arXiv:2202.00512);
    `edm` is the preconditioned one of Karras et al. 2022 (arXiv:2206.00364) with `objective.sigma_data` and the input ¼
    ln σ; `v-edm` the velocity with the input ¼ ln σ; `epsilon-unscaled` the noise of an unscaled input x_0 + σ ε
    (MindONE's `EpsScaling2`). None uses the folder's scheduler file. Another value makes the model learn a new target,
    which the exported scheduler records."""

    task: Annotated[Literal["auto", "text", "edit", "inpaint"], NEVER] = "auto"
    """What the denoiser is given: `text` alone, for `edit` also the image before the edit, `data.conditions.source`
    (InstructPix2Pix, Brooks et al. 2023, arXiv:2211.09800; FLUX.1 Kontext, Labs et al. 2025, arXiv:2506.15742), for
    `inpaint` a region to fill and the image without it (`data.inpaint`). `auto` takes it from the model's files. `edit`
    and `inpaint` with a text-to-image model of the families `sd` and `sdxl` add input channels with zero weights, which
    only training of the whole denoiser can fill. FLUX.1 dev and Kontext differ only in their weights, so a single file
    of Kontext needs `edit`."""

    clip_skip: Annotated[int, Field(ge=0, le=4), NEVER] = 0
    """How many of the text encoder's last layers are skipped; the final layer norm is still applied. 0 uses the last
    layer. SD2 folders already lack the last layer. SDXL always skips one layer and the norm, and this many more; its
    pooled text always comes from the last layer."""

    caption_tokens: Annotated[Literal[75, 150, 225], NEVER] = 75
    """The longest caption of Stable Diffusion and SDXL, in tokens; CLIP reads 75 at once. Of 150 or 225 it reads two or
    three pieces, whose hidden states are put together, as sd-scripts' `max_token_length` does. Longer captions are
    truncated. Prompts are read in the same way."""

    train: Annotated[Names, NEVER] = ("denoiser",)
    """The trained parts: `denoiser`, `text_encoder`, for SDXL and SD3 `text_encoder_2`, for Wan 2.2 A14B `denoiser_2`
    (see `docs/guides/flow.md`), and `tokens`, the learned tokens of `model.tokens`. All others are frozen; T5 and Qwen
    always are. A trained text encoder refuses a text cache, and so do learned tokens."""

    last_layers: Annotated[PositiveInt | None, NEVER] = None
    """Train only this many last layers of a trained text encoder and what follows them; its embeddings and earlier
    layers are frozen. None trains all, and so does a number that is not below the number of layers."""

    freeze: Annotated[Names, NEVER] = ()
    """Parameters of trained parts that are frozen, by name pattern with * and ?, such as `denoiser/down_blocks.*` or
    `text_encoder/*embeddings*`. A pattern after `!` is trained all the same, such as `!text_encoder/*embeddings*` with
    `model.last_layers`. A pattern after `~` may match nothing, which is reported as a note."""

    adapter: AdapterSettings = AdapterSettings()
    """An adapter (LoRA and others) that is trained instead of the model's weights."""

    under: Under = ()
    """Frozen adapters that change the denoiser while it is trained, such as an adapter that undoes the distillation of
    Z-Image Turbo: a path, or a list of `{path: FILE, strength: 1.0}`. Exports, previews and samples are without them
    (see `sample.under`). A distilled model may be trained with one. See `docs/guides/distilled.md`."""

    tokens: TokenSettings = TokenSettings()
    """Learned tokens (textual inversion)."""

    attention: Annotated[Literal["auto", "flash", "efficient", "cudnn", "math", "slice", "xformers"], ALLOW] = "auto"
    """The attention kernel. `auto` lets torch choose (EveryDream2's `sdp`); `math` is the plain formula, slow and
    exactly reproducible; `slice` computes it for half of the heads at a time, which saves memory only while sampling;
    `xformers` is that package's kernel (extra `xformers`)."""

    depth: Annotated[tuple[NonNegativeInt, ...] | None, NEVER] = None
    """Transformer layers at each level of the denoiser, from the input down; the middle block has the last number.
    Fewer than in the files make a smaller denoiser for experiments, such as `[1, 1, 1]` of SDXL's [1, 2, 10]; the
    skipped layers are printed, and everything else must fit. Null uses the files' numbers."""

    @property
    def config_source(self) -> Path:
        """The folder or single file that defines the networks: with random weights `model.config` if it is set. Paths
        must be resolved."""
        is_config = self.weights == "random" and self.config is not None and not self.path.is_file()
        return self.config if is_config and self.config is not None else self.path

    def contradictions(self) -> Iterator[str]:
        if self.family in registry.names(families.FOLDER):
            yield from self._refused_settings()
        if self.over and (self.weights == "random" or self.ema_weights == "use"):
            yield (
                "model.over replaces tensors of a model's plain weights, which model.weights=random and "
                "model.ema_weights=use do not read; leave one of them out"
            )
        if tokens.PART in self.train and not self.tokens.has_any:
            yield (
                "model.train names tokens, and model.tokens has no learned token; write "
                'model.tokens.words={"<toy>": toy}, a new token and its initial words'
            )
        if self.tokens.words and tokens.PART not in self.train:
            yield "model.tokens.words are new and not trained; add tokens to model.train, such as model.train=[tokens]"
        if self.has_adapter and self.train == (tokens.PART,):
            yield "model.adapter does not train tokens; add denoiser to model.train, or leave the adapter out"
        if self.has_adapter and (self.freeze or self.last_layers is not None):
            name = "freeze" if self.freeze else "last_layers"
            yield f"model.{name} is for the model's weights; for an adapter, select layers by model.adapter.targets"

    def _refused_settings(self) -> Iterator[str]:
        """Settings without a meaning for this family: those it refuses, and the sections of other families."""
        reasons, fields = families.find_refused_settings(families.family_spec(self.family)), type(self).model_fields
        refused = [n for n in reasons if n in fields and getattr(self, n, fields[n].default) != fields[n].default]
        if not refused:
            return
        accepting = [s.name for s in families.specs() if not set(refused) & families.find_refused_settings(s).keys()]
        several, why = len(refused) > 1, "; ".join(dict.fromkeys(reasons[name] for name in refused))
        yield (
            f"{', '.join(f'model.{name}' for name in refused)} {'have' if several else 'has'} no meaning for "
            f"model.family={self.family}: {why}; leave {'them' if several else 'it'} out"
            + (f", or set model.family={accepting[0]}" if len(accepting) == 1 else "")
        )

    @property
    def has_adapter(self) -> bool:
        """Whether an adapter is trained instead of the model's weights."""
        return self.adapter.is_trained

    @property
    def trained_encoders(self) -> tuple[str, ...]:
        """The trained text encoders, and `tokens`, which belong to them."""
        return tuple(part for part in self.train if part.startswith("text_encoder") or part == tokens.PART)

    @property
    def adapted_parts(self) -> tuple[str, ...]:
        """The trained parts that get an adapter."""
        return tuple(part for part in self.train if part != tokens.PART)


for _spec in families.specs():
    ModelSettings.add_section(_spec.section, _spec.settings)
