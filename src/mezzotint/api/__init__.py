"""The Python API. `import mezzotint` gives all of it; each name is imported when it is first used.

From outside: every file.
"""

from mezzotint.api.datasets import ImageDataset as ImageDataset
from mezzotint.api.images import sample as sample
from mezzotint.api.images import sample_clips as sample_clips
from mezzotint.api.recipes import LoadedRecipe as LoadedRecipe
from mezzotint.api.recipes import recipe as recipe
from mezzotint.api.runs import Run as Run
from mezzotint.api.training import OpenTrainer as OpenTrainer
from mezzotint.api.training import open_trainer as open_trainer
from mezzotint.api.training import train as train
from mezzotint.errors import MezzotintError as MezzotintError
from mezzotint.errors import RecipeError as RecipeError
from mezzotint.recipe.base import Every as Every
from mezzotint.stages import StepReport as StepReport
from mezzotint.training.callbacks.base import Action as Action
from mezzotint.training.callbacks.base import Callback as Callback
from mezzotint.training.progress import Progress as Progress
from mezzotint.training.user_code import LossBatch as LossBatch
