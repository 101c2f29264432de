"""Augmentation: each change against a slow plain version on real images, who shares a draw, and XLA."""

import colorsys
import dataclasses
import io
import zipfile

import gin
import numpy as np
import pytest
from PIL import Image

from hypertransformer_tf import configuration
from hypertransformer_tf.backend import tf
from hypertransformer_tf.data import image_ops, projective
from hypertransformer_tf.data.augmentation import Augmentation
from hypertransformer_tf.data.class_images import ClassImages
from hypertransformer_tf.data.episodes import EpisodeSampler
from hypertransformer_tf.data.glyphs import load_glyphs
from hypertransformer_tf.data.splits import Splits
from hypertransformer_tf.errors import UserError
from hypertransformer_tf.training import loop

DRAWINGS = {
    "mirror_probability": 0.5,
    "rotate_probability": 0.5,
    "roll_probability": 0.5,
    "resize_probability": 0.5,
    "negate_probability": 0.5,
    "smooth_probability": 0.5,
    "contrast_probability": 0.5,
}
# One wide enough to be told from none, for each augmentation: what a single image must show.
EACH = [{"quarter_turns": True}, *({name: 1.0} for name in DRAWINGS), {"image_augmentations": True}]
EVERYTHING = {"quarter_turns": True, **DRAWINGS, "image_augmentations": True}


def names_of(options):
    return next(iter(options))


@pytest.fixture(scope="module")
def glyphs():
    """uint8 [6, 28, 28, 1]."""
    part = load_glyphs().test
    return part.images[part.offsets[:60:10]]


@pytest.fixture(scope="module")
def photographs(data_dir):
    """uint8 [6, 84, 84, 3]."""
    path = data_dir / "grocery" / "grocery_84.zip"
    if not path.is_file():
        pytest.skip(f"no {path}")
    with zipfile.ZipFile(path) as archive:
        names = sorted(name for name in archive.namelist() if name.endswith("0003.jpg"))[:60:10]
        images = [Image.open(io.BytesIO(archive.read(name))).convert("RGB") for name in names]
    return np.stack([np.asarray(image) for image in images])


@pytest.fixture(scope="module")
def scenes():
    """uint8 [6, 20, 30, 3], oblong and always there: smooth colours, a sharp disc, some noise."""
    rng = np.random.default_rng(0)
    y, x = np.mgrid[:20, :30]
    images = []
    for _ in range(6):
        waves = [np.sin(rng.uniform(0, 0.5) * x + rng.uniform(0, 0.5) * y + rng.uniform(0, 6)) for _ in "rgb"]
        image = 127.5 + 100 * np.stack(waves, -1) + rng.normal(0, 8, [20, 30, 3])
        image[(x - rng.uniform(8, 22)) ** 2 + (y - 10) ** 2 < 30] = rng.integers(0, 256, 3)
        images.append(image.clip(0, 255).astype(np.uint8))
    return np.stack(images)


@pytest.fixture(params=["glyphs", "photographs", "scenes"])
def images(request):
    return request.getfixturevalue(request.param)


def floats(images):
    return tf.constant(images, tf.float32)


# The slow plain versions: one image at a time, one pixel at a time where it matters, float64.


def plain_rotation(image, angle, fill):
    """The rotated image, and which pixels lie so near to a border between two that rounding decides."""
    height, width, _ = image.shape
    result, unsure = np.full(image.shape, fill, np.float64), np.zeros([height, width], bool)
    centre_y, centre_x = (height - 1) / 2, (width - 1) / 2
    for y in range(height):
        for x in range(width):
            dy, dx = y - centre_y, x - centre_x
            source_x = np.cos(angle) * dx - np.sin(angle) * dy + centre_x
            source_y = np.sin(angle) * dx + np.cos(angle) * dy + centre_y
            unsure[y, x] = any(abs(v % 1.0 - 0.5) < 1e-4 for v in (source_x, source_y))
            row, column = int(np.floor(source_y + 0.5)), int(np.floor(source_x + 0.5))
            if 0 <= row < height and 0 <= column < width:
                result[y, x] = image[row, column]
    return result, unsure


