"""Each option of the method changes what it should, and leaves alone what it should not touch."""

import numpy as np
import pytest
from export_helpers import make_frozen, make_model, make_support

from hypertransformer_tf.backend import keras, tf
from hypertransformer_tf.errors import UserError
from hypertransformer_tf.export import files
from hypertransformer_tf.models.dropout import dropout, dropout_of
from hypertransformer_tf.models.transformer import (
    Attention,
    Decoder,
    DecoderLayer,
    Encoder,
    EncoderLayer,
    LayerSizes,
)

SIZES = LayerSizes(heads=2, key_query_size=8, value_size=8, inner_size=16, token_size=12)
RANDOM = {"initialization": "random"}


@pytest.fixture
def tokens():
    return np.random.default_rng(0).normal(size=[2, 7, 12]).astype(np.float32)


@pytest.fixture(scope="module")
def episode():
    """Support images, labels, mask, query images of two 5-way 2-shot episodes."""
    random = np.random.default_rng(1)
    labels = np.tile(np.repeat(np.arange(5), 2), (2, 1)).astype(np.int32)
    mask = np.zeros([2, 10], np.float32)
    mask[:, -1] = 1.0
    support, query = (random.normal(size=[2, n, 16, 16, 1]).astype(np.float32) for n in (10, 6))
    return support, labels, mask, query


def names(model):
    return {name.split("/")[0] for name in model.named_variables()}


def count(model):
    return sum(int(tf.size(v)) for v in model.trainable_variables)


def test_sigmoid_attention_is_a_sum_of_independent_weights(tokens):
    attention = Attention(1, 4, 4, 12, "sigmoid")
    whole = attention(tokens, tokens)
    output = attention.output_projection
    halves = [attention(tokens, part) - output.bias for part in (tokens[:, :3], tokens[:, 3:])]
    np.testing.assert_allclose(whole - output.bias, halves[0] + halves[1], atol=1e-5)
    mask = np.zeros([2, 7], np.float32)
    mask[:, 3:] = 1.0
    np.testing.assert_allclose(attention(tokens, tokens, mask) - output.bias, halves[0], atol=1e-5)


@pytest.mark.parametrize("activation, slope", [("relu", 0.0), ("lrelu", 0.1)])
def test_feed_forward_activation(tokens, activation, slope):
    layer = EncoderLayer(LayerSizes(2, 8, 8, 16, 12, activation=activation))
    layer(tokens)
    hidden = tokens @ layer.inner.kernel.numpy() + layer.inner.bias.numpy()
    expected = np.where(hidden > 0, hidden, slope * hidden)
    np.testing.assert_allclose(layer.inner(tokens), expected, atol=1e-5)


def test_decoder_layer_by_hand(tokens):
    memory = np.random.default_rng(2).normal(size=[2, 5, 9]).astype(np.float32)
    mask = np.zeros([2, 5], np.float32)
    mask[:, -2:] = 1.0
    layer = DecoderLayer(SIZES)
    result = layer(tokens, memory, None, mask)
    x = layer.attention_norm(tokens + layer.attention(tokens, tokens))
    x = layer.cross_norm(x + layer.cross_attention(x, memory[:, :3]))
    x = layer.outer_norm(x + layer.outer(layer.inner(x)))
    np.testing.assert_allclose(result, x, atol=1e-5)
    decoder = Decoder(2, SIZES)
    few, every = (decoder(tokens, memory, None, mask, n) for n in (3, 7))
    np.testing.assert_allclose(few, every[:, :3], atol=1e-5)


def test_skip_last_nonlinearity_ends_with_the_attention_of_the_last_layer(tokens):
    encoder = Encoder(2, SIZES, skip_last_nonlinearity=True)
    encoder(tokens, None)
    first, last = encoder.encoder_layers
    assert first.inner is not None and last.inner is None
    x = first(tokens)
    expected = last.attention_norm(x + last.attention(x, x))
    np.testing.assert_allclose(encoder(tokens, None), expected, atol=1e-5)


