"""Every form of an exported CNN gives the answers of the model in the package."""

import hashlib

import numpy as np
import pytest
from export_helpers import make_frozen, make_model, make_support

from hypertransformer_tf.backend import tf
from hypertransformer_tf.errors import UserError
from hypertransformer_tf.export import files
from hypertransformer_tf.export.frozen import freeze
from hypertransformer_tf.export.saved_model import write_saved_model


@pytest.fixture
def queries():
    """uint8 images to classify."""
    return np.random.default_rng(2).integers(0, 256, [7, 16, 16, 1]).astype(np.uint8)


def in_package(model, support, queries, statistics):
    """Logits of the model itself, for the classes of the support set."""
    images = tf.cast(support.images, tf.float32)[None] / 128.0 - 1.0
    weights = model.generate(images, support.labels[None])
    logits = model.classify(tf.cast(queries, tf.float32)[None] / 128.0 - 1.0, weights, statistics)
    return logits[0, :, : len(support.names)].numpy()


def run_tflite(content, queries):
    interpreter = tf.lite.Interpreter(model_content=content)
    dtype = interpreter.get_input_details()[0]["dtype"]
    return interpreter.get_signature_runner()(images=queries.astype(dtype))["logits"]


@pytest.mark.parametrize("statistics", ["support", "moving"])
@pytest.mark.parametrize("learned", [0, 2, -1, 4])
@pytest.mark.parametrize("order", ["conv-act-pool-bn", "conv-bn-act-pool"])
def test_all_forms_agree(tmp_path, queries, statistics, learned, order):
    model = make_model(num_learned_layers=learned, block_order=order)
    support = make_support()
    frozen = make_frozen(model, support, statistics)
    expected = in_package(model, support, queries, statistics)
    assert np.ptp(expected, 0).max() > 1e-2  # images do get different answers
    write_saved_model(frozen, tmp_path)
    loaded = tf.saved_model.load(str(tmp_path))
    for name, images in (
        ("serving_default", queries.astype(np.float32)),
        ("serve_uint8", queries),
    ):
        answer = loaded.signatures[name](images=tf.constant(images))
        np.testing.assert_allclose(answer["logits"], expected, atol=1e-4)
        np.testing.assert_allclose(answer["probabilities"], tf.nn.softmax(expected), atol=1e-4)
        assert answer["class_index"].numpy().tolist() == expected.argmax(-1).tolist()
        names = [name.decode() for name in answer["class_name"].numpy()]
        assert names == [support.names[i] for i in expected.argmax(-1)]
        np.testing.assert_allclose(loaded(tf.constant(images))["logits"], expected, atol=1e-4)
    np.testing.assert_allclose(files.keras_model(frozen)(queries), expected, atol=1e-4)
    np.testing.assert_allclose(run_tflite(files.tflite(frozen, "float32"), queries), expected, atol=1e-4)
    halved = run_tflite(files.tflite(frozen, "float16"), queries)
    np.testing.assert_allclose(halved, expected, atol=2e-2 * np.abs(expected).max())


def test_int8_stays_within_a_tenth_of_the_largest_logit(queries):
    model = make_model(block_order="conv-bn-act-pool")
    support = make_support((10, 10, 10))
    frozen = make_frozen(model, support)
    expected = frozen.logits(tf.cast(queries, tf.float32)).numpy()
    content = files.tflite(frozen, "int8", support.images)
    interpreter = tf.lite.Interpreter(model_content=content)
    interpreter.allocate_tensors()
    assert interpreter.get_input_details()[0]["dtype"] == np.uint8
    kernels = [d for d in interpreter.get_tensor_details() if len(d["shape"]) == 4 and d["dtype"] == np.int8]
    assert kernels
    np.testing.assert_allclose(run_tflite(content, queries), expected, atol=0.1 * np.abs(expected).max())


def test_an_answer_does_not_depend_on_the_batch(tmp_path, queries):
    frozen = make_frozen(make_model(), make_support())
    write_saved_model(frozen, tmp_path)
    serve = tf.saved_model.load(str(tmp_path)).signatures["serve_uint8"]
    together = serve(images=tf.constant(queries))["logits"].numpy()
    for index in range(len(queries)):
        alone = serve(images=tf.constant(queries[index : index + 1]))["logits"].numpy()[0]
        np.testing.assert_allclose(alone, together[index], atol=1e-5)