def plain_resize(image, height, width):
    """Bilinear, half-pixel centres, no antialiasing."""
    image, result = image.astype(np.float64), np.zeros([height, width, image.shape[2]])
    for i in range(height):
        y = min(max((i + 0.5) * image.shape[0] / height - 0.5, 0), image.shape[0] - 1)
        above, below = image[int(y)], image[min(int(y) + 1, image.shape[0] - 1)]
        row = above + (y - int(y)) * (below - above)
        for j in range(width):
            x = min(max((j + 0.5) * image.shape[1] / width - 0.5, 0), image.shape[1] - 1)
            left, right = row[int(x)], row[min(int(x) + 1, image.shape[1] - 1)]
            result[i, j] = left + (x - int(x)) * (right - left)
    return result


def plain_shrink(image, scale, fill):
    height, width, _ = image.shape
    small = plain_resize(image, round(scale * height), round(scale * width))
    top, left = (height - small.shape[0]) // 2, (width - small.shape[1]) // 2
    result = np.full(image.shape, fill, np.float64)
    result[top : top + small.shape[0], left : left + small.shape[1]] = small
    return result


def plain_crop(image, scale, corner):
    height, width, _ = image.shape
    size = round(scale * height), round(scale * width)
    top = int(corner[0] * (height - size[0] + 1))
    left = int(corner[1] * (width - size[1] + 1))
    return plain_resize(image[top : top + size[0], left : left + size[1]], height, width)


def plain_stretch(image):
    return 255 * (image - image.min()) / (image.max() - image.min())


def plain_smooth(image):
    result = np.zeros(image.shape)
    for y, x in np.ndindex(*image.shape[:2]):
        near = image[max(y - 1, 0) : y + 2, max(x - 1, 0) : x + 2]
        result[y, x] = near.astype(np.float64).mean((0, 1))
    return plain_stretch(result)


def plain_contrast(image, strength):
    return plain_stretch(np.tanh(strength * (image / 127.5 - 1)))


def plain_hue(image, turn):
    result = np.zeros(image.shape)
    for place in np.ndindex(*image.shape[:2]):
        hue, saturation, value = colorsys.rgb_to_hsv(*(image[place] / 255.0))
        result[place] = np.multiply(colorsys.hsv_to_rgb((hue + turn) % 1, saturation, value), 255)
    return result


def test_rotation(images):
    angles = np.float32([0.0, 0.3, -0.7, 1.2, 2.9, -0.8])
    fill = 255 if images.shape[-1] == 1 else 0
    shifts = tf.zeros([6, 2], tf.int32)
    result = image_ops.rotate_and_roll(tf.constant(images), angles, shifts, fill).numpy()
    assert result.dtype == np.uint8
    for image, angle, rotated in zip(images, angles, result):
        plain, unsure = plain_rotation(image, float(angle), fill)
        assert unsure.mean() < 0.01
        np.testing.assert_array_equal(rotated[~unsure], plain[~unsure])
    np.testing.assert_array_equal(result[0], images[0])


def test_rotation_equals_the_projective_transform(images):
    """But for pixels whose source lies half-way between two: at most one in a thousand."""
    rng = np.random.default_rng(0)
    for dtype in (np.uint8, np.float32):
        many = tf.constant(np.repeat(images, 8, 0).astype(dtype))
        angles = rng.uniform(-np.pi, np.pi, 48).astype(np.float32)
        gathered = image_ops.rotate_and_roll(many, angles, tf.zeros([48, 2], tf.int32), 255)
        op = projective.rotate_by_op(many, angles, 255)
        assert op.dtype == gathered.dtype
        differ = (op.numpy() != gathered.numpy()).any(-1)
        assert differ.mean() <= 0.001
        for image, angle, different in zip(many.numpy(), angles, differ):
            if different.any():
                assert plain_rotation(image, float(angle), 255)[1][different].all()


