"""Which model is trained: its family, its files, which parts move."""

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

Names = Annotated[tuple[str, ...], BeforeValidator(as_list)]
Paths = Annotated[tuple[InputPath, ...], BeforeValidator(as_list)]


class ModelSettings(Section):
    """The model: where its files lie and what of it is trained."""

    family: Annotated[str, NEVER] = "sd"
    """The kind of model: a file name in `families/`. `sd` is Stable Diffusion 1.x and 2.x, `sdxl` SDXL's base model and
    its refiner; of models on straight paths see `docs/guides/flow.md`. `mezzotint ls families` lists all."""

    path: Annotated[ModelPath, FREE] = Path("tiny-sd")
    """A folder in diffusers' layout (model_index.json, unet/, vae/, text_encoder/, tokenizer/, scheduler/), a model in
    one file (.safetensors, .ckpt, .pt, .bin), or the name of a model that ships with Mezzotint. Relative paths are
    looked up beside the recipe, then in the current folder. What counts on resume is the content, not the path. A
    family may read other folders and files, see its section."""

    config: Annotated[ModelPath | None, FREE] = None
    """For a model in one file: a folder with its configurations, tokenizer and scheduler, in diffusers' layout. None
    takes those that ship and fit the file's tensors: SD 1.x, SD 2.x, SDXL, its refiner. Of models on straight paths it
    is needed, and has the parts that the file lacks, see `docs/guides/flow.md`. With
    `weights=random` it takes the place of the folder that `path` names: the networks are those of its configurations.
    Beside a folder whose weights are read it has no effect."""

    vae: Annotated[InputPath | None, FREE] = None
    """An autoencoder that takes the place of the model's own: its folder (config.json and weights), another model's
    folder, or its .safetensors file. For SDXL one that is repaired for half precision (fp16-fix). It is also what an
    export has. None keeps the model's. Of models on
    straight paths a file may also have its makers' names, as ComfyUI's `ae.safetensors`, see `docs/guides/flow.md`."""

    over: Annotated[Paths, FREE] = ()
    """Files or folders whose tensors take the place of the model's own, the last that has one first: of parts of it,
    such as the denoiser that a run has trained (`run.export.parts: trained`), or of all. `mezzotint merge` lays them
    over in the same way, and writes the result. Exports have them. Of families `sd` and `sdxl`; of models on straight
    paths whole text encoders in files, such as `t5xxl_fp16.safetensors`, each known by its tensors."""

    ema_weights: Annotated[Literal["ignore", "use"], NEVER] = "ignore"
    """For a model in one file that holds an averaged copy of its denoiser besides (`model_ema.*`): `ignore` trains from
    the plain weights, as fine-tuning usually does; `use` from the averaged ones."""

    weights: Annotated[Literal["files", "random"], NEVER] = "files"
    """`files` reads the folder's weights. `random` starts from random ones drawn from `run.seed`: for a folder with
    configurations and no weights, and only when you mean to train from nothing."""

    prediction: Annotated[Literal["epsilon", "v", "edm", "v-edm", "epsilon-unscaled"] | None, NEVER] = None
    """What the denoiser predicts: the noise (`epsilon`) or the velocity (`v`, Salimans and Ho 2022, arXiv:2202.00512);
    `edm` is the preconditioned one of Karras et al. 2022 (arXiv:2206.00364) with `objective.sigma_data`, told ¼ ln σ;
    `v-edm` the velocity, told ¼ ln σ; `epsilon-unscaled` the noise of an input x_0 + σ ε that is not scaled (MindONE's
    `EpsScaling2`). None takes what the folder's scheduler file says. Changing it makes the model learn a new target;
    the exported scheduler says so."""

    clip_skip: Annotated[int, Field(ge=0, le=4), NEVER] = 0
    """How many of the text encoder's last layers are left out; the final layer norm is applied all the same. 0 takes
    the last layer. SD2 folders already have the last layer removed. SDXL always leaves out one layer and the norm, and
    this many more; its pooled text is that of the last layer in any case."""

    train: Annotated[Names, NEVER] = ("denoiser",)
    """The parts that are trained, of `denoiser`, `text_encoder`, of SDXL and SD3 `text_encoder_2`, of Wan 2.2 A14B
    `denoiser_2` (see `docs/guides/flow.md`), and `tokens`, the new words of `model.tokens`. All others are frozen; T5
    and Qwen always are. A trained text encoder refuses a text cache, and so do new words."""

    last_layers: Annotated[PositiveInt | None, NEVER] = None
    """Of a trained text encoder, train only the last so many layers and what comes after them; its embeddings and
    earlier layers stay as they are. None trains all, and so does a number that is not below that of its layers."""

    freeze: Annotated[Names, NEVER] = ()
    """Parameters of trained parts that stay as they are, by name pattern with * and ?, such as
    `denoiser/down_blocks.*` or `text_encoder/*embeddings*`. A pattern after `!` names what is trained all the same,
    such as `!text_encoder/*embeddings*` with `model.last_layers`; one after `~` may match nothing, which a note then
    says."""

    adapter: AdapterSettings = AdapterSettings()
    """An adapter that is trained in the place of the parts' own weights."""

    tokens: TokenSettings = TokenSettings()
    """New words, textual inversion."""

    attention: Annotated[Literal["auto", "flash", "efficient", "cudnn", "math", "slice", "xformers"], ALLOW] = "auto"
    """Which kernel computes attention. `auto` lets torch choose (EveryDream2's `sdp`); `math` is the plain formula,
    slow and exact to follow; `slice` is that formula for half of the heads at a time, which spares memory only while
    sampling; `xformers` is that package's (extra `xformers`)."""

    depth: Annotated[tuple[NonNegativeInt, ...] | None, NEVER] = None
    """Transformer layers at each level of the denoiser, from the input down; the middle takes the last number. Fewer
    than the files have make a smaller denoiser, for trying things out, such as `[1, 1, 1]` of SDXL's [1, 2, 10]: which
    layers are left out is said, and all else must fit. Null takes what the files say."""

    @property
    def described_by(self) -> Path:
        """The folder whose configurations say what the networks are, or the single file: of random weights
        `model.config` where it is given. With paths resolved."""
        is_config = self.weights == "random" and self.config is not None and not self.path.is_file()
        return self.config if is_config and self.config is not None else self.path

    def contradictions(self) -> Iterator[str]:
        if self.family in registry.names(families.FOLDER):
            yield from self._of_others()
        if self.over and (self.weights == "random" or self.ema_weights == "use"):
            yield (
                "model.over lays files over the plain weights of a model, and model.weights=random and "
                "model.ema_weights=use have none; leave one of them out"
            )
        if tokens.PART in self.train and not self.tokens.are_there:
            yield (
                "model.train names tokens, and model.tokens brings no new word; write "
                'model.tokens.words={"<toy>": toy}, a new word and what it begins as'
            )
        if self.tokens.words and tokens.PART not in self.train:
            yield "model.tokens.words are new and nothing trains them; write model.train=[tokens], beside other parts"
        if self.has_adapter and self.train == (tokens.PART,):
            yield "model.adapter changes no tokens; add denoiser to model.train, or leave the adapter out"
        if self.has_adapter and (self.freeze or self.last_layers is not None):
            name = "freeze" if self.freeze else "last_layers"
            yield f"model.{name} is for the model's own weights; of an adapter, name layers in model.adapter.targets"

    def _of_others(self) -> Iterator[str]:
        """What has no meaning for this family: what it refuses, and the sections of others."""
        reasons, fields = families.refused_by(families.family_spec(self.family)), type(self).model_fields
        refused = [n for n in reasons if n in fields and getattr(self, n, fields[n].default) != fields[n].default]
        if not refused:
            return
        taking = [s.name for s in families.specs() if not set(refused) & families.refused_by(s).keys()]
        several, why = len(refused) > 1, "; ".join(dict.fromkeys(reasons[name] for name in refused))
        yield (
            f"{', '.join(f'model.{name}' for name in refused)} {'have' if several else 'has'} no meaning for "
            f"model.family={self.family}: {why}; leave {'them' if several else 'it'} out"
            + (f", or set model.family={taking[0]}" if len(taking) == 1 else "")
        )

    @property
    def has_adapter(self) -> bool:
        """Whether an adapter is trained, and no weight of the model's own."""
        return self.adapter.is_trained

    @property
    def trained_encoders(self) -> tuple[str, ...]:
        """The text encoders among the parts that are trained, and new words, which are theirs."""
        return tuple(part for part in self.train if part.startswith("text_encoder") or part == tokens.PART)

    @property
    def adapted(self) -> tuple[str, ...]:
        """The trained parts that an adapter is put on."""
        return tuple(part for part in self.train if part != tokens.PART)


for _spec in families.specs():
    ModelSettings.add_section(_spec.section, _spec.settings)
