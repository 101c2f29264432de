"""What a training step adds to the query loss: warm-up heads, regularisers, the shared head, dropout."""

import numpy as np
import pytest
from export_helpers import make_checkpoint, make_model

from hypertransformer_tf.backend import tf
from hypertransformer_tf.data.class_images import ClassImages
from hypertransformer_tf.data.episodes import EpisodeSampler
from hypertransformer_tf.errors import UserError
from hypertransformer_tf.training.losses import sum_of_squares
from hypertransformer_tf.training.masking import SupportMasking
from hypertransformer_tf.training.optimizers import Optimizer
from hypertransformer_tf.training.shared_head import SharedHead
from hypertransformer_tf.training.step import TrainingStep
from hypertransformer_tf.training.warmup import head_weights


@pytest.fixture(scope="module")
def sampler():
    random = np.random.default_rng(0)
    arrays = [random.integers(0, 256, [8, 16, 16, 1]).astype(np.uint8) for _ in range(7)]
    images = ClassImages.from_class_arrays(arrays, [str(i) for i in range(7)], "noise")
    return EpisodeSampler(images, way=5, shot=2, query=10, unlabeled=1, seed=3)


def losses(model, sampler, step=0, head=None, masking=None, **options):
    """Loss of one step of two episodes, before the update."""
    made = TrainingStep(
        model,
        Optimizer(lambda step: tf.constant(0.0)),
        sampler,
        masking=masking,
        shared_head=head,
        total_episodes=100,
        episodes_per_step=2,
        **options,
    )
    made.optimizer.build(made.variables)
    return float(made(tf.constant(step, tf.int64))["loss"]), made


def outputs(model, sampler):
    episodes = sampler(tf.constant([0, 1], tf.int64))
    arguments = (episodes.support_images, episodes.support_labels, None, episodes.query_images)
    return model(*arguments, with_heads=True), episodes


def test_head_weights_slide_from_the_first_to_the_last():
    at = [
        head_weights(3, tf.constant(n, tf.int64), 300).numpy().tolist() for n in (0, 50, 100, 250, 300, 900)
    ]
    assert at[0] == [1, 0, 0, 0] and at[2] == [0, 1, 0, 0]
    assert at[1] == [0.5, 0.5, 0, 0] and at[3] == [0, 0, 0.5, 0.5]
    assert at[4] == at[5] == [0, 0, 0, 1]


def test_only_the_first_head_counts_at_first_and_the_real_logits_at_last(sampler):
    model = make_model(warmup_heads=True)
    made, episodes = outputs(model, sampler)

    def cross_entropy(logits):
        return float(
            tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(episodes.query_labels, logits))
        )

    first, _ = losses(model, sampler, warmup_episodes=60)
    assert first == pytest.approx(cross_entropy(made.head_logits[0]), abs=1e-5)
    late = float(losses(model, sampler, step=1000, warmup_episodes=60)[0])
    assert late == pytest.approx(losses(model_without_heads(model), sampler, step=1000)[0], abs=1e-4)


def model_without_heads(model):
    plain = make_model()
    with_heads = model.named_variables()
    for name, variable in plain.named_variables().items():
        variable.assign(with_heads[name])
    return plain


@pytest.mark.parametrize("options", [{}, {"add_learned_weights": True}])
def test_regularisers_are_sums_of_squares_of_what_is_generated(sampler, options):
    model = make_model(num_learned_layers=1, **options)
    plain = losses(model, sampler)[0]
    slices = outputs(model, sampler)[0].slices
    assert set(slices) == {"layer_2", "layer_3", "layer_4", "logits"}
    everything = float(tf.reduce_mean(sum_of_squares(slices.values())))
    conv = everything - float(tf.reduce_mean(sum_of_squares([slices["logits"]])))
    assert losses(model, sampler, l2_generated=1e-3)[0] - plain == pytest.approx(1e-3 * everything, rel=1e-3)
    if options:
        varied = losses(model, sampler, weight_variation=1e-3)[0] - plain
        assert varied == pytest.approx(1e-3 * conv, rel=1e-3)
    else:
        with pytest.raises(UserError, match="add_learned_weights"):
            losses(model, sampler, weight_variation=1e-3)