def test_addons_and_the_op_rotate_alike_bit_for_bit(images):
    if projective.tfa is None:
        pytest.skip("TensorFlow Addons can't be imported here")
    angles = tf.constant(np.random.default_rng(0).uniform(-np.pi, np.pi, 6), tf.float32)
    for dtype in (np.uint8, np.float32):
        given = tf.constant(images.astype(dtype))
        for fill in (0, 255):
            addons, op = projective.rotate(given, angles, fill), projective.rotate_by_op(given, angles, fill)
            assert addons.numpy().tobytes() == op.numpy().tobytes()


def test_rotation_without_addons(images, monkeypatch):
    angles = tf.linspace(-1.0, 1.0, 6)
    expected = projective.rotate(tf.constant(images), angles, 9).numpy()
    monkeypatch.setattr(projective, "tfa", None)
    np.testing.assert_array_equal(projective.rotate(tf.constant(images), angles, 9), expected)


def test_roll(images):
    shifts = np.int32([[0, 0], [3, 0], [0, -4], [5, 6], [-8, 8], [-1, -2]])
    result = image_ops.rotate_and_roll(tf.constant(images), tf.zeros([6]), shifts, 0).numpy()
    for image, shift, rolled in zip(images, shifts, result):
        np.testing.assert_array_equal(rolled, np.roll(image, shift, (0, 1)))


def test_rotation_comes_before_the_roll(glyphs):
    angles, shifts = tf.fill([6], 0.4), tf.constant([[5, -3]] * 6)
    once = image_ops.rotate_and_roll(tf.constant(glyphs), angles, shifts, 255).numpy()
    rotated = image_ops.rotate_and_roll(tf.constant(glyphs), angles, tf.zeros_like(shifts), 255).numpy()
    np.testing.assert_array_equal(once, np.roll(rotated, [5, -3], (1, 2)))


def test_shrink(images):
    scales = np.float32([1.0, 0.7, 0.77, 0.85, 0.93, 0.99])
    result = image_ops.shrink(floats(images), scales, 255.0).numpy()
    np.testing.assert_array_equal(result[0], images[0])
    for image, scale, shrunk in zip(images, scales, result):
        np.testing.assert_allclose(shrunk, plain_shrink(image, float(scale), 255), atol=0.01)
    height, width = (round(0.7 * side) for side in images.shape[1:3])
    inner = tf.image.resize(images[1], [height, width]).numpy()
    top, left = (images.shape[1] - height) // 2, (images.shape[2] - width) // 2
    np.testing.assert_allclose(result[1, top : top + height, left : left + width], inner, atol=0.01)


def test_flip_and_crop(images):
    flips = np.array([False, True, False, True, True, False])
    scales = np.float32([1.0, 1.0, 0.6, 0.6, 0.75, 0.9])
    corners = np.float32([[0, 0], [0.5, 0.5], [0, 0.999], [0.999, 0], [0.3, 0.6], [1.0, 1.0]])
    result = image_ops.flip_and_crop(floats(images), flips, scales, corners).numpy()
    np.testing.assert_array_equal(result[0], images[0])
    np.testing.assert_array_equal(result[1], images[1][:, ::-1])
    for image, flip, scale, corner, cropped in zip(images, flips, scales, corners, result):
        plain = plain_crop(image[:, ::-1] if flip else image, float(scale), np.minimum(corner, 0.999))
        np.testing.assert_allclose(cropped, plain, atol=0.02)


def test_smooth(images):
    for image, smoothed in zip(images, image_ops.smooth(floats(images)).numpy()):
        np.testing.assert_allclose(smoothed, plain_smooth(image), atol=0.01)


def test_bend_contrast(images):
    strengths = np.float32([0.5, 0.9, 1.3, 1.7, 2.1, 2.5])
    result = image_ops.bend_contrast(floats(images), strengths).numpy()
    for image, strength, bent in zip(images, strengths, result):
        np.testing.assert_allclose(bent, plain_contrast(image, float(strength)), atol=0.01)


def test_stretching_an_even_image_gives_numbers():
    assert (image_ops.stretch(tf.fill([2, 4, 4, 1], 255.0)).numpy() == 0).all()


