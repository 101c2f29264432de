"""tieredImageNet in each of its forms: PNG lists and BGR arrays come out as the same RGB pixels."""

import io
import pickle

import numpy as np
import pytest
from pickle_helpers import write_python2
from PIL import Image

from hypertransformer_tf.data import rows
from hypertransformer_tf.data.sources import load_splits
from hypertransformer_tf.errors import UserError

COUNTS = {"train": [5, 2, 4], "val": [3, 1], "test": [2, 6]}
SIDE = 12


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch):
    monkeypatch.setattr(rows, "CHUNK", 3)
    monkeypatch.setattr("hypertransformer_tf.data.tiered_imagenet.CHUNK", 3)


def content(part):
    """RGB images [image, side, side, 3] and class numbers [image], in no order."""
    rng = np.random.default_rng(len(part))
    labels = rng.permutation(np.repeat(np.arange(len(COUNTS[part])), COUNTS[part]))
    return rng.integers(0, 256, [len(labels), SIDE, SIDE, 3]).astype(np.uint8), labels.astype(np.int32)


def png(image):
    file = io.BytesIO()
    Image.fromarray(image).save(file, "png")
    return np.frombuffer(file.getvalue(), np.uint8)


def write(folder, images_form, labels_form, python_2=False):
    def dump(file, value):
        if python_2:
            write_python2(file, value)
        else:
            file.write_bytes(pickle.dumps(value))

    folder.mkdir(parents=True, exist_ok=True)
    for part in COUNTS:
        images, labels = content(part)
        if images_form == "png":
            dump(folder / f"{part}_images_png.pkl", [png(image) for image in images])
        elif images_form == "png columns":
            dump(folder / f"{part}_images_png.pkl", [png(image)[:, None] for image in images])
        else:
            save = np.savez if images_form == "npz" else np.savez_compressed
            save(folder / f"{part}_images.npz", images=images[..., ::-1])
        if labels_form == "specific":
            names = [f"{part} class {index}" for index in range(len(COUNTS[part]))]
            held = {"label_specific": labels, "label_general": labels * 0, "label_specific_str": names}
            dump(folder / f"{part}_labels.pkl", {**held, "label_general_str": {0: "a category"}})
        else:
            dump(folder / f"{part}_labels.pkl", {"labels": [int(label) + 351 for label in labels]})


def check(splits, labels_form):
    assert splits.name == "tieredimagenet"
    for part, counts in COUNTS.items():
        images, labels = content(part)
        found = getattr(splits, part)
        assert found.counts.tolist() == counts and isinstance(found.images, np.memmap)
        name = f"{part} class 1" if labels_form == "specific" else "352"
        assert found.names[1] == name
        for index in range(len(counts)):
            np.testing.assert_array_equal(found.class_array(index), images[labels == index])


@pytest.mark.parametrize("images_form", ["png", "png columns", "npz", "npz compressed"])
@pytest.mark.parametrize("labels_form", ["specific", "labels"])
@pytest.mark.parametrize("python_2", [False, True])
def test_every_form_gives_the_same(tmp_path, images_form, labels_form, python_2):
    write(tmp_path / "tiered-imagenet", images_form, labels_form, python_2)
    check(load_splits(str(tmp_path), "tieredimagenet"), labels_form)
    check(load_splits(str(tmp_path / "tiered-imagenet"), "tieredimagenet"), labels_form)


def test_images_can_be_resized(tmp_path):
    write(tmp_path, "npz", "labels")
    assert load_splits(str(tmp_path), "tieredimagenet", image_size=7).train.image_shape == (7, 7, 3)


def test_what_is_missing_is_named(tmp_path):
    with pytest.raises(UserError, match="no tieredImageNet in .*train_images_png.pkl.*train_images.npz"):
        load_splits(str(tmp_path), "tieredimagenet")
    write(tmp_path, "png", "labels")
    (tmp_path / "val_labels.pkl").unlink()
    with pytest.raises(UserError, match="without val_labels.pkl"):
        load_splits(str(tmp_path), "tieredimagenet")


@pytest.mark.parametrize(
    "held, message",
    [
        ({"label_general": [0] * 11}, "has neither 'label_specific' nor 'labels'"),
        ({"labels": [0, 1]}, "train_images_png.pkl holds 11 images, .*train_labels.pkl 2 labels"),
        ({"label_specific": [0, 1] * 5 + [2], "label_specific_str": ["a", "b"]}, "label 2 has no name"),
        ({"labels": None}, "its labels are"),
        ([0], "holds a list, needed is a dict"),
    ],
)
def test_labels_that_do_not_fit_are_refused(tmp_path, held, message):
    write(tmp_path, "png", "labels")
    (tmp_path / "train_labels.pkl").write_bytes(pickle.dumps(held))
    with pytest.raises(UserError, match=message):
        load_splits(str(tmp_path), "tieredimagenet")


@pytest.mark.parametrize(
    "change, message",
    [
        (lambda images: images[:1] + [images[1][:100]] + images[2:], "image 1 is not readable"),
        (lambda images: [np.zeros(9, np.uint8)] + images[1:], "image 0 is not readable"),
        (lambda images: images[:1] + ["text"] + images[2:], "image 1 is not readable"),
        (lambda images: images[:1] + [png(np.zeros([5, 5, 3], np.uint8))] + images[2:], "different shapes"),
        (lambda images: {"images": images}, "holds no list of images"),
        (lambda images: [], "holds no list of images"),
    ],
)
def test_images_that_do_not_fit_are_refused(tmp_path, change, message):
    write(tmp_path, "png", "labels")
    images = [png(image) for image in content("train")[0]]
    (tmp_path / "train_images_png.pkl").write_bytes(pickle.dumps(change(images)))
    with pytest.raises(UserError, match=f"train_images_png.pkl.*{message}"):
        load_splits(str(tmp_path), "tieredimagenet")


@pytest.mark.parametrize("form", ["png", "npz", "npz compressed"])
@pytest.mark.parametrize("kept", [0.02, 0.5, 0.98])
def test_truncated_files_are_named(tmp_path, form, kept):
    write(tmp_path, form, "labels")
    file = next(tmp_path.glob("test_images*"))
    whole = file.read_bytes()
    file.write_bytes(whole[: int(kept * len(whole))])
    with pytest.raises(UserError, match=f"{file.name} is (damaged|no readable)"):
        load_splits(str(tmp_path), "tieredimagenet")


def test_flipped_bits_in_an_npz_are_found(tmp_path):
    write(tmp_path, "npz", "labels")
    file = tmp_path / "val_images.npz"
    damaged = bytearray(file.read_bytes())
    damaged[len(damaged) // 2] ^= 1
    file.write_bytes(damaged)
    with pytest.raises(UserError, match="val_images.npz is (damaged|no readable)"):
        load_splits(str(tmp_path), "tieredimagenet")


def test_other_arrays_in_an_npz_are_refused(tmp_path):
    write(tmp_path, "npz", "labels")
    file = tmp_path / "val_images.npz"
    for arrays, message in (
        ({"image": np.zeros([4, 5, 5, 3], np.uint8)}, "no readable .npz with 'images'"),
        ({"images": np.zeros([4, 5, 5, 3], np.float32)}, "images are float32"),
        ({"images": np.zeros([4, 5, 5], np.uint8)}, r"images are uint8 \(4, 5, 5\)"),
        ({"images": np.array([{}], object)}, "images are object"),
    ):
        np.savez(file, **arrays)
        with pytest.raises(UserError, match=f"val_images.npz.*{message}"):
            load_splits(str(tmp_path), "tieredimagenet")
