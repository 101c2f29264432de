"""Appendix A as code: self-attention whose matrices are set by hand so that it learns from a support set.

The Attention layers are those of the trained generators (`models.transformer`), without layer normalisation
around them. Tokens are [label part | embedding e | zeros]: the label part of a placeholder is mu(i), that of
a sample xi(c), all of them unit vectors that are orthogonal to each other, the last one for "unlabeled".

* Class means (imprinted weights): a placeholder's query matches the keys of its class alone, values are the
  embeddings. So slice i is the mean of class i.
* Class sums: the same, but nearly all attention goes to the placeholders, whose values are zero; what each
  sample gets is then the same however many there are, and is scaled up again behind the attention.
* Gradient step: one step on the support loss with logits that start at zero,

      W_ij = rate / n * sum_m (y_i^m - 1/way) e_j^m        b_i = rate / n * sum_m (y_i^m - 1/way)

  One head gives the first term (class sums), the other attends to all samples alike and gives the second.
* Semi-supervised: a first layer with a residual connection adds to each unlabeled sample the label part of
  the labeled sample that its embedding is nearest to; class means then take it in.
"""

from __future__ import annotations

import numpy as np

from hypertransformer_tf.backend import tf
from hypertransformer_tf.errors import UserError
from hypertransformer_tf.models.tokens import LabelTokens, PlaceholderTokens
from hypertransformer_tf.models.transformer import Attention

RULES = ("means", "sums", "gradient")

MATCH = 40.0  # attention logit of a match against 0: exp(-40) = 4e-18 goes elsewhere
FAINT = 12.0  # how far, for sums, the logit of a match lies below that of a placeholder
NEAREST = 300.0  # attention logit of a cosine of 1 in the first layer of the semi-supervised version