GENERATORS = [
    {},
    {"use_decoder": True, **RANDOM},
    {"generator": "separate", **RANDOM},
    {"transformer_layers": 1, "skip_last_nonlinearity": True},
    {"inner": 0.0},
    {"attention": "sigmoid"},
    {"transformer_activation": "gelu"},
    {"transformer_activation": "lrelu"},
    {"key_query": 16.0, "value": 12.0, "inner": 40.0},
    {"generate_bias": True},
    {"generate_bn": True},
    {"generate_bias": True, "generate_bn": True},
    {"add_learned_weights": True},
    {"separate_support_bn": True},
    {"nonlinear_features": True},
    {"logits_features": "passthrough"},
    {"logits_features": "mix"},
    {"activation_features": 0},
    {"shared_features": 0},
    {"shared_batch_norm": True, "shared_padding": "valid"},
    {"cnn_activation": "lrelu"},
    {"warmup_heads": True},
    {"allocation": "spatial"},
    {"architecture": "3-layer", "image_shape": (16, 16, 1)},
]


@pytest.mark.parametrize("options", GENERATORS, ids=str)
def test_every_variant_keeps_the_promises_of_the_model(options, episode):
    """Gradients reach everything, batched = one by one, masks hide, the support set has no order."""
    support, labels, mask, query = episode
    model = make_model(**options)
    with tf.GradientTape() as tape:
        outputs = model(support, labels, mask, query, with_heads=True)
        loss = tf.reduce_sum(outputs.logits**2) + sum(tf.reduce_sum(h**2) for h in outputs.head_logits)
    gradients = tape.gradient(loss, model.trainable_variables)
    missing = [v.name for v, g in zip(model.trainable_variables, gradients) if g is None]
    assert missing == []
    logits = outputs.logits.numpy()
    assert np.isfinite(logits).all() and np.ptp(logits) > 0
    for i in range(2):
        alone = model(*(part[i : i + 1] for part in episode)).logits
        np.testing.assert_allclose(alone[0], logits[i], atol=1e-4)
    changed = support.copy()
    changed[:, -1] += 5.0
    np.testing.assert_allclose(model(changed, labels, mask, query).logits, logits, atol=1e-5)
    order = np.random.default_rng(3).permutation(10)
    permuted = model(support[:, order], labels[:, order], mask[:, order], query).logits
    np.testing.assert_allclose(permuted, logits, atol=1e-4)
    weights = model.generate(support, labels, mask)
    np.testing.assert_allclose(model.classify(query, weights), logits, atol=1e-5)


def test_generated_biases_and_bn_come_from_the_slices(episode):
    support, labels, mask, query = episode
    model = make_model(generate_bias=True, generate_bn=True, num_learned_layers=1)
    slices = model(support, labels, mask, query).slices["layer_2"]
    weights = model.generate(support, labels, mask)["layer_2"]
    assert slices.shape == [2, 4, 9 * 4 + 3]
    for offset, name in enumerate(("bias", "gamma", "beta")):
        np.testing.assert_allclose(weights[name], slices[:, :, 36 + offset], atol=1e-6)
    kernel = np.transpose(slices[:, :, :36].numpy().reshape(2, 4, 3, 3, 4), [0, 2, 3, 4, 1])
    np.testing.assert_allclose(weights["kernel"], kernel, atol=1e-6)
    variables = model.named_variables()
    assert "layer_2_bias" not in variables and "layer_2_gamma" not in variables
    assert "layer_1_bias" in variables and "layer_1_gamma" in variables  # a learned layer keeps its own


def test_learned_weights_are_added_to_generated_ones(episode):
    support, labels, mask, query = episode
    model = make_model(add_learned_weights=True)
    learned = model.named_variables()["layer_1_kernel"]
    before = model.generate(support, labels, mask)["layer_1"]["kernel"].numpy()
    learned.assign_add(tf.ones_like(learned))
    after = model.generate(support, labels, mask)["layer_1"]["kernel"].numpy()
    np.testing.assert_allclose(after - before, 1.0, atol=1e-5)


