"""Invariances, sizes and equalities of the whole model."""

import numpy as np
import pytest

from hypertransformer_tf.backend import keras, tf
from hypertransformer_tf.errors import UserError
from hypertransformer_tf.models.hypertransformer import HyperTransformer

WAY, SHOT, QUERY, EPISODES = 4, 2, 6, 3
SHAPE = (16, 16, 1)


def make(way=WAY, image_shape=SHAPE, channels=4, **options):
    keras.utils.set_random_seed(0)
    model = HyperTransformer(way=way, image_shape=image_shape, channels=channels, **options)
    model.build_variables()
    return model


@pytest.fixture(scope="module")
def model():
    return make()


@pytest.fixture
def episode():
    rng = np.random.default_rng(1)
    support = rng.uniform(-1, 1, [EPISODES, WAY * SHOT, *SHAPE]).astype(np.float32)
    labels = np.stack([rng.permutation(np.repeat(np.arange(WAY), SHOT)) for _ in range(EPISODES)])
    query = rng.uniform(-1, 1, [EPISODES, QUERY, *SHAPE]).astype(np.float32)
    return support, labels.astype(np.int32), query


def assert_same(one, other):
    """Equal to 1e-5 of the largest value: what float32 leaves after a few hundred operations."""
    np.testing.assert_allclose(one, other, rtol=0, atol=1e-5 * max(1.0, np.abs(other).max()))


def logits(model, support, labels, query, mask=None, statistics="support"):
    return model(support, labels, mask, query, statistics=statistics).logits.numpy()


@pytest.mark.parametrize("statistics", ["support", "query", "moving"])
def test_permuting_the_support_set_changes_no_logits(model, episode, statistics):
    support, labels, query = episode
    order = np.random.default_rng(2).permutation(WAY * SHOT)
    before = logits(model, support, labels, query, statistics=statistics)
    after = logits(model, support[:, order], labels[:, order], query, statistics=statistics)
    assert_same(after, before)


def test_permuting_the_query_set_permutes_the_logits(model, episode):
    support, labels, query = episode
    before = logits(model, support, labels, query)
    assert_same(logits(model, support, labels, query[:, ::-1]), before[:, ::-1])


def test_renaming_classes_and_their_embeddings_permutes_the_logits(episode):
    support, labels, query = episode
    model = make()
    before = logits(model, support, labels, query)
    new_name = np.array([2, 0, 3, 1])
    for generator in model.generators:
        old = generator.labels.embeddings.numpy()
        renamed = old.copy()
        renamed[new_name] = old[:WAY]
        generator.labels.embeddings.assign(renamed)
    placeholders = model.generators[-1].placeholders.embeddings
    old = placeholders.numpy()
    renamed = old.copy()
    renamed[new_name] = old
    placeholders.assign(renamed)
    after = logits(model, support, new_name[labels].astype(np.int32), query)
    assert_same(after[:, :, new_name], before)
    assert np.abs(after - before).max() > 1e-2


@pytest.mark.parametrize("options", [{}, {"shared_batch_norm": True}, {"num_learned_layers": 2}])
def test_masked_samples_have_no_effect(episode, options):
    support, labels, query = episode
    model = make(**options)
    extra = np.full([EPISODES, 3, *SHAPE], 0.9, np.float32)
    mask = np.zeros([EPISODES, WAY * SHOT + 3], np.float32)
    mask[:, -3:] = 1.0
    with_extra = np.concatenate([support, extra], 1), np.pad(labels, [(0, 0), (0, 3)])
    masked = logits(model, *with_extra, query, mask)
    assert_same(masked, logits(model, support, labels, query))
    other = support.copy(), np.pad(labels, [(0, 0), (0, 3)], constant_values=1)
    changed = np.concatenate([other[0], -extra], 1), other[1]
    np.testing.assert_array_equal(logits(model, *changed, query, mask), masked)


def test_unlabeled_samples_do_have_an_effect(model, episode):
    support, labels, query = episode
    extra = np.concatenate([support, support[:, :2] * 0.5], 1)
    unlabeled = np.pad(labels, [(0, 0), (0, 2)], constant_values=WAY)
    labeled = np.pad(labels, [(0, 0), (0, 2)])
    before = logits(model, support, labels, query)
    assert np.abs(logits(model, extra, unlabeled, query) - before).max() > 1e-3
    assert np.abs(logits(model, extra, unlabeled, query) - logits(model, extra, labeled, query)).max() > 1e-3


@pytest.mark.parametrize("method", ["unrolled", "grouped", "vectorized"])
@pytest.mark.parametrize("statistics", ["support", "query", "moving"])
def test_a_batch_of_episodes_equals_one_by_one(model, episode, statistics, method):
    support, labels, query = episode
    model.conv_method = method
    together = logits(model, support, labels, query, statistics=statistics)
    for i in range(EPISODES):
        alone = logits(model, *(each[i : i + 1] for each in episode), statistics=statistics)
        assert_same(together[i : i + 1], alone)
    model.conv_method = "auto"


@pytest.mark.parametrize("statistics, depends", [("support", False), ("moving", False), ("query", True)])
def test_dependence_on_the_other_query_images(model, episode, statistics, depends):
    support, labels, query = episode
    other = query.copy()
    other[:, 1:] = -other[:, 1:]
    before = logits(model, support, labels, query, statistics=statistics)
    after = logits(model, support, labels, other, statistics=statistics)
    assert (np.abs(after - before)[:, 0].max() > 1e-3) == depends


@pytest.mark.parametrize("block_order", ["conv-act-pool-bn", "conv-bn-act-pool"])
@pytest.mark.parametrize("statistics", ["support", "query", "moving"])
def test_generate_then_classify_equals_call(episode, statistics, block_order):
    support, labels, query = episode
    model = make(block_order=block_order)
    weights = model.generate(support, labels)
    assert_same(model.classify(query, weights, statistics), logits(model, *episode, statistics=statistics))


