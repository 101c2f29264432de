"""The generator as a SavedModel, loaded without this package."""

import subprocess
import sys

import numpy as np
import pytest
from export_helpers import make_model, make_support

from hypertransformer_tf.backend import tf
from hypertransformer_tf.export.generator import ABSENT, write_generator

LOADER = """
import sys
import numpy as np
import tensorflow as tf
model = tf.saved_model.load(sys.argv[1])
inputs = dict(np.load(sys.argv[2]))
support = {name: tf.constant(inputs[name]) for name in ("support_images", "support_labels", "support_mask")}
weights = model.signatures["generate"](**support)
answer = model.signatures["classify"](query_images=tf.constant(inputs["query_images"]), **support)
assert not any(name.startswith("hypertransformer") for name in sys.modules)
np.savez(sys.argv[3], **{n: v.numpy() for n, v in {**weights, **answer}.items()})
"""


@pytest.mark.parametrize("learned, statistics", [(0, "support"), (2, "moving")])
def test_weights_and_logits_are_those_of_the_package(tmp_path, learned, statistics):
    model = make_model(num_learned_layers=learned)
    write_generator(model, tmp_path / "generator", statistics)
    random = np.random.default_rng(3)
    first, second = make_support((2, 2, 2)), make_support((1, 2, 3), seed=5)
    inputs = {
        "support_images": np.stack([first.images, second.images]).astype(np.float32),
        "support_labels": np.stack([first.labels, second.labels]),
        "support_mask": np.array([[0, 0, 0, 0, 0, 0], [0, 0, 1, 0, 0, 0]], np.float32),
        "query_images": random.integers(0, 256, [2, 4, 16, 16, 1]).astype(np.float32),
    }
    np.savez(tmp_path / "in.npz", **inputs)
    arguments = [tmp_path / "generator", tmp_path / "in.npz", tmp_path / "out.npz"]
    subprocess.run([sys.executable, "-I", "-c", LOADER, *map(str, arguments)], check=True, cwd=tmp_path)
    found = dict(np.load(tmp_path / "out.npz"))

    images = tf.constant(inputs["support_images"]) / 128.0 - 1.0
    weights = model.generate(images, inputs["support_labels"], inputs["support_mask"])
    logits = model.classify(inputs["query_images"] / 128.0 - 1.0, weights, statistics).numpy()
    np.testing.assert_allclose(found["logits"][..., :3], logits[..., :3], atol=1e-4)
    assert np.all(found["logits"][..., 3:] == np.float32(ABSENT))
    for layer, of_layer in weights.items():
        for name, value in of_layer.items():
            if not name.startswith(("support_", "moving_")) or name.startswith(statistics):
                key = f"{layer}_{name.removeprefix(f'{statistics}_')}"
                value = np.broadcast_to(value, found[key].shape)
                np.testing.assert_allclose(found[key], value, atol=1e-5, err_msg=key)
    assert set(found["class_index"].ravel()) <= {0, 1, 2}
