"""Finding and loading the best model of a training run."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from hypertransformer_tf import storage
from hypertransformer_tf.baselines.learner import Learner
from hypertransformer_tf.baselines.methods import rebuild_model
from hypertransformer_tf.errors import UserError
from hypertransformer_tf.models.hypertransformer import HyperTransformer
from hypertransformer_tf.storage import Place
from hypertransformer_tf.training import checkpoints

# Comes with the project, for drawings and characters (gin/characters.gin).
CHARACTERS = Path(__file__).resolve().parents[2] / "results" / "checkpoints" / "characters"


_NEEDED = ("model", "task", "dataset", "generated", "episodes_trained")


@dataclasses.dataclass(frozen=True)
class Trained:
    """A model checkpoint: its folder and what its manifest says of it."""

    path: Place
    manifest: dict

    @property
    def method(self) -> str:
        """A name in `methods.METHODS`; older checkpoints, which don't say it, are HyperTransformers."""
        return self.manifest.get("method", HyperTransformer.method)

    def load_model(self, baselines: bool = False) -> HyperTransformer | Learner:
        """Builds the model that the manifest describes and fills its variables.

        Args:
            baselines: baselines are welcome, too.

        Raises:
            UserError: for a checkpoint of another method or version.
        """
        if not baselines and self.method != HyperTransformer.method:
            raise UserError(
                f"checkpoint {self.path} is of method {self.method!r}: this needs a HyperTransformer"
            )
        try:
            model = rebuild_model(self.method, dict(self.manifest["model"]))
        except TypeError as error:
            raise UserError(
                f"checkpoint {self.path} has options that this version does not know ({error}): "
                "use the version that made it"
            ) from error
        checkpoints.load_model(self.path, model.named_variables())
        return model

    def fill(self, model: HyperTransformer | Learner) -> None:
        """Gives a model the variables of this one, which must have been built alike, but for dropout.

        Raises:
            UserError: naming the first difference.
        """
        saved = {"make_model.method": self.method, **self.manifest["model"]}
        wanted = {"make_model.method": model.method, **model.config()}
        saved, wanted = (
            {name: value for name, value in options.items() if not name.endswith("dropout")}
            for options in (saved, wanted)
        )
        checkpoints.check_fingerprint(self.path, saved, wanted, "another train.start")
        checkpoints.load_model(self.path, model.named_variables())


def find(place: str | Place, must: bool = True) -> Trained | None:
    """The model checkpoint in a place.

    Args:
        place: a run's workdir (its best model), a folder of checkpoints, or a checkpoint folder itself;
            on this machine or in a store (gs://...).
        must: raise instead of returning None when there is none.

    Raises:
        UserError: when the folder does not exist or the model in it is damaged.
    """
    place = storage.place(place)
    if (place / checkpoints.MANIFEST).exists():
        try:
            manifest = checkpoints.read_manifest(place)
        except ValueError as error:
            raise UserError(f"checkpoint {place} is damaged ({error}): use another one") from error
        if checkpoints.MODEL_FILE in manifest["files"] and not set(_NEEDED) <= set(manifest):
            raise UserError(f"{place} is no checkpoint of a HyperTransformer: use one that train.py made")
        if checkpoints.MODEL_FILE not in manifest["files"]:
            raise UserError(f"{place} is a training state: give its workdir, whose best model is evaluated")
        return Trained(place, manifest)
    for folder in (place / "checkpoints", place):
        found = checkpoints.newest_sound(folder, "best")
        if found:
            return Trained(*found)
    if must:
        what = "holds no model yet" if place.is_dir() else "does not exist"
        raise UserError(f"checkpoint {place} {what}: train one with train.py --workdir={place}")
    return None
