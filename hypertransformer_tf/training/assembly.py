"""The training step of the loaded configuration, for other uses than a training run."""

from __future__ import annotations

from typing import NamedTuple

import gin
import numpy as np

from hypertransformer_tf.backend import keras, tf
from hypertransformer_tf.baselines.learner import Learner
from hypertransformer_tf.baselines.methods import make_model
from hypertransformer_tf.data.augmentation import Augmentation
from hypertransformer_tf.data.class_images import ClassImages
from hypertransformer_tf.data.episodes import EpisodeSampler
from hypertransformer_tf.models.hypertransformer import HyperTransformer
from hypertransformer_tf.training.averaging import WeightAverage
from hypertransformer_tf.training.loop import Task
from hypertransformer_tf.training.masking import SupportMasking
from hypertransformer_tf.training.optimizers import Optimizer
from hypertransformer_tf.training.schedules import LearningRate
from hypertransformer_tf.training.shared_head import SharedHead
from hypertransformer_tf.training.step import TrainingStep

_SHAPES = {"omniglot": (28, 28, 1), "glyphs": (28, 28, 1), "embeddings": (1, 1, 640), "cifar_fs": (32, 32, 3)}


class Assembly(NamedTuple):
    """A training step with what it consists of; every variable is there, nothing is traced."""

    task: Task
    model: HyperTransformer | Learner
    optimizer: Optimizer
    average: WeightAverage
    step: TrainingStep

    @property
    def variables(self) -> list[tf.Variable]:
        """All that a step reads or writes: parameters, moving statistics, averages, the optimizer's state."""
        optimizer = self.optimizer
        owners = [self.step.variables, self.model.variables, self.average.shadows]
        owners += [optimizer.variables, *(part.variables() for part in optimizer.parts.values())]
        return list({v.ref(): v for variables in owners for v in variables}.values())


def assemble_step(images: ClassImages, seed: int = 0, total_episodes: int = 4_000_000) -> Assembly:
    """Builds the step that `train` would run; call it in the scope of a strategy.

    Args:
        images: the training classes.
        seed: of parameters and episodes.
        total_episodes: length of the training, for schedules.

    Raises:
        UserError: for impossible values or combinations in the configuration.
    """
    task = Task()
    keras.utils.set_random_seed(seed)
    sampler = EpisodeSampler(
        images,
        task.way,
        task.shot,
        task.query,
        task.unlabeled,
        seed,
        "train",
        task.rotate,
        Augmentation(),
    )
    model = make_model(task.way, images.image_shape, images.num_classes)
    rate = LearningRate()
    optimizer = Optimizer(lambda number: rate(number * step.episodes_per_step, total_episodes))
    shared_head = SharedHead(model, images.num_classes)
    average = WeightAverage(model.trainable_variables)
    step = TrainingStep(model, optimizer, sampler, average, SupportMasking(), shared_head, total_episodes)
    optimizer.build(step.variables)
    return Assembly(task, model, optimizer, average, step)


def configured_image_shape() -> tuple[int, int, int]:
    """(height, width, channels) of the images that the loaded configuration asks for."""
    data = _parameter("load_splits.name", "omniglot").removesuffix("+glyphs")
    height, width, channels = _SHAPES.get(data, (84, 84, 3))
    if data == "folder":
        height, channels = 28, _parameter("load_splits.channels", 1)
    if height > 1:
        height = width = _parameter("load_splits.image_size", None) or height
    return (height, width, channels)


def made_up_images(shape: tuple[int, int, int], classes: int = 20, per_class: int = 40) -> ClassImages:
    """Random images (embeddings, if 1x1) that stand for a data set where only its shape counts.

    Args:
        shape: (height, width, channels).
        classes, per_class: how many there are.
    """
    random = np.random.default_rng(0)
    if shape[:2] == (1, 1):
        arrays = random.normal(size=[classes, per_class, *shape]).astype(np.float32)
    else:
        arrays = random.integers(0, 256, [classes, per_class, *shape], np.uint8)
    return ClassImages.from_class_arrays(arrays, [str(i) for i in range(classes)], "made-up images")


def _parameter(name: str, default):
    try:
        return gin.query_parameter(name)
    except ValueError:  # not bound
        return default