@pytest.mark.parametrize("kind", ["photographs", "scenes"])
def test_turn_hue(kind, request):
    images = request.getfixturevalue(kind)
    turns = np.float32([0.0, 0.2, -0.2, 0.07, -0.13, 0.5])
    result = image_ops.turn_hue(floats(images), turns).numpy()
    np.testing.assert_allclose(result[0], images[0], atol=0.01)
    for image, turn, turned in zip(images, turns, result):
        np.testing.assert_allclose(turned, plain_hue(image, float(turn)), atol=0.02)
        op = tf.image.adjust_hue(image / np.float32(255), turn).numpy() * 255
        np.testing.assert_allclose(turned, op, atol=0.02)


def test_scale_contrast(images):
    factors = np.float32([1.0, 0.8, 1.2, 0.9, 1.1, 0.0])
    result = image_ops.scale_contrast(floats(images), factors).numpy()
    for image, factor, scaled in zip(images.astype(np.float64), factors, result):
        mean = image.mean((0, 1))
        np.testing.assert_allclose(scaled, mean + factor * (image - mean), atol=0.02)
        np.testing.assert_allclose(scaled, tf.image.adjust_contrast(np.float32(image), factor), atol=0.02)


@pytest.mark.parametrize("kind", ["photographs", "scenes"])
def test_all_of_them_in_their_order(kind, request):
    """The whole chain on given random numbers, one image at a time; what a number means is pinned here."""
    images = request.getfixturevalue(kind)[:, :36, :30]
    rng = np.random.default_rng(3)
    drawings = rng.uniform(size=[6, 12]).astype(np.float32)
    photographs = rng.uniform(size=[6, 7]).astype(np.float32)
    given = {2: drawings, 3: photographs}  # purposes of the support images

    augmentation = Augmentation(
        "image", **DRAWINGS, fill=40, image_augmentations=True, augment_individually=True
    )
    slots = tf.zeros([1, 6], tf.int32)
    result = augmentation(tf.constant(images[None]), slots, 2, 0, lambda purpose, _: given[purpose].ravel())
    shown = set()
    for image, draws, photo, augmented in zip(images, drawings, photographs, result[0].numpy()):
        turn, a, angle, b, down, right, c, size, d, e, f, strength = (float(x) for x in draws)
        sides = image.shape[:2]
        mirror = 4 * turn % 1
        if mirror < 0.5:
            image = image[:, ::-1]
        if a < 0.5:
            image, unsure = plain_rotation(image, np.deg2rad(30) * (2 * angle - 1), 40)
            assert not unsure.any(), "choose another seed"
        if b < 0.5:
            most = [int(0.3 * side) for side in sides]
            amount = [int(u * (2 * m + 1)) - m for u, m in zip((down, right), most)]
            image = np.roll(image, amount, (0, 1))
        if c < 0.5:
            image = plain_shrink(image, 0.7 + 0.3 * size, 40)
        if d < 0.5:
            image = 255.0 - image
        if e < 0.5:
            image = plain_smooth(image)
        if f < 0.5:
            image = plain_contrast(image, 0.5 + 2 * strength)
        shown.update(name for name, x in zip("mabcdef", (mirror, a, b, c, d, e, f)) if x < 0.5)
        flip, hue, brightness, contrast, size, down, right = (float(x) for x in photo)
        if flip < 0.5:
            image = image[:, ::-1]
        image = plain_hue(image, 0.4 * hue - 0.2) + 255 * (0.6 * brightness - 0.3)
        mean = image.mean((0, 1))
        image = (mean + (0.8 + 0.4 * contrast) * (image - mean)).clip(0, 255)
        image = plain_crop(image, 0.6 + 0.4 * size, (down, right))
        np.testing.assert_allclose(augmented, image, atol=0.1)
    assert shown == set("mabcdef")


# In the sampler.


def alike(image, classes=8, count=6):
    """Classes whose images are all the given one, so that only augmentation can tell them apart."""
    arrays = [np.repeat(image[None], count, 0)] * classes
    return ClassImages.from_class_arrays(arrays, [f"class {i}" for i in range(classes)], "alike")


def draw(sampler, *indices):
    return sampler(tf.constant(indices, tf.int64))


