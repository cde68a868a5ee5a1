"""The model of a recipe without memory for its values, on which passes are counted."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode

from mezzotint.data.cache.text_rows import layout_of
from mezzotint.data.schedule import condition_shapes
from mezzotint.families.base import ModelFamily
from mezzotint.runtimes.base import Launch, Runtime, blocks_to_recompute, recompute_blocks
from mezzotint.settings.base import with_values
from mezzotint.settings.recipe import Recipe
from mezzotint.settings.resolved import blocks_on_device, gradient_sums
from mezzotint.settings.sections.model import ModelSettings
from mezzotint.settings.sections.run import GradientSums
from mezzotint.shapes import Size, latent_size
from mezzotint.stages import Condition, Loss, Noised, TextEmbedding
from mezzotint.tasks.assemble import family_class, only_texts_of_files, open_model
from mezzotint.tasks.check._fakes import WithoutPinning, give_fakes
from mezzotint.tasks.check._saved_bytes import SavedBytes
from mezzotint.tasks.resolving import resolve
from mezzotint.training.model import TrainableModel
from mezzotint.training.precision import attention
from mezzotint.training.precision.policy import Precision
from mezzotint.weights.folder.state import EmptyOnMeta
from mezzotint.weights.model_files import ModelFiles


@dataclass(frozen=True, slots=True)
class Activations:
    """What a forward pass saves for the backward pass. samples: of one micro-batch. kept: bytes, including casts of
    weights under autocast, excluding parameters. again: bytes of the largest recomputed block, which the backward pass
    needs on top; 0 without recompute. with_gradients: the peak of both and gradients in a backward pass that starts
    without gradients: they are allocated while activations are freed."""

    samples: int
    kept: int
    again: int
    with_gradients: int

    @property
    def bytes(self) -> int:
        """Both together: what must fit in addition to the weights."""
        return self.kept + self.again


class _MetaRuntime(Runtime):
    """One process without computation: the model stays on the meta device, without memory for values."""

    has_values = False

    def __init__(self, recipe: Recipe) -> None:
        super().__init__(torch.device("cpu"), Launch(), recipe.run)

    def prepare(
        self,
        parts: Mapping[str, nn.Module],
        trained: Mapping[str, nn.Parameter],
        blocks: Sequence[tuple[nn.Module, ...]] = (),
        weights: torch.dtype = torch.float32,
    ) -> Mapping[str, nn.Parameter]:
        return trained


class MetaModel:
    """The model of a recipe as a run opens it (`assemble.open_model`), without memory for its values, to count them.
    Its trained parameters and their update are on the meta device; for the passes, its parts and the objective are fake
    tensors on `device`. A folder of configurations is enough; weights are not opened. The attention of xformers is
    counted as torch's.

    recipe: located. device: "cpu" or "cuda", for the rules of autocast and attention. sums: of gradients, as in
    `Resolved`; by default those of the recipe. blocks: of the denoiser on the device at once, None for all of them;
    initially those of the recipe. Raises WeightsError for a model that cannot be described, RecipeError E1021 to E1024
    for what cannot be trained this way, E1060 and E1062 for an attention kernel that is not available."""

    def __init__(self, recipe: Recipe, device: str = "cpu", sums: GradientSums | None = None) -> None:
        self.recipe, self.device, self.blocks = recipe, device, blocks_on_device(recipe)
        self.sums = sums or gradient_sums(recipe)
        self.precision = Precision.of(recipe.run, self.sums)
        with EmptyOnMeta():
            self.files = family_class(recipe).files.from_configs(recipe.model)
        if not only_texts_of_files(recipe) and not set(self.files.parts) & set(self.files.spec.text_parts):
            self.files.network(
                self.files.spec.text_parts[0]
            )  # raises an error about the missing one, and where to get it
        attention.require_package(recipe.model.attention)
        # offloaded blocks are counted separately, and sharded weights have gradients of their type
        sums_of_update: GradientSums = "same" if recipe.run.runtime == "fsdp" else self.sums
        opened = replace(resolve(_remove_wrappers(recipe), 1, sums=sums_of_update), blocks_on_device=None)
        model = open_model(opened, self.files, _MetaRuntime(recipe), parts=self.files.parts)
        self.model = _with_wrappers_counted(model, recipe)
        self.family, self.trained, self.adapter = model.family, model.trained, model.adapter
        self.update, self.prediction = model.update, model.prediction
        self._fake = FakeTensorMode(allow_non_fake_inputs=True)
        with self._fake_tensors():
            for module in self.family.parts().values():
                give_fakes(module, device)
            self.objective = model.objective.to(device)
        self._again_most: int | None = None
        self._recomputing: Callable[[], AbstractContextManager[Any]] = nullcontext
        if recipe.run.gradient_checkpointing.enabled:
            blocks = list(self.family.blocks())
            for block in blocks_to_recompute(blocks, recipe.run.gradient_checkpointing):
                for module in block:
                    module.forward = self._wrap_with_counter(module.forward)
            recompute_blocks(blocks, recipe.run.gradient_checkpointing)

    def activations(self, size: Size, samples: int) -> Activations:
        """What the forward pass of a micro-batch saves. size: of its images."""
        counter = SavedBytes(self._model_tensors())
        self._again_most = 0
        moving = (p for p in self._model_tensors() if isinstance(p, nn.Parameter) and p.requires_grad)
        sizes = {id(p): p.numel() * self.precision.gradients.itemsize for p in moving}
        with self._fake_tensors(), counter.record_first_use(self.family.parts().values(), sizes):
            noised, text, weight = self._micro_batch(size, samples)
            with counter:
                loss = self._loss(noised, text, weight)
            assert loss.requires_grad
        again, self._again_most = self._again_most, None
        return Activations(samples, counter.bytes, again, counter.with_gradients(sum(sizes.values())) + again)

    def both_passes(
        self,
        size: Size,
        samples: int,
        counting: AbstractContextManager[Any],
        recomputing: Callable[[], AbstractContextManager[Any]] = nullcontext,
    ) -> None:
        """Runs forward and backward pass of a micro-batch within `counting`; frozen encoders run before it. size: of
        its images. recomputing: the context in which the backward pass recomputes a block."""
        with self._fake_tensors():
            noised, text, weight = self._micro_batch(size, samples)
            with counting, attention.use_attention(self.recipe.model.attention, torch.device(self.device)):
                loss = self._loss(noised, text, weight)
                self._recomputing = recomputing
                loss.backward()  # recomputes with the same attention
                self._recomputing = nullcontext
        for parameter in self.trained.values():
            parameter.grad = None

    def text_numbers(self) -> int:
        """The number of values in a caption's embedding."""
        with self._fake_tensors(), torch.no_grad():
            return layout_of(self._encode_empty_captions(1)).numbers

    @contextmanager
    def _fake_tensors(self) -> Iterator[None]:
        with self._fake, WithoutPinning():
            yield

    def _micro_batch(self, size: Size, samples: int) -> tuple[Noised, TextEmbedding | None, Tensor]:
        """Noised latents, text of a frozen encoder, weights of samples. Called in fake-tensor mode."""
        grid = self.family.grid
        latents = latent_size(size, grid.pixels, grid.frames)
        joined_images = self.recipe.data.clips.images if self.recipe.data.has_clips else 0
        frames = (latents.frames + joined_images,) if latents.frames + joined_images > 1 else ()
        x = torch.zeros(samples, grid.channels, *frames, latents.height, latents.width, device=self.device)
        t = torch.zeros(samples, dtype=torch.int64, device=self.device)
        noised = Noised(x_0=x, noise=x.clone(), x_t=x, model_input=x, model_t=t, level=t.float())
        return noised, self._frozen_text(samples), torch.ones(samples, device=self.device)

    def _loss(self, noised: Noised, text: TextEmbedding | None, weight: Tensor) -> Tensor:
        device = torch.device(self.device)
        with attention.use_attention(self.recipe.model.attention, device), self.precision.autocast(device):
            condition = self.family.condition(text or self.family.encode_text([""] * len(weight)), None)
            if self.recipe.data.has_clips and self.recipe.data.clips.images:
                of_images = self._frozen_text(len(weight) * self.recipe.data.clips.images)
                condition = replace(condition, joined_images=of_images)
            images = {name: self._condition(noised.x_0, name) for name in self.recipe.data.condition_names}
            condition = replace(condition, images=images)
            predicted = self.family.predict(noised, condition)
            loss = self.objective.loss(predicted, noised, weight)
            if self.model.preservation is not None:
                loss = self._preserved(loss, noised, condition, predicted)
        return loss.total

    def _preserved(self, loss: Loss, noised: Noised, condition: Condition, predicted: Tensor) -> Loss:
        """The loss with the passes of `objective.preserve`."""
        if self.recipe.objective.preserve.adds_pass:
            if self.recipe.model.trained_encoders:
                text = self.family.encode_text([""] * len(loss.weight))
                condition = replace(condition, text=text)
            predicted = self.family.predict(noised, condition)
        with torch.no_grad():
            target = self.family.predict(noised, condition)
        return replace(loss, preserved=self.objective.distance(predicted, target, noised))

    def _condition(self, x: Tensor, name: str) -> Tensor:
        """Latents of a condition image beside those of the samples: of the same size, or with `align: own` of the
        largest. Called in fake-tensor mode."""
        data, side = self.recipe.data, self.family.grid.pixels
        conditions = [one.settings.conditions.get(name) for one in data.image_sets()]
        if not any(condition is not None and condition.align == "own" for condition in conditions):
            return torch.zeros_like(x)
        size = latent_size(condition_shapes.find_largest(x.shape[-2] * x.shape[-1] * side**2, data), side)
        return x.new_zeros(*x.shape[:-2], size.height, size.width)

    def _frozen_text(self, samples: int) -> TextEmbedding | None:
        """None if the text encoder or a learned token is trained: its pass is then counted."""
        if self.recipe.model.trained_encoders:
            return None
        with torch.no_grad():
            return self._encode_empty_captions(samples)

    def _encode_empty_captions(self, samples: int) -> TextEmbedding:
        """The embedding by the text encoder; without a text encoder, in the shape that embeddings in files must
        have; with images of the largest size where the text encoder sees them."""
        shape, seen = self.files.text_shape(), self.files.text_images
        if shape is not None and seen is not None:
            shape = shape[0] + seen.tokens * len(self.recipe.data.condition_names), shape[1]
        elif shape is None or "text_encoder" in self.family.parts():
            return self.family.encode_text([""] * samples)
        states = torch.zeros(samples, *shape, dtype=self.precision.frozen, device=self.device)
        mask = torch.ones(samples, shape[0], dtype=torch.int64, device=self.device)
        return TextEmbedding(states, mask, lengths=(shape[0],) * samples)

    def _model_tensors(self) -> Iterable[Tensor]:
        for module in self.family.parts().values():
            yield from module.parameters()
            yield from module.buffers()

    def _wrap_with_counter(self, forward: Callable[..., Any]) -> Callable[..., Any]:
        """Counts what a block saves by itself, within its recompute, while `activations` runs: then the block is not
        computed again."""

        def run(*inputs: Any, **named: Any) -> Any:
            if self._again_most is None:
                with self._recomputing():
                    return forward(*inputs, **named)
            counter = SavedBytes(self._model_tensors())
            with counter:
                result = forward(*inputs, **named)
            self._again_most = max(self._again_most, counter.bytes)
            return result

        return run


