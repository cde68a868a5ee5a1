"""The whole recipe. Only `tasks` reads it; below, a package takes its own section."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from mezzotint import registry
from mezzotint.recipe.base import FREE, Section
from mezzotint.recipe.sections.data import DataSettings
from mezzotint.recipe.sections.model import ModelSettings
from mezzotint.recipe.sections.objective import ObjectiveSettings
from mezzotint.recipe.sections.optim import OptimSettings
from mezzotint.recipe.sections.run import RunSettings
from mezzotint.recipe.sections.sample import SampleSettings


class Recipe(Section):
    """What a run is to do. Frozen: what ran is what was asked."""

    version: Annotated[Literal[1], FREE] = Field(default=1, alias="schema")
    """The version of this schema."""

    model: ModelSettings = ModelSettings()
    """The model and what of it is trained."""

    data: DataSettings = DataSettings()
    """The samples."""

    objective: ObjectiveSettings = ObjectiveSettings()
    """The mathematics."""

    optim: OptimSettings = OptimSettings()
    """The update."""

    run: RunSettings = RunSettings()
    """The run."""

    sample: SampleSettings = SampleSettings()
    """The pictures drawn from the model."""

    @model_validator(mode="after")
    def _agree(self) -> Recipe:
        if self.run.steps is not None and self.run.epochs is not None:
            raise ValueError("run.steps and run.epochs are both set; give one of them")
        if self.run.whole_epochs and self.run.steps is None:
            raise ValueError("run.whole_epochs is about run.steps, which is not set; set it, or leave this out")
        encoders = self.model.trained_encoders
        if self.data.cache.text and encoders:
            raise ValueError(
                "data.cache.text keeps what the text encoder said before training, but "
                f"model.train includes {encoders[0]}; "
                "set data.cache.text=false or train the denoiser alone"
            )
        self._refuse_unshared()
        for name in ("part_lr", "part_optimizer", "part_schedule"):
            unknown = sorted(set(getattr(self.optim, name)) - set(self.model.train))
            if unknown:
                raise ValueError(
                    f"optim.{name} names {', '.join(unknown)}, which model.train does not train (it "
                    f"trains {', '.join(self.model.train)})"
                )
        if self.model.last_layers is not None and "text_encoder" not in self.model.train:
            raise ValueError(
                "model.last_layers says how much of the text encoder is trained, but model.train does not train it; "
                "write model.train=[denoiser, text_encoder]"
            )
        return self

    def _refuse_unshared(self) -> None:
        """An optimizer that looks at a whole tensor, or at all of them, cannot work on rows of it."""
        if self.run.runtime != "fsdp":
            return
        if self.run.export.mindspore_optimizer or self.run.start.optimizer is not None:
            raise ValueError(
                "run.export.mindspore_optimizer and run.start.optimizer hold whole tensors, and with run.runtime=fsdp "
                "no process has any; leave them out, or take run.runtime=ddp"
            )
        for place, optimizer in {"optimizer": self.optim.optimizer, **self.optim.part_optimizer}.items():
            if not optimizer.allows_sharding:
                where = "optim.optimizer" if place == "optimizer" else f"optim.part_optimizer of {place}"
                raise ValueError(
                    f"run.runtime is fsdp, and {where} is {optimizer.kind}, which needs whole tensors; take one of "
                    f"{', '.join(_that_allow_sharding())}, or run.runtime=ddp"
                )


def _that_allow_sharding() -> list[str]:
    names = registry.names("recipe/optimizers", at_hand=True)
    return [name for name in names if registry.find("recipe/optimizers", name).Settings.allows_sharding]
