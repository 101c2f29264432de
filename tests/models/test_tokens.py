"""Layout of sample and placeholder tokens."""

import numpy as np

from hypertransformer_tf.models.tokens import LabelTokens, PlaceholderTokens, token_size


def test_a_token_holds_features_or_a_weight_slice_whichever_is_larger():
    assert token_size(embedding_dim=32, features=48, slice_size=9) == 80
    assert token_size(embedding_dim=32, features=48, slice_size=72) == 104


def test_sample_token_is_label_embedding_features_zeros():
    tokens = LabelTokens(way=3, embedding_dim=4, token_size=9)
    features = np.arange(1.0, 7.0, dtype=np.float32).reshape(1, 2, 3)
    result = tokens(np.int32([[2, 3]]), features).numpy()[0]
    np.testing.assert_array_equal(result[:, :4], tokens.embeddings.numpy()[[2, 3]])
    np.testing.assert_array_equal(result[:, 4:7], features[0])
    np.testing.assert_array_equal(result[:, 7:], 0.0)


def test_the_last_label_embedding_means_unlabeled():
    tokens = LabelTokens(way=3, embedding_dim=4, token_size=9)
    tokens.build(None)
    assert tokens.embeddings.shape == (4, 4)


def test_placeholder_token_is_embedding_and_zeros_in_every_episode():
    placeholders = PlaceholderTokens(count=5, embedding_dim=4, token_size=9)
    result = placeholders(3).numpy()
    assert result.shape == (3, 5, 9)
    for episode in result:
        np.testing.assert_array_equal(episode[:, :4], placeholders.embeddings)
        np.testing.assert_array_equal(episode[:, 4:], 0.0)


def test_embeddings_start_from_a_standard_normal_and_differ_between_layers():
    layers = [PlaceholderTokens(200, 32, 64) for _ in range(2)]
    values = [layer(1).numpy()[0, :, :32] for layer in layers]
    assert abs(values[0].mean()) < 0.05 and abs(values[0].std() - 1.0) < 0.05
    assert np.abs(values[0] - values[1]).max() > 0.1