def distinct(images):
    return len(np.unique(images.reshape(len(images), -1), axis=0))


def test_an_augmentation_of_a_class_is_shared_by_support_and_query(scenes):
    square = scenes[0][:, :20]
    sampler = EpisodeSampler(alike(square), 4, 2, 8, unlabeled=1, augmentation=Augmentation(**DRAWINGS))
    episodes = draw(sampler, *range(10))
    for episode in range(10):
        query_labels = episodes.query_labels[episode].numpy()
        query, support = episodes.query_images[episode].numpy(), episodes.support_images[episode].numpy()
        shown = [query[query_labels == slot][0] for slot in range(4)]
        for slot in range(4):
            assert distinct(query[query_labels == slot]) == 1
            mine = episodes.support_labels[episode].numpy() == slot
            assert mine.sum() == 2 and (support[mine] == shown[slot]).all()
        # Of the unlabeled ones, one belongs to each class.
        assert distinct(np.stack(shown)) >= 3 and distinct(np.concatenate([shown, support])) <= 4


def test_an_augmentation_of_the_batch_is_shared_by_all_images(scenes):
    for options in ({"scope": "batch", **DRAWINGS}, {"image_augmentations": True}):
        sampler = EpisodeSampler(alike(scenes[0]), 4, 2, 8, augmentation=Augmentation(**options))
        episodes = draw(sampler, *range(10))
        both = np.concatenate([episodes.support_images, episodes.query_images], 1)
        assert all(distinct(each) == 1 for each in both)
        assert distinct(both[:, 0]) >= 8


def test_an_augmentation_of_an_image_is_its_own(scenes):
    for options in (
        {"scope": "image", **DRAWINGS},
        {"image_augmentations": True, "augment_individually": True},
    ):
        sampler = EpisodeSampler(alike(scenes[0]), 4, 2, 8, augmentation=Augmentation(**options))
        episodes = draw(lambda i, sampler=sampler: sampler(i, 2), 0)
        both = np.concatenate([episodes.support_images[0], episodes.query_images[0]])
        assert len(both) == 24 and distinct(both) >= 21


def test_quarter_turns_of_all_scopes(scenes):
    square = scenes[0][:, :20]
    turned = np.stack([np.rot90(square, k) for k in range(4)]) / np.float32(128) - 1
    for scope, least in (("class", 2), ("batch", 1), ("image", 2)):
        augmentation = Augmentation(scope, quarter_turns=True)
        episodes = draw(EpisodeSampler(alike(square), 4, 2, 8, augmentation=augmentation), *range(8))
        for episode in episodes.query_images.numpy():
            assert distinct(np.concatenate([turned, episode])) == 4
        most = max(distinct(episode) for episode in episodes.query_images.numpy())
        assert most >= least and (scope != "batch" or most == 1)


def test_mirroring_alone_and_with_quarter_turns(scenes):
    square = scenes[0][:, :20]
    turned = [np.rot90(square, k) for k in range(4)]
    symmetries = np.stack([*turned, *(image[:, ::-1] for image in turned)]) / np.float32(128) - 1
    for quarter_turns, expected in ((False, symmetries[::4]), (True, symmetries)):
        augmentation = Augmentation("class", quarter_turns, mirror_probability=0.5)
        episodes = draw(EpisodeSampler(alike(square), 4, 2, 8, augmentation=augmentation), *range(32))
        seen = episodes.query_images.numpy().reshape([-1, *square.shape])
        assert distinct(seen) == len(expected) == distinct(np.concatenate([expected, seen]))


@pytest.mark.parametrize("options", EACH, ids=names_of)
def test_each_augmentation_changes_images_and_only_images(options, scenes):
    images = alike(scenes[0][:, :20])
    plain = draw(EpisodeSampler(images, 4, 1, 8), 0, 1, 2)
    augmented = draw(EpisodeSampler(images, 4, 1, 8, augmentation=Augmentation(**options)), 0, 1, 2)
    for name in ("support_labels", "query_labels", "class_ids"):
        np.testing.assert_array_equal(getattr(plain, name), getattr(augmented, name))
    for name in ("support_images", "query_images"):
        before, after = getattr(plain, name).numpy(), getattr(augmented, name).numpy()
        assert after.dtype == np.float32 and after.min() >= -1.0 and after.max() <= 1.0
        assert (before != after).any((2, 3, 4)).mean() > 0.5


