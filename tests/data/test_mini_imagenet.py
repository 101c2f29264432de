"""miniImageNet in each of its forms: the same pixels come out, in RGB."""

import pickle

import numpy as np
import pytest
from pickle_helpers import write_python2
from PIL import Image

from hypertransformer_tf.data.sources import load_splits
from hypertransformer_tf.errors import UserError

CLASSES = {"train": ["n04", "n01", "n03"], "val": ["n07", "n06"], "test": ["n09", "n08"]}
FORMS = ("class_dict", "class_dict of Python 2", "labels", "labels of Python 2", "csv")


def pictures(part, index, side=9):
    """uint8 [image, side, side, 3] of one class, each of one colour; later classes have more images."""
    rng = np.random.default_rng([len(part), index])
    colour = rng.integers(0, 256, [2 + index, 1, 1, 3])
    return np.broadcast_to(colour, [2 + index, side, side, 3]).astype(np.uint8)


def write(folder, form, classes=None):
    folder.mkdir(parents=True, exist_ok=True)
    for part, names in (classes or CLASSES).items():
        arrays = [pictures(part, index) for index in range(len(names))]
        images = np.concatenate(arrays)
        labels = np.repeat(np.arange(len(names)), [len(array) for array in arrays])
        mixed = np.random.default_rng(0).permutation(len(images))
        mixed = mixed[np.argsort(labels[mixed], kind="stable")][::-1]  # not sorted by class
        images, labels = images[mixed], labels[mixed]
        if form.startswith("class_dict"):
            rows = {name: np.flatnonzero(labels == i).tolist() for i, name in enumerate(names)}
            file = folder / f"mini-imagenet-cache-{part}.pkl"
            content = {"image_data": images, "class_dict": rows}
        elif form.startswith("labels"):
            phase = "train_phase_train" if part == "train" else part
            file = folder / f"miniImageNet_category_split_{phase}.pickle"
            content = {"data": images, "labels": [int(label) + 64 for label in labels]}
        else:
            (folder / "images").mkdir(exist_ok=True)
            lines = ["filename,label"]
            for number, label in enumerate(labels):
                lines.append(f"{names[label]}{number:08d}.png,{names[label]}")
                Image.fromarray(images[number]).save(folder / "images" / lines[-1].split(",")[0])
            (folder / f"{part}.csv").write_text("\n".join(lines) + "\n")
            continue
        if "Python 2" in form:
            write_python2(file, content)
        else:
            file.write_bytes(pickle.dumps(content, 4))


def colours(images, index):
    """Colours of one class's images, sorted: the forms keep different orders."""
    return sorted(images.class_array(index)[:, 4, 4].tolist())


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("below", ["", "mini-imagenet"])
def test_every_form_gives_the_same(tmp_path, form, below):
    write(tmp_path / below, form)
    splits = load_splits(str(tmp_path), "miniimagenet")
    assert splits.name == "miniimagenet"
    for part, names in CLASSES.items():
        images = getattr(splits, part)
        side = 84 if form == "csv" else 9
        assert images.image_shape == (side, side, 3) and images.num_classes == len(names)
        assert isinstance(images.images, np.memmap)
        order = range(len(names))
        if form == "csv":  # classes in the order of their first line
            order = [names.index(name) for name in images.names]
        elif form.startswith("class_dict"):
            assert images.names == tuple(names)
        else:
            assert images.names == tuple(str(64 + index) for index in order)
        for position, index in enumerate(order):
            assert colours(images, position) == sorted(pictures(part, index)[:, 4, 4].tolist())


def test_the_middle_split_may_be_called_validation(tmp_path):
    write(tmp_path, "class_dict")
    expected = load_splits(str(tmp_path), "miniimagenet").val
    (tmp_path / "mini-imagenet-cache-val.pkl").rename(tmp_path / "mini-imagenet-cache-validation.pkl")
    validation = load_splits(str(tmp_path), "miniimagenet").val
    np.testing.assert_array_equal(validation.images, expected.images)


def test_images_can_be_resized(tmp_path):
    write(tmp_path, "labels")
    assert load_splits(str(tmp_path), "miniimagenet", image_size=20).test.image_shape == (20, 20, 3)