def test_serving_changes_nothing_on_disk_or_in_the_answers(tmp_path, queries):
    write_saved_model(make_frozen(make_model(), make_support()), tmp_path)

    def content():
        paths = sorted(p for p in tmp_path.rglob("*") if p.is_file())
        return {str(p): hashlib.sha256(p.read_bytes()).hexdigest() for p in paths}

    before, answers = content(), []
    for _ in range(2):
        loaded = tf.saved_model.load(str(tmp_path))
        assert not loaded.variables if hasattr(loaded, "variables") else True
        serve = loaded.signatures["serve_uint8"]
        answers.append(serve(images=tf.constant(queries))["logits"].numpy())
        for _ in range(500):
            serve(images=tf.constant(queries))
        answers.append(serve(images=tf.constant(queries))["logits"].numpy())
    assert content() == before
    for answer in answers[1:]:
        assert np.array_equal(answer, answers[0])


def test_slots_without_a_class_can_not_be_predicted(queries):
    frozen = make_frozen(make_model(way=5), make_support((1, 1)))
    assert frozen.logits(tf.cast(queries, tf.float32)).shape == [7, 2]
    assert frozen.cnn.logits.way == 2


def test_unequal_shots_equal_the_masked_episode(queries):
    model, support = make_model(), make_support((2, 1, 3))
    padded = np.zeros([9, 16, 16, 1], np.uint8)
    labels, mask = np.repeat(np.arange(3), 3).astype(np.int32), np.ones([9], np.float32)
    for label, rows in enumerate(([0, 1], [2], [3, 4, 5])):
        padded[3 * label : 3 * label + len(rows)] = support.images[rows]
        mask[3 * label : 3 * label + len(rows)] = 0.0
    weights = model.generate(
        tf.cast(padded, tf.float32)[None] / 128.0 - 1.0, tf.constant(labels)[None], tf.constant(mask)[None]
    )
    masked = freeze(model, weights, support.names, make_frozen(model, support).preparation)
    images = tf.cast(queries, tf.float32)
    np.testing.assert_allclose(make_frozen(model, support).logits(images), masked.logits(images), atol=1e-4)


def test_query_statistics_are_refused():
    with pytest.raises(UserError, match="each image alone"):
        make_frozen(make_model(), make_support(), "query")


def test_npz_holds_every_weight_under_its_name(tmp_path):
    frozen = make_frozen(make_model(), make_support())
    files.write_npz(frozen, tmp_path / "weights.npz")
    of_conv = ["kernel", "bias", "gamma", "beta", "mean", "variance"]
    with np.load(tmp_path / "weights.npz") as arrays:
        assert set(arrays.files) == {
            *(f"layer_{i}/{n}" for i in range(1, 5) for n in of_conv),
            "logits/kernel",
            "logits/bias",
        }
        assert np.array_equal(arrays["layer_2/kernel"], frozen.weights["layer_2"]["kernel"])
        counted = [a for a in arrays.files if not a.endswith(("mean", "variance"))]
        assert sum(arrays[a].size for a in counted) == frozen.num_parameters


def test_multiply_adds_by_hand():
    frozen = make_frozen(make_model(), make_support())
    by_hand = 16 * 16 * 4 * 9 * 1 + (8 * 8 + 4 * 4 + 2 * 2) * 4 * 9 * 4 + 4 * 3
    assert frozen.multiply_adds == by_hand


def test_keras_model_can_be_saved_and_fine_tuned(tmp_path, queries):
    frozen = make_frozen(make_model(), make_support())
    model = files.keras_model(frozen)
    model.save(tmp_path / "model.keras")
    from hypertransformer_tf.backend import keras

    again = keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_allclose(again(queries), model(queries), atol=1e-6)
    again.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    before = again.evaluate(queries, np.zeros(7, np.int32), verbose=0)
    again.fit(queries, np.zeros(7, np.int32), epochs=20, verbose=0)
    assert again.evaluate(queries, np.zeros(7, np.int32), verbose=0) < before


def test_onnx_agrees(tmp_path, queries):
    pytest.importorskip("tf2onnx", reason="needs requirements-onnx.txt")
    onnxruntime = pytest.importorskip("onnxruntime", reason="needs requirements-onnx.txt")
    frozen = make_frozen(make_model(), make_support())
    files.write_onnx(frozen, tmp_path / "model.onnx")
    session = onnxruntime.InferenceSession(str(tmp_path / "model.onnx"))
    (logits,) = session.run(None, {"images": queries.astype(np.float32)})
    np.testing.assert_allclose(logits, frozen.logits(tf.cast(queries, tf.float32)), atol=1e-4)