def test_a_probability_is_how_often(scenes):
    images = alike(scenes[0])
    for name in DRAWINGS:
        augmentation = Augmentation("image", **{name: 0.3})
        result = draw(EpisodeSampler(images, 4, 1, 20, augmentation=augmentation), *range(10)).query_images
        changed = (result.numpy() != scenes[0] / np.float32(128) - 1).any((2, 3, 4)).mean()
        assert 0.2 <= changed <= 0.4, (name, changed)


def test_without_augmentation_episodes_are_what_they_were(scenes):
    arrays = [np.roll(scenes, k, 2) for k in range(8)]
    images = ClassImages.from_class_arrays(arrays, list("abcdefgh"), "scenes")
    before = draw(EpisodeSampler(images, 4, 1, 8), 0, 1)
    for augmentation in (Augmentation(), Augmentation(negate_probability=1e-12)):
        after = draw(EpisodeSampler(images, 4, 1, 8, augmentation=augmentation), 0, 1)
        np.testing.assert_array_equal(before.support_images, after.support_images)
        np.testing.assert_array_equal(before.query_images, after.query_images)


@pytest.fixture(scope="module")
def everything(scenes):
    arrays = [np.roll(scenes, k, 2)[:, :, :20] for k in range(8)]
    images = ClassImages.from_class_arrays(arrays, list("abcdefgh"), "scenes")
    return {
        scope: EpisodeSampler(
            images,
            4,
            1,
            8,
            seed=5,
            rotate=True,
            augmentation=Augmentation(scope, **EVERYTHING, augment_individually=scope == "image"),
        )
        for scope in ("class", "batch", "image")
    }


@pytest.mark.parametrize("scope", ["class", "batch", "image"])
def test_an_episode_is_the_same_in_every_batch(scope, everything):
    """And a second query batch changes neither the support set nor the first."""
    batch, again = (draw(everything[scope], 3, 11, 10**9) for _ in range(2))
    alone, twice = draw(everything[scope], 11), draw(lambda i: everything[scope](i, 2), 11)
    for name in ("support_images", "query_images"):
        values = getattr(batch, name).numpy()
        np.testing.assert_array_equal(values, getattr(again, name))
        # The last bits of a vectorised tanh may depend on where in memory a value lies.
        np.testing.assert_allclose(values[1], getattr(alone, name)[0], atol=1e-5)
        np.testing.assert_allclose(values[1], getattr(twice, name)[0, : values.shape[1]], atol=1e-5)


@pytest.mark.parametrize("scope", ["class", "batch", "image"])
def test_the_whole_sampler_runs_under_xla(scope, everything):
    episodes = draw(tf.function(everything[scope], jit_compile=True), 0, 1, 2)
    for images, count in ((episodes.support_images, 4), (episodes.query_images, 8)):
        images = images.numpy()
        assert images.shape == (3, count, 20, 20, 3) and np.isfinite(images).all()
        assert images.min() >= -1.0 and images.max() <= 1.0
        assert (np.ptp(images, (2, 3, 4)) > 0.2).all()


def test_xla_augments_alike(scenes):
    """On given random numbers: XLA draws others from the same seed."""
    augmentation = Augmentation("image", **EVERYTHING, augment_individually=True)
    numbers = tf.random.stateless_uniform([2, 600], [0, 1])
    slots = tf.constant([[0, 1, 2] * 8] * 2)
    images = tf.constant(np.concatenate([scenes] * 8)[:, :, :20].reshape(2, 24, 20, 20, 3))

    def augment(images, numbers):
        return augmentation(images, slots, 3, 0, lambda _, count: numbers[:, :count])

    plain, compiled = (tf.function(augment, jit_compile=jit)(images, numbers).numpy() for jit in (None, True))
    near = np.abs(plain - compiled) < 0.05
    # A pixel whose source lies half-way between two may be another; smoothing spreads it.
    assert near.mean() > 0.995 and near.all((2, 3, 4)).mean() > 0.8