def test_moving_averages_follow_the_observed_statistics(episode):
    support, labels, query = episode
    model = make(moving_momentum=0.75)
    observed = model(support, labels, None, query, statistics="query").batch_statistics
    model.update_moving_averages(observed, tf.constant(0, tf.int64))  # the start is forgotten at once
    weights = model.generate(support, labels)["layer_1"]
    np.testing.assert_allclose(weights["moving_mean"][0], observed[0].mean, atol=1e-6)
    spread = observed[0].variance - np.square(observed[0].mean)
    np.testing.assert_allclose(weights["moving_variance"][0], spread, atol=1e-6)
    nothing = tf.nest.map_structure(tf.zeros_like, observed)
    model.update_moving_averages(nothing, tf.constant(1000, tf.int64))
    weights = model.generate(support, labels)["layer_1"]
    np.testing.assert_allclose(weights["moving_mean"][0], 0.75 * observed[0].mean, atol=1e-6)


@pytest.mark.parametrize(
    "count, learned, generated",
    [
        (0, [False] * 4, "all"),
        (1, [True, False, False, False], "last:3"),
        (-1, [False, False, False, True], "first:3"),
        (4, [True] * 4, "logits"),
        (-4, [True] * 4, "logits"),
    ],
)
def test_learned_layers_are_the_same_in_every_episode(episode, count, learned, generated):
    support, labels, query = episode
    model = make(num_learned_layers=count)
    weights = model.generate(support, labels)
    assert model.generated == generated
    for layer, is_learned in zip(model.cnn.conv_layers, learned):
        kernel = weights[layer.name]["kernel"].numpy()
        assert kernel.shape[0] == (1 if is_learned else EPISODES)
        assert is_learned or np.abs(kernel[0] - kernel[1]).max() > 1e-4
    logits_kernel = weights["logits"]["kernel"].numpy()
    assert np.abs(logits_kernel[0] - logits_kernel[1]).max() > 1e-4


@pytest.mark.parametrize(
    "allocation, first, later", [("output", (4, 9), (4, 36)), ("spatial", (9, 4), (9, 16))]
)
def test_allocation_sets_placeholders_and_slices(allocation, first, later):
    generators = make(allocation=allocation).generators
    assert [(g.slices, g.slice_size) for g in generators] == [first, later, later, later, (WAY, 5)]


def test_block_order_of_the_paper_gives_features_that_are_not_centred(episode):
    support, labels, query = episode
    weights_input = {}
    for order in ("conv-act-pool-bn", "conv-bn-act-pool"):
        keras.utils.set_random_seed(0)
        model = make(block_order=order)
        captured = []
        extractor = model.generators[-1].features
        extractor.call = lambda x, kept=captured, call=extractor.call: kept.append(x) or call(x)
        model.generate(support, labels)
        weights_input[order] = captured[0].numpy()
    assert abs(weights_input["conv-act-pool-bn"].mean()) < 1e-3
    assert (weights_input["conv-bn-act-pool"] >= 0).all() and weights_input["conv-bn-act-pool"].mean() > 0.1


# channels: (trainable parameters of the HyperTransformer, weights of its CNN), 20-way on 28x28x1
PARAMETERS = {
    4: (490_532, 616),
    8: (843_336, 2_076),
    64: (21_252_032, 113_236),
}


@pytest.mark.parametrize("channels", PARAMETERS)
def test_parameter_counts(channels):
    model = make(way=20, image_shape=(28, 28, 1), channels=channels)
    count = sum(int(np.prod(v.shape)) for v in model.trainable_variables)
    assert (count, model.cnn.num_parameters) == PARAMETERS[channels]


def test_token_sizes_of_the_omniglot_model():
    model = make(way=20, image_shape=(28, 28, 1), channels=8)
    assert [g.token_size for g in model.generators] == [80, 104, 104, 104, 72]
    assert [g.slices for g in model.generators] == [8, 8, 8, 8, 20]
    assert [layer.output_shape for layer in model.cnn.conv_layers] == [
        (14, 14, 8),
        (7, 7, 8),
        (3, 3, 8),
        (1, 1, 8),
    ]


@pytest.mark.parametrize(
    "options, message",
    [
        ({"way": 1}, "way = 1"),
        ({"channels": 0}, "channels = 0"),
        ({"num_learned_layers": 5}, "num_learned_layers = 5.*-4..4"),
        ({"architecture": "resnet"}, "'resnet'.*maxpool-4-layer"),
        ({"block_order": "bn-first"}, "'bn-first'"),
        ({"allocation": "input"}, "'input'"),
        ({"initialization": "zeros"}, "'zeros'.*imprinting"),
        ({"heads": 0}, "heads = 0"),
        ({"key_query": 0.0}, "key_query = 0"),
        ({"image_shape": (12, 12, 1)}, "12x12 are too small for conv layer 4"),
    ],
)
def test_impossible_options_are_refused_in_one_line(options, message):
    with pytest.raises(UserError, match=message):
        make(**options)


def test_gradients_reach_every_variable(episode):
    support, labels, query = episode
    model = make(num_learned_layers=1)
    with tf.GradientTape() as tape:
        result = model(support, labels, None, query).logits
        loss = tf.reduce_sum(tf.nn.softmax(result)[:, :, 0])
    for variable, gradient in zip(model.trainable_variables, tape.gradient(loss, model.trainable_variables)):
        assert gradient is not None, variable.name


def test_named_variables_are_complete_and_named_alike_in_every_model(model):
    names = model.named_variables()
    assert len(names) == len(model.variables)
    assert list(make(name="another").named_variables()) == list(names)