def test_separate_support_bn_touches_the_support_pass_only(episode):
    support, labels, mask, query = episode
    model = make_model(separate_support_bn=True, num_learned_layers=4)
    variables = model.named_variables()
    weights = model.generate(support, labels, mask)
    variables["layer_4_gamma"].assign_add(tf.ones([4]))
    after = model.generate(support, labels, mask)
    np.testing.assert_allclose(after["logits"]["kernel"], weights["logits"]["kernel"], atol=1e-6)
    assert np.abs(model.classify(query, after) - model.classify(query, weights)).max() > 1e-3
    variables["layer_4_support_gamma"].assign_add(tf.ones([4]))
    again = model.generate(support, labels, mask)
    assert np.abs(again["logits"]["kernel"] - after["logits"]["kernel"]).max() > 1e-3


def test_passthrough_hands_the_activations_to_the_logits_generator():
    generator = make_model(logits_features="passthrough").generators[-1]
    activations = np.random.default_rng(0).normal(size=[1, 3, 1, 1, 4]).astype(np.float32)
    np.testing.assert_array_equal(generator.features(activations)[0], activations[0, :, 0, 0])
    assert make_model(logits_features="mix").generators[-1].features.size == 8


def test_nonlinear_features_are_never_negative():
    images = np.random.default_rng(0).normal(size=[1, 3, 16, 16, 1]).astype(np.float32)
    for nonlinear in (False, True):
        features = make_model(nonlinear_features=nonlinear).generators[0].features(images).numpy()
        assert (features.min() >= 0) == nonlinear


def test_warmup_heads_have_their_own_logits(episode):
    support, labels, mask, query = episode
    model = make_model(warmup_heads=True)
    outputs = model(support, labels, mask, query, with_heads=True)
    assert [head.shape.as_list() for head in outputs.head_logits] == [[2, 6, 5]] * 3
    assert model(support, labels, mask, query).head_logits == ()
    plain = make_model()
    np.testing.assert_allclose(outputs.logits.shape, plain(support, labels, mask, query).logits.shape)


ARCHITECTURES = [
    ("3-layer", (28, 28, 1), 4, [(13, 13, 4), (6, 6, 4), (2, 2, 4)], 4),
    ("4-layer", (84, 84, 3), 4, [(41, 41, 4), (20, 20, 4), (9, 9, 4), (4, 4, 4)], 4),
    ("2-layer-9x9", (84, 84, 3), 16, [(19, 19, 16), (3, 3, 16)], 16),
    ("lgm-net", (84, 84, 3), 8, [(42, 42, 8), (21, 21, 8), (10, 10, 8), (5, 5, 8), (5, 5, 8), (5, 5, 8)], 8),
    ("logits-only", (1, 1, 24), 4, [], 24),
]


@pytest.mark.parametrize("architecture, shape, channels, outputs, features", ARCHITECTURES)
def test_shapes_of_the_other_cnns(architecture, shape, channels, outputs, features):
    options = {"shared_features": 0, "logits_features": "passthrough"} if not outputs else {}
    model = make_model(3, channels, shape, architecture=architecture, **options)
    assert [layer.output_shape for layer in model.cnn.conv_layers] == outputs
    assert model.cnn.logits.features == features
    support = make_support(image_shape=shape)
    frozen = make_frozen(model, support)
    queries = np.random.default_rng(0).integers(0, 256, [5, *shape]).astype(np.uint8)
    weights = model.generate(tf.cast(support.images, tf.float32)[None] / 128 - 1, support.labels[None])
    expected = model.classify(tf.cast(queries, tf.float32)[None] / 128 - 1, weights)[0]
    np.testing.assert_allclose(frozen.logits(tf.cast(queries, tf.float32)), expected, atol=1e-4)
    np.testing.assert_allclose(files.keras_model(frozen)(queries), expected, atol=1e-4)
    assert model.generated == ("all" if outputs else "logits")


