"""XLA, without which nothing runs on a TPU: every op has a kernel, and compiled steps give the same."""

import numpy as np
import pytest
from conftest import ROOT, TINY_CONFIG

from hypertransformer_tf.backend import tf
from hypertransformer_tf.data.class_images import ClassImages
from hypertransformer_tf.data.episodes import EpisodeSampler
from hypertransformer_tf.training.xla import ops_of, recorded_ops, without_kernel

# Not those that are included only, learn nothing, need a trained teacher, or are another run's step with
# other numbers of channels (tieredimagenet, and characters but for mirroring, which is in OPTIONS). Nor
# second-order MAML, where XLA's second derivative of max-pooling is not exact, and MAML++, whose loop in a
# branch XLA refuses.
RUNS = sorted(
    str(path.relative_to(ROOT))
    for path in [*(ROOT / "gin").glob("*.gin"), *(ROOT / "gin" / "baselines").glob("*.gin")]
    if path.stem not in ("fast", "augment_images", "nearest_mean", "rfs_distilled", "maml", "mamlpp")
    and path.stem not in ("characters", "tieredimagenet")
)
RUNS.remove("gin/baselines/omniglot.gin")
# Rows of the paper whose graphs are unlike theirs: a decoder, embeddings, six layers, 9x9 kernels.
ROWS = [
    "gin/paper/figure5/decoder.gin",
    "gin/paper/leo/tieredimagenet_1shot.gin",
    "gin/paper/lgm_net/miniimagenet_1shot.gin",
    "gin/paper/large_kernels/generated_generated_spatial.gin",
]
# On top of a file: masked samples go through encoder and decoder. One tower compiles in half the time of two.
ON_TOP = {
    "gin/omniglot_fast.gin": ["TrainingStep.towers = 2"],
    "gin/paper/figure5/decoder.gin": ["Task.unlabeled = 1", "SupportMasking.unlabeled_start = 0.7"],
}
# All that no file of gin/ switches on and that goes together, on small images.
OPTIONS = """
Task.rotate = True
Task.unlabeled = 1
Augmentation.mirror_probability = 0.5
Augmentation.rotate_probability = 0.5
Augmentation.roll_probability = 0.5
Augmentation.resize_probability = 0.5
Augmentation.negate_probability = 0.5
Augmentation.smooth_probability = 0.5
Augmentation.contrast_probability = 0.5
HyperTransformer.initialization = "random"
HyperTransformer.generator = "separate"
HyperTransformer.attention = "sigmoid"
HyperTransformer.transformer_activation = "gelu"
HyperTransformer.generate_bias = True
HyperTransformer.add_learned_weights = True
HyperTransformer.separate_support_bn = True
HyperTransformer.warmup_heads = True
HyperTransformer.shared_batch_norm = True
HyperTransformer.nonlinear_features = True
HyperTransformer.logits_features = "mix"
HyperTransformer.cnn_dropout = 0.1
HyperTransformer.transformer_dropout = 0.1
HyperTransformer.shared_feature_dropout = 0.1
HyperTransformer.activation_feature_dropout = 0.1
HyperTransformer.conv_method = "grouped"
SupportMasking.unlabeled_start = 0.7
SupportMasking.max_remove_labeled = 0.3
SharedHead.weight = 0.5
TrainingStep.label_smoothing = 0.1
TrainingStep.warmup_episodes = 10000
TrainingStep.l2_generated = 0.001
TrainingStep.weight_variation = 0.001
Optimizer.kind = "adamw"
Optimizer.weight_decay = 0.01
Optimizer.clip_norm = 1.0
"""


@pytest.fixture
def options(tmp_path):
    """A gin file with OPTIONS; its images are 28x28."""
    path = tmp_path / "options.gin"
    path.write_text(TINY_CONFIG.replace('load_splits.name = "npy"', 'load_splits.name = "glyphs"') + OPTIONS)
    lines = [line for line in path.read_text().splitlines() if not line.startswith("load_splits.t")]
    path.write_text("\n".join(line for line in lines if not line.startswith("load_splits.val")))
    return path


def graph_of(function):
    return tf.function(function).get_concrete_function(tf.TensorSpec([2], tf.int64))


def test_the_check_catches_what_xla_lacks(tmp_path):
    """A projective transform, Python, and both also inside a loop or a branch."""

    def transform(x):
        images = tf.cast(tf.reshape(x, [1, 2, 1, 1]), tf.float32)
        transforms = tf.constant([[1.0, 0, 0, 0, 1, 0, 0, 0]])
        return tf.reduce_sum(
            tf.raw_ops.ImageProjectiveTransformV3(
                images=images,
                transforms=transforms,
                output_shape=[2, 1],
                fill_value=0.0,
                interpolation="NEAREST",
                fill_mode="CONSTANT",
            )
        )

    def python(x):
        return tf.reduce_sum(tf.numpy_function(np.sin, [tf.cast(x, tf.float32)], tf.float32))

    def in_a_loop(x):
        return tf.while_loop(lambda i, s: i < 3, lambda i, s: (i + 1, s + transform(x)), (0, 0.0))[1]

    def in_a_function_in_a_branch(x):
        return tf.cond(x[0] > 0, lambda: tf.function(python)(x), lambda: 0.0)

    assert without_kernel(ops_of(graph_of(transform))) == {"ImageProjectiveTransformV3"}
    assert without_kernel(ops_of(graph_of(python))) == {"PyFunc"}
    assert without_kernel(ops_of(graph_of(in_a_loop))) == {"ImageProjectiveTransformV3"}
    assert without_kernel(ops_of(graph_of(in_a_function_in_a_branch))) == {"PyFunc"}
    with recorded_ops() as ops:
        transform(tf.constant([1, 2]))
    assert without_kernel(ops) == {"ImageProjectiveTransformV3"}


def test_images_from_the_disk_are_no_step_of_a_tpu(tmp_path, monkeypatch):
    monkeypatch.setattr("hypertransformer_tf.data.episodes.MAPPED_BYTES", 0)
    np.save(tmp_path / "images.npy", np.zeros([12, 4, 4, 1], np.uint8))
    mapped = np.load(tmp_path / "images.npy", mmap_mode="r")
    images = ClassImages(mapped, np.arange(3) * 4, np.full(3, 4), ("a", "b", "c"), "disk")
    assert without_kernel(ops_of(graph_of(EpisodeSampler(images, 3, 1, 3)))) == {"PyFuncStateless"}


def check(program, file, *bindings):
    flags = [f"--gin_bindings={each}" for each in bindings]
    done = program("scripts/check_xla.py", f"--gin_file={file}", *flags, timeout=900)
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]
    assert str(file) in done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("file", [*RUNS, *ROWS])
def test_compiled_the_step_is_the_same(program, file):
    """Loss, gradients and all variables afterwards. Shapes are the file's, but for two episodes a step."""
    if "rfs" in file:
        pytest.importorskip("sklearn", reason="RFS needs requirements-baselines.txt")
    few = ["TrainingStep.episodes_per_step = 2", "TrainingStep.towers = 1"]
    check(program, file, *few, *ON_TOP.get(file, []))


@pytest.mark.slow
def test_compiled_with_all_options_the_step_is_the_same(program, options):
    check(program, options)


@pytest.mark.slow
def test_check_xla_says_what_differs(program):
    done = program("scripts/check_xla.py", "--gin_file=gin/baselines/protonet.gin", "--tolerance=0")
    assert done.returncode == 2 and "more than 0e+00" in done.stdout
    assert done.stderr.strip().splitlines()[-1].startswith("error: 1 of 1 steps")
