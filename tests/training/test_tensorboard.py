"""What a training leaves for TensorBoard."""

import numpy as np
import pytest
from export_helpers import make_model
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from hypertransformer_tf.analysis.training_pictures import training_pictures
from hypertransformer_tf.backend import tf
from hypertransformer_tf.data.array_file import load_array
from hypertransformer_tf.data.episodes import EpisodeSampler


@pytest.mark.slow
@pytest.mark.parametrize("switched_on", [True, False])
def test_scalars_pictures_and_the_graph(program, tiny_data, tiny_gin, tmp_path, switched_on):
    result = program(
        "train.py",
        f"--gin_file={tiny_gin}",
        f"--data_dir={tiny_data}",
        f"--workdir={tmp_path}",
        f"--gin_bindings=train.picture_episodes = {20 if switched_on else 0}",
        f"--gin_bindings=train.write_graph = {switched_on}",
        f"--gin_bindings=TrainingStep.weight_norms = {switched_on}",
    )
    assert result.returncode == 0, result.stderr
    events = EventAccumulator(str(tmp_path / "tensorboard"), {"tensors": 0})
    events.Reload()
    tags = events.Tags()
    names = set(tags["tensors"])
    expected = {"loss", "accuracy", "learning_rate", "gradient_norm", "episodes_per_second", "val_accuracy"}
    assert expected <= names
    layers = {f"layer_{i}" for i in range(1, 5)}
    norms = {f"norm/{layer}" for layer in (*layers, "logits")}
    pictures = {"episode", *(f"kernels/{layer}" for layer in layers)}
    for optional in (norms, pictures):
        assert names & optional == (optional if switched_on else set())
    assert tags["graph"] == switched_on
    if switched_on:
        assert [event.step for event in events.Tensors("episode")] == [10, 20, 30]


def test_pictures_of_a_model(tiny_data):
    episode = EpisodeSampler(load_array(tiny_data), 5, 1, 10)(tf.constant([0], tf.int64))
    pictures = training_pictures(make_model(), episode, side=4)
    assert pictures["episode"].ndim == 3 and pictures["episode"].dtype == np.uint8
    assert pictures["kernels/layer_1"].shape == (4 * 3, 4 * (4 * 4 - 1), 1)
    assert pictures["kernels/layer_2"].shape == (4 * (4 * 4 - 1), 4 * (4 * 4 - 1), 1)
    assert {0, 255} & set(np.unique(pictures["kernels/layer_2"]))