def test_shapes_are_static(everything):
    function = tf.function(everything["image"]).get_concrete_function(tf.TensorSpec([3], tf.int64))
    assert function.structured_outputs.support_images.shape == (3, 4, 20, 20, 3)
    assert function.structured_outputs.query_images.shape == (3, 8, 20, 20, 3)


def test_paper_stays_paper(glyphs):
    """Rotating and shrinking a drawing uncovers paper, not ink, and `fill` says otherwise."""
    options = {"rotate_probability": 1.0, "angle_range": 180.0, "resize_probability": 1.0}
    for fill, corner in ((None, 255.0), (0, 0.0)):
        augmentation = Augmentation("image", **options, smallest_size=0.8, fill=fill)
        images = draw(EpisodeSampler(alike(glyphs[0]), 4, 1, 8, augmentation=augmentation), 0).query_images
        corners = (images.numpy()[0, :, 0, 0] + 1) * 128
        assert (corners == corner).mean() > 0.7


@pytest.mark.parametrize(
    "options, message",
    [
        ({"scope": "episode"}, "Augmentation.scope = 'episode': use class, batch, image"),
        ({"roll_probability": 1.5}, "Augmentation.roll_probability = 1.5: must be within 0..1"),
        ({"negate_probability": -0.1}, "negate_probability = -0.1"),
        ({"smooth_probability": "often"}, "smooth_probability = 'often'"),
        ({"angle_range": -1.0}, "angle_range = -1.0: must be within 0..180"),
        ({"roll_range": 2}, "roll_range = 2"),
        ({"smallest_size": 0}, "smallest_size = 0"),
        ({"most_contrast": 0.1}, "most_contrast = 0.1: must be within 0.5..100"),
        ({"fill": 256}, "fill = 256: must be within 0..255"),
        ({"hue": 0.7}, "hue = 0.7"),
    ],
)
def test_impossible_values_are_refused(options, message):
    with pytest.raises(UserError, match=message):
        Augmentation(**options)


def test_images_that_can_not_be_augmented_so_are_refused(glyphs, scenes):
    with pytest.raises(UserError, match="alike has images of 1 channel: turn it off"):
        EpisodeSampler(alike(glyphs[0]), 2, 1, 2, augmentation=Augmentation(image_augmentations=True))
    with pytest.raises(UserError, match="quarter_turns needs square images, alike has 20x30"):
        EpisodeSampler(alike(scenes[0]), 2, 1, 2, augmentation=Augmentation(quarter_turns=True))


# In the training.


@pytest.fixture
def clean():
    yield
    gin.clear_config()


def test_the_papers_image_augmentations(clean):
    configuration.load(["gin/augment_images.gin"])
    augmentation = Augmentation()
    assert augmentation == Augmentation(image_augmentations=True)
    assert dataclasses.replace(augmentation, image_augmentations=False).changed() == {}
    values = (
        augmentation.hue,
        augmentation.brightness,
        augmentation.image_contrast,
        augmentation.smallest_crop,
    )
    assert values == (0.2, 0.3, 0.2, 0.6)


def test_training_episodes_alone_are_augmented(clean, tiny_gin, glyphs, monkeypatch, tmp_path):
    configuration.load([str(tiny_gin)], ["Augmentation.roll_probability = 0.25"])
    made = {}

    class Recorder(EpisodeSampler):
        def __init__(self, *arguments):
            super().__init__(*arguments)
            made[arguments[6]] = self.augmentation
            if len(made) == 2:
                raise UserError("enough seen")

    monkeypatch.setattr(loop, "EpisodeSampler", Recorder)
    images = alike(glyphs[0], 6, 4)
    with pytest.raises(UserError, match="enough seen"):
        loop.train(Splits("alike", images, images, images), tmp_path, tf.distribute.get_strategy())
    assert made["train"].changed() == {"roll_probability": 0.25} and made["val"] is None