def _remove_wrappers(recipe: Recipe) -> Recipe:
    """The recipe without what needs values or is counted separately: compiled blocks, recomputed blocks, kernels of
    xformers, and the device of the EMA, whose size is the same anywhere."""
    values: dict[str, Any] = {
        "run.compile": False,
        "run.gradient_checkpointing.enabled": False,
        "optim.ema.device": "same",
    }
    if recipe.model.attention == "xformers":
        values["model.attention"] = "auto"
    return with_values(recipe, values)


def _with_wrappers_counted(model: TrainableModel, recipe: Recipe) -> TrainableModel:
    """The same model with the numbers of recomputed blocks and compiled modules of the run."""
    blocks, settings = list(model.family.blocks()), recipe.run.gradient_checkpointing
    recomputed = len(blocks_to_recompute(blocks, settings)) if settings.enabled else 0
    return replace(model, recomputed_blocks=recomputed, compiled_blocks=sum(map(len, blocks)) * recipe.run.compile)


def build_described_model(kind: type[ModelFamily], settings: ModelSettings) -> tuple[ModelFiles, ModelFamily]:
    """A model by its configurations only, and its family with all parts on the meta device. Raises WeightsError."""
    with EmptyOnMeta():
        files = kind.files.from_configs(settings)
        return files, kind.load(files)
