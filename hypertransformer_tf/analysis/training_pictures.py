"""Pictures of a model in training, for TensorBoard."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
from PIL import Image

from hypertransformer_tf.analysis.episode_picture import draw_episode
from hypertransformer_tf.analysis.kernels import kernel_grid
from hypertransformer_tf.data.episodes import Episodes
from hypertransformer_tf.models.hypertransformer import HyperTransformer


def training_pictures(model: HyperTransformer, episode: Episodes, side: int = 8) -> dict[str, np.ndarray]:
    """An episode with predictions, and the kernels of the CNN written for it.

    Args:
        model: a built HyperTransformer.
        episode: a batch of one episode.
        side: size of a kernel's value in pixels.

    Returns:
        {"episode": ..., "kernels/<layer>": ...}, each uint8 [height, width, channels]; kernels are grey,
        0 in the middle.
    """
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "episode.png"
        draw_episode(model, episode, file)
        with Image.open(file) as image:
            pictures = {"episode": np.asarray(image.convert("RGB"))}
    weights = model.generate(episode.support_images, episode.support_labels, episode.support_mask)
    for layer in model.cnn.conv_layers:
        grid = np.nan_to_num(np.asarray(kernel_grid(weights[layer.name]["kernel"][0].numpy())))
        largest = max(float(np.abs(grid).max()), 1e-9)
        grey = (127.5 + 127.5 * grid / largest).astype(np.uint8)
        pictures[f"kernels/{layer.name}"] = grey.repeat(side, 0).repeat(side, 1)[..., None]
    return pictures