def test_the_split_is_that_of_the_files(tmp_path):
    write(tmp_path, "labels")
    for options in ({"split": "names"}, {"train": "0-1"}):
        with pytest.raises(UserError, match="miniimagenet are split by their files"):
            load_splits(str(tmp_path), "miniimagenet", **options)


def test_what_is_missing_is_named(tmp_path):
    with pytest.raises(
        UserError, match="no miniImageNet in .*mini-imagenet-cache-train.pkl or mini.*train.csv"
    ):
        load_splits(str(tmp_path), "miniimagenet")
    write(tmp_path, "class_dict", {"train": CLASSES["train"], "test": CLASSES["test"]})
    with pytest.raises(UserError, match="without mini-imagenet-cache-val.pkl or mini-imagenet-cache-valid"):
        load_splits(str(tmp_path), "miniimagenet")


def content(**changes):
    given = {"image_data": pictures("train", 3), "class_dict": {"a": [0, 1], "b": [2, 3, 4]}, **changes}
    return {key: value for key, value in given.items() if value is not None}


@pytest.mark.parametrize(
    "held, message",
    [
        (content(class_dict=None), "has no 'class_dict', only image_data"),
        (content(image_data=None), "has no 'image_data'"),
        (content(image_data=[1]), "its images are list"),
        (content(image_data=np.zeros([5, 9, 9, 3], np.float32)), "its images are float32"),
        (content(class_dict={}), "class_dict holds no classes"),
        (content(class_dict={"a": [0, 5]}), "the rows of class 'a' are not in its 5 images"),
        (content(class_dict={"a": [0, -1]}), "the rows of class 'a'"),
        (content(class_dict={"a": "b"}), "the rows of class 'a'"),
        (content(class_dict={"a": [[0]]}), "the rows of class 'a'"),
        (content(class_dict={"a": [0], "b": [1, 0]}), "an image of class 'b' is listed twice"),
        (content(class_dict={"a": [0, 0]}), "an image of class 'a' is listed twice"),
        (content(class_dict={"a": [0], "b": []}), "class 'b'"),
        ([1], "holds a list, needed is a dict"),
    ],
)
def test_other_contents_of_class_dict_files_are_refused(tmp_path, held, message):
    write(tmp_path, "class_dict")
    (tmp_path / "mini-imagenet-cache-train.pkl").write_bytes(pickle.dumps(held))
    with pytest.raises(UserError, match=f"cache-train.pkl.*{message}") as caught:
        load_splits(str(tmp_path), "miniimagenet")
    assert "\n" not in str(caught.value).split("\n  In call")[0]


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"labels": [0, 1]}, "holds 5 images and 2 labels"),
        ({"labels": ["a"] * 5}, "labels are"),
        ({"data": None}, "its images are NoneType"),
    ],
)
def test_other_contents_of_label_files_are_refused(tmp_path, changes, message):
    write(tmp_path, "labels")
    held = {"data": pictures("train", 3), "labels": [0, 1, 0, 1, 1], **changes}
    (tmp_path / "miniImageNet_category_split_val.pickle").write_bytes(pickle.dumps(held))
    with pytest.raises(UserError, match=f"split_val.pickle.*{message}"):
        load_splits(str(tmp_path), "miniimagenet")


@pytest.mark.parametrize("form", FORMS[:4])
def test_truncated_files_are_named(tmp_path, form):
    write(tmp_path, form)
    file = next(file for file in tmp_path.iterdir() if "test" in file.name)
    file.write_bytes(file.read_bytes()[:-200])
    with pytest.raises(UserError, match=f"{file.name} is damaged or no pickle"):
        load_splits(str(tmp_path), "miniimagenet")


def test_csv_files_with_other_lines_are_refused(tmp_path):
    write(tmp_path, "csv")
    whole = (tmp_path / "val.csv").read_text()
    for text, message in (
        (whole + "missing.jpg,n07\n", "val.csv names .*images/missing.jpg, which does not exist"),
        (whole + "a,b,c\n", "val.csv: line 'a,b,c' is not"),
        ("filename,label\n", "val.csv names no images"),
    ):
        (tmp_path / "val.csv").write_text(text)
        with pytest.raises(UserError, match=message):
            load_splits(str(tmp_path), "miniimagenet")