@pytest.mark.parametrize(
    "options, message",
    [
        ({"generator": "both"}, "'both'.*joint, separate"),
        ({"attention": "linear"}, "'linear'.*softmax, sigmoid"),
        ({"transformer_activation": "swish"}, "'swish'"),
        ({"cnn_activation": "tanh"}, "'tanh'.*relu, lrelu"),
        ({"logits_features": "all"}, "'all'"),
        ({"use_decoder": True}, "imprinting"),
        ({"generator": "separate"}, "imprinting"),
        ({"generator": "separate", "use_decoder": True, **RANDOM}, "use_decoder"),
        ({"skip_last_nonlinearity": True, "inner": 0.0}, "no nonlinearity to skip"),
        ({"generate_bias": True, "allocation": "spatial"}, "allocation = 'output'"),
        ({"generate_bn": True, "num_learned_layers": 4}, "no conv layer is generated"),
        ({"add_learned_weights": True, "num_learned_layers": -4}, "no conv layer is generated"),
        ({"generate_bn": True, "separate_support_bn": True}, "separate_support_bn"),
        ({"shared_features": 0, "activation_features": 0}, "labels only"),
        ({"transformer_dropout": 1.0}, "transformer_dropout = 1"),
        ({"cnn_dropout": -0.1}, "cnn_dropout = -0.1"),
        ({"architecture": "4-layer"}, "too small for conv layer 4"),
        ({"architecture": "logits-only", "warmup_heads": True, "image_shape": (1, 1, 8)}, "warmup_heads"),
    ],
)
def test_combinations_without_a_sense_are_refused(options, message):
    with pytest.raises(UserError, match=message):
        make_model(**{"image_shape": (16, 16, 1), **options})


DROPOUTS = ["transformer_dropout", "cnn_dropout", "shared_feature_dropout", "activation_feature_dropout"]


@pytest.mark.parametrize("name", DROPOUTS)
def test_dropout_is_for_training_and_a_function_of_the_episode(name, episode):
    support, labels, mask, query = episode
    model, plain = make_model(**{name: 0.5}), make_model()
    for ours, other in zip(model.variables, plain.variables):
        ours.assign(other)
    np.testing.assert_array_equal(
        model(support, labels, mask, query).logits, plain(support, labels, mask, query).logits
    )
    seeds = tf.constant([[1, 7], [1, 8]], tf.int64)

    def dropped(rows):
        with dropout_of(tf.gather(seeds, rows)):
            return model(*(part[rows] for part in episode)).logits.numpy()

    both = dropped([0, 1])
    assert np.abs(both - plain(*episode).logits).max() > 1e-3
    np.testing.assert_array_equal(both, dropped([0, 1]))
    np.testing.assert_allclose(dropped([1])[0], both[1], atol=1e-4)


def test_dropout_keeps_the_mean():
    values = tf.ones([3, 20_000])
    with dropout_of(tf.constant([[0, 1], [0, 2], [0, 3]], tf.int64)):
        first, second = dropout(values, 0.3).numpy(), dropout(values, 0.3).numpy()
    np.testing.assert_allclose(first.mean(1), 1.0, atol=0.02)
    np.testing.assert_allclose((first == 0).mean(1), 0.3, atol=0.02)
    assert (first != second).any() and (first[0] != first[1]).any()


def test_the_unlabeled_token_is_the_last_label_embedding(episode):
    support, labels, mask, query = episode
    model = make_model()
    unlabeled = labels.copy()
    unlabeled[:, 0] = 5
    before = model(support, unlabeled, None, query).logits.numpy()
    assert np.abs(before - model(support, labels, None, query).logits).max() > 1e-3
    for generator in model.generators:
        embeddings = generator.labels.embeddings
        embeddings.assign(tf.tensor_scatter_nd_update(embeddings, [[5]], tf.ones([1, 8])))
    assert np.abs(model(support, unlabeled, None, query).logits - before).max() > 1e-3
    keras.backend.clear_session()
