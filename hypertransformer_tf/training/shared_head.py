"""A head on the real classes of the training set: shared image features have more to learn from."""

from __future__ import annotations

import gin

from hypertransformer_tf.backend import keras, tf
from hypertransformer_tf.errors import UserError
from hypertransformer_tf.models.hypertransformer import HyperTransformer
from hypertransformer_tf.training import checkpoints, trained


@gin.configurable(denylist=["model", "num_classes"])
class SharedHead(tf.Module):
    """A dense layer from image embeddings to the training set's classes; not part of the model.

    Args:
        model: a built HyperTransformer.
        num_classes: classes of the training set.
        weight: of its loss beside the query loss; 0 = no head.
        alone: train image embeddings and head alone, without generators and CNN (pre-training).
        restore: workdir or checkpoint that the image embeddings start from; None = as they are.

    Raises:
        UserError: for a model without image embeddings, or a checkpoint with others.
    """

    def __init__(
        self,
        model: HyperTransformer,
        num_classes: int,
        weight: float = 0.0,
        alone: bool = False,
        restore: str | None = None,
    ):
        super().__init__(name="shared_head")
        if weight < 0:
            raise UserError(f"SharedHead.weight = {weight}: must be 0 or above")
        if alone and not weight:
            raise UserError("SharedHead.alone = True needs SharedHead.weight above 0, such as 1.0")
        if (weight or restore) and model.shared is None:
            raise UserError("SharedHead needs image embeddings: set HyperTransformer.shared_features above 0")
        self.weight, self.alone = weight, alone
        self.dense = None
        if weight:
            self.dense = keras.layers.Dense(num_classes, name="shared_head")
            self.dense.build([None, model.shared.size])
        if restore:
            _restore(model, restore)

    @property
    def variables_to_train(self) -> list[tf.Variable]:
        """Variables beside the model's."""
        return [] if self.dense is None else self.dense.trainable_variables

    def loss(self, embeddings: tf.Tensor, labels: tf.Tensor, class_ids: tf.Tensor) -> tf.Tensor:
        """Cross entropy over the real classes of the labeled support images.

        Args:
            embeddings: float [episode, support, feature].
            labels: int [episode, support] in 0..way; `way` = unlabeled, which don't count.
            class_ids: int [episode, way], class of the training set in each slot.

        Returns:
            float32 [episode], in nats.
        """
        way = class_ids.shape[1]
        real = tf.gather(class_ids, tf.minimum(labels, way - 1), batch_dims=1)
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(real, self.dense(embeddings))
        labeled = tf.cast(labels < way, tf.float32)
        return tf.reduce_sum(losses * labeled, -1) / tf.reduce_sum(labeled, -1)


def _restore(model: HyperTransformer, place: str) -> None:
    found = trained.find(place)
    prefix = f"{model.shared.name}/"
    wanted = {name: v for name, v in model.named_variables().items() if name.startswith(prefix)}
    checkpoints.load_model(found.path, wanted)
