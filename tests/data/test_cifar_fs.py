"""CIFAR-FS: pickles, the zip and the folder hold the same."""

import pickle
import zipfile

import numpy as np
import pytest
from pickle_helpers import write_python2
from PIL import Image

from hypertransformer_tf.data.sources import load_splits
from hypertransformer_tf.errors import UserError

CLASSES = {"train": ["apple", "bear", "clock"], "val": ["dolphin"], "test": ["elephant", "forest"]}
IMAGES = {
    name: np.random.default_rng(ord(name[0])).integers(0, 256, [3, 32, 32, 3]).astype(np.uint8)
    for names in CLASSES.values()
    for name in names
}


def write_pickles(folder, python_2=False):
    for part, names in CLASSES.items():
        content = {"data": np.concatenate([IMAGES[name] for name in names])}
        content["labels"] = [5 + index for index in range(len(names)) for _ in range(3)]
        file = folder / f"CIFAR_FS_{part}.pickle"
        if python_2:
            write_python2(file, content)
        else:
            file.write_bytes(pickle.dumps(content))


def write_files(folder):
    for name, images in IMAGES.items():
        (folder / "cifar100" / "data" / name).mkdir(parents=True)
        for number, image in enumerate(images):
            Image.fromarray(image).save(folder / "cifar100" / "data" / name / f"{name}_{number}.png")
    splits = folder / "cifar100" / "splits" / "bertinetto"
    splits.mkdir(parents=True)
    for part, names in CLASSES.items():
        (splits / f"{part}.txt").write_text("\n".join(names) + "\n")


def write_zip(folder, source):
    with zipfile.ZipFile(folder / "cifar100.zip", "w") as archive:
        for file in sorted((source / "cifar100").rglob("*")):
            archive.write(file, file.relative_to(source).as_posix())


def check(splits, names_are_known):
    assert splits.name == "cifar_fs"
    for part, names in CLASSES.items():
        images = getattr(splits, part)
        assert images.names == (tuple(names) if names_are_known else ("5", "6", "7")[: len(names)])
        for index, name in enumerate(names):
            np.testing.assert_array_equal(images.class_array(index), IMAGES[name])


@pytest.mark.parametrize("python_2", [False, True])
def test_pickles(tmp_path, python_2):
    write_pickles(tmp_path, python_2)
    check(load_splits(str(tmp_path), "cifar_fs"), False)


def test_the_folder_and_the_zip(tmp_path):
    write_files(tmp_path)
    check(load_splits(str(tmp_path), "cifar_fs"), True)
    (tmp_path / "zipped" / "cifar_fs").mkdir(parents=True)
    write_zip(tmp_path / "zipped" / "cifar_fs", tmp_path)
    check(load_splits(str(tmp_path / "zipped"), "cifar_fs"), True)
    assert load_splits(str(tmp_path), "cifar_fs", image_size=16).val.image_shape == (16, 16, 3)


def test_what_is_wrong_is_named(tmp_path):
    with pytest.raises(UserError, match="no CIFAR-FS in .*CIFAR_FS_train.pickle or cifar100.zip"):
        load_splits(str(tmp_path), "cifar_fs")
    write_files(tmp_path)
    lists = tmp_path / "cifar100" / "splits" / "bertinetto"
    (lists / "val.txt").write_text("dolphin\ngiraffe\n")
    with pytest.raises(UserError, match="val.txt: class 'giraffe' has no images in .*cifar100/data"):
        load_splits(str(tmp_path), "cifar_fs")
    (lists / "val.txt").unlink()
    with pytest.raises(UserError, match="cifar100 has no splits/bertinetto/val.txt"):
        load_splits(str(tmp_path), "cifar_fs")
    (tmp_path / "cifar100.zip").write_bytes(b"PK nothing")
    with pytest.raises(UserError, match="cifar100.zip is no readable zip"):
        load_splits(str(tmp_path), "cifar_fs")
    write_pickles(tmp_path)
    (tmp_path / "CIFAR_FS_test.pickle").unlink()
    with pytest.raises(UserError, match="holds CIFAR-FS without CIFAR_FS_test.pickle"):
        load_splits(str(tmp_path), "cifar_fs")