class HandSetGenerator:
    """Writes a logits layer from embeddings and labels; nothing in it is learned.

    Args:
        way: classes of an episode.
        features: length of an embedding.
        rule: "means", "sums" or "gradient".
        samples: n, samples of a support set; "gradient" needs it.
        rate: learning rate of "gradient".
        propagate: mark unlabeled samples with the class of their nearest labeled neighbour first. It takes
            embeddings of length 1 (the nearest is the one with the largest product).
        nearest: sharpness of that choice: attention logit of a cosine of 1.

    Raises:
        UserError: for an unknown rule, or "gradient" without samples.
    """

    def __init__(
        self,
        way: int,
        features: int,
        rule: str = "means",
        samples: int | None = None,
        rate: float = 1.0,
        propagate: bool = False,
        nearest: float = NEAREST,
    ):
        if rule not in RULES:
            raise UserError(f"unknown rule {rule!r} of a hand-set generator: use {', '.join(RULES)}")
        if rule == "gradient" and not samples:
            raise UserError("a gradient step is divided by the number of samples: give `samples`")
        self.way, self.features, self.rule = way, features, rule
        # Label part: mu(0) ... mu(way-1), xi(0) ... xi(way-1), xi(unlabeled).
        self._mu = slice(0, way)
        self._xi = slice(way, 2 * way)
        self._unlabeled = 2 * way
        self._e = slice(2 * way + 1, 2 * way + 1 + features)
        self.size = 2 * way + 1 + features + 1
        parts = np.eye(2 * way + 1)
        self.labels = LabelTokens(way, 2 * way + 1, self.size)
        self.placeholders = PlaceholderTokens(way, 2 * way + 1, self.size)
        self.labels(tf.zeros([1, 1], tf.int32), tf.zeros([1, 1, features]))  # makes the variables
        self.placeholders(1)
        self.labels.embeddings.assign(parts[way:])
        self.placeholders.embeddings.assign(parts[:way])
        self.marking = self._marking_attention(nearest) if propagate else None
        self.reading = self._reading_attention(samples, rate)

    def __call__(self, embeddings: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        """Generates the logits layer.

        Args:
            embeddings: float32 [episode, sample, feature].
            labels: int [episode, sample] in 0..way; `way` = unlabeled.

        Returns:
            float32 [episode, way, feature + 1], slices of weights with the bias last.
        """
        samples = self.labels(labels, embeddings)
        tokens = tf.concat([self.placeholders(tf.shape(samples)[0]), samples], 1)
        if self.marking is not None:
            tokens += self.marking(tokens, tokens)
        return self.reading(tokens[:, : self.way], tokens)[:, :, : self.features + 1]

    def _reading_attention(self, samples: int | None, rate: float) -> Attention:
        """The layer whose placeholders read the samples of their classes."""
        way, features = self.way, self.features
        heads = 2 if self.rule == "gradient" else 1
        head_size = way + 1  # of queries and keys: one number for each class, one for placeholders
        query, key = np.zeros([2, self.size, heads, head_size])
        query[self._mu, 0, :way] = MATCH * np.eye(way)
        key[self._xi, 0, :way] = np.eye(way)
        faint = self.rule != "means"
        if faint:  # placeholders draw attention off, each the same
            query[self._mu, 0, way] = MATCH + FAINT
            key[self._mu, 0, way] = 1.0
        if heads == 2:  # the same logit for all labeled samples
            query[self._mu, 1, 0] = MATCH
            key[self._xi, 1, 0] = 1.0
        # Each head's values: the embedding, and 1 for a labeled sample.
        value = np.zeros([self.size, heads, features + 1])
        value[self._e, :, :features] = np.eye(features)[:, None]
        value[self._xi, :, features] = 1.0
        output = np.zeros([heads, features + 1, self.size])
        amplified = way * np.exp(FAINT)
        if self.rule == "means":
            output[0, :features, :features] = np.eye(features)
        elif self.rule == "sums":
            output[0, :features, :features] = amplified * np.eye(features)
        else:
            output[0, :, : features + 1] = rate / samples * amplified * np.eye(features + 1)
            output[1, :, : features + 1] = -rate / way * np.eye(features + 1)
        return _attention(query, key, value, output)

    def _marking_attention(self, nearest: float) -> Attention:
        """The layer in which unlabeled samples read the labels of their neighbours.

        Labeled samples and placeholders must stay as they are: they read placeholders, whose values are zero.
        Unlabeled samples are not read: each would be its own nearest neighbour.
        """
        way, features = self.way, self.features
        query, key = np.zeros([2, self.size, 1, features + 2])
        query[self._e, 0, :features] = nearest * np.eye(features)
        key[self._e, 0, :features] = np.eye(features)
        far = 4.0 * nearest  # beyond any difference of cosines
        labeled, unread = features, features + 1
        query[self._mu, 0, labeled] = query[self._xi, 0, labeled] = far
        key[self._mu, 0, labeled] = 1.0
        query[self._unlabeled, 0, unread] = far
        key[self._mu, 0, unread] = key[self._unlabeled, 0, unread] = -1.0
        value = np.zeros([self.size, 1, way])
        value[self._xi, 0] = np.eye(way)
        output = np.zeros([1, way, self.size])
        output[0, :, self._xi] = np.eye(way)
        return _attention(query, key, value, output)


def class_means(embeddings: np.ndarray, labels: np.ndarray, way: int) -> np.ndarray:
    """float [way, feature]: mean embedding of the samples of each class, [sample, feature] and [sample]."""
    return np.stack([embeddings[labels == each].mean(0) for each in range(way)])


def gradient_step(
    embeddings: np.ndarray, labels: np.ndarray, way: int, rate: float
) -> tuple[np.ndarray, np.ndarray]:
    """One gradient step of a logits layer from zero on the mean cross-entropy of a support set.

    By automatic differentiation, to compare the attention with.

    Args:
        embeddings: float [sample, feature].
        labels: int [sample] in 0..way-1.
        way: classes.
        rate: learning rate.

    Returns:
        Weights [way, feature] and biases [way].
    """
    weights = tf.zeros([way, embeddings.shape[1]], tf.float64)
    biases = tf.zeros([way], tf.float64)
    with tf.GradientTape() as tape:
        tape.watch([weights, biases])
        logits = tf.matmul(tf.cast(embeddings, tf.float64), weights, transpose_b=True) + biases
        loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits))
    of_weights, of_biases = tape.gradient(loss, [weights, biases])
    return (-rate * of_weights).numpy(), (-rate * of_biases).numpy()


def _attention(query: np.ndarray, key: np.ndarray, value: np.ndarray, output: np.ndarray) -> Attention:
    """An Attention with the given matrices.

    Args:
        query, key: [token feature, head, key feature]; the layer's 1/sqrt(head size) is taken out here.
        value: [token feature, head, value feature].
        output: [head, value feature, token feature].
    """
    size, heads, head_size = query.shape
    layer = Attention(heads, heads * head_size, heads * value.shape[2], size)
    tokens = tf.zeros([1, 1, size])
    layer(tokens, tokens)
    layer.query.kernel.assign(query.reshape(size, -1) / layer.scale)
    layer.key.kernel.assign(key.reshape(size, -1))
    layer.value.kernel.assign(value.reshape(size, -1))
    layer.output_projection.kernel.assign(output.reshape(-1, size))
    return layer