def test_shared_head_joint_and_alone(sampler):
    model = make_model()
    head = SharedHead(model, 7, weight=2.0)
    made, episodes = outputs(model, sampler)
    labeled = episodes.support_labels.numpy() < 5
    by_hand = []
    for e in range(2):
        scores = (made.embeddings[e] @ head.dense.kernel + head.dense.bias).numpy()[labeled[e]]
        real = episodes.class_ids.numpy()[e][episodes.support_labels.numpy()[e][labeled[e]]]
        by_hand.append(np.mean(np.log(np.exp(scores).sum(-1)) - scores[np.arange(len(real)), real]))
    expected = 2.0 * np.mean(by_hand)
    joint = losses(model, sampler, head=head)[0]
    assert joint - losses(model, sampler)[0] == pytest.approx(expected, abs=1e-4)

    alone = SharedHead(model, 7, weight=2.0, alone=True)
    alone.dense.set_weights(head.dense.get_weights())
    loss, step = losses(model, sampler, head=alone)
    assert loss == pytest.approx(expected, abs=1e-4)
    kernel = model.named_variables()["shared_features/conv_1/kernel"]
    generator = next(v for name, v in model.named_variables().items() if name.startswith("generator"))
    before, untouched = kernel.numpy(), generator.numpy()
    step.optimizer = Optimizer(lambda step: tf.constant(0.1))
    step.optimizer.build(step.variables)
    step(tf.constant(0, tf.int64))
    assert np.abs(kernel - before).max() > 0
    np.testing.assert_array_equal(generator, untouched)


def test_image_embeddings_start_from_a_checkpoint(tmp_path):
    source, model = make_model(), make_model(num_learned_layers=2)
    source.named_variables()["shared_features/conv_1/kernel"].assign_add(tf.ones([3, 3, 1, 4]))
    make_checkpoint(tmp_path / "run", source)
    before = model.named_variables()["layer_1_kernel"].numpy()
    SharedHead(model, 7, restore=str(tmp_path / "run"))
    for name, variable in model.named_variables().items():
        if name.startswith("shared_features"):
            np.testing.assert_array_equal(variable, source.named_variables()[name])
    np.testing.assert_array_equal(model.named_variables()["layer_1_kernel"], before)
    with pytest.raises(UserError, match="shape"):
        SharedHead(make_model(shared_features=8), 7, restore=str(tmp_path / "run"))


def test_masking_reaches_the_model(sampler):
    model = make_model()
    hidden = losses(model, sampler, masking=SupportMasking(unlabeled_start=1.0, unlabeled_end=1.0))[0]
    assert hidden != losses(model, sampler)[0]
    episodes = sampler(tf.constant([0, 1], tf.int64))
    mask = tf.cast(episodes.support_labels == 5, tf.float32)
    made = model(episodes.support_images, episodes.support_labels, mask, episodes.query_images)
    entropy = tf.nn.sparse_softmax_cross_entropy_with_logits(episodes.query_labels, made.logits)
    assert hidden == pytest.approx(float(tf.reduce_mean(entropy)), abs=1e-4)


def test_dropout_is_on_in_a_step_and_the_same_every_time(sampler):
    model = make_model(cnn_dropout=0.5)
    first = losses(model, sampler)[0]
    assert first == losses(model, sampler)[0] != losses(model_without_heads(model), sampler)[0]


@pytest.mark.parametrize(
    "model, options, message",
    [
        ({}, {"warmup_episodes": 10}, "warmup_heads"),
        ({"warmup_heads": True}, {}, "warmup_episodes = 0"),
    ],
)
def test_halves_of_options(sampler, model, options, message):
    with pytest.raises(UserError, match=message):
        losses(make_model(**model), sampler, **options)


@pytest.mark.parametrize(
    "model, options, message",
    [
        ({}, {"weight": -1.0}, "weight = -1"),
        ({}, {"alone": True}, "weight above 0"),
        ({"shared_features": 0}, {"weight": 1.0}, "shared_features above 0"),
    ],
)
def test_impossible_shared_heads(model, options, message):
    with pytest.raises(UserError, match=message):
        SharedHead(make_model(**model), 7, **options)
