"""Folders of class folders: any size and mode of image, and one line for what is no image."""

import shutil
import zipfile

import numpy as np
import pytest
from PIL import Image

from hypertransformer_tf.data.image_folder import load_image_folder, read_image
from hypertransformer_tf.data.sources import load_splits
from hypertransformer_tf.errors import UserError


@pytest.fixture
def folder(tmp_path):
    """Six classes of two images, each of one grey: class i, image j is 40 * i + j."""
    for index in range(6):
        (tmp_path / "set" / f"class {index}").mkdir(parents=True)
        for number in range(2):
            image = Image.new("L", (30 + index, 20), 40 * index + number)
            image.save(tmp_path / "set" / f"class {index}" / f"{number}.png")
    (tmp_path / "set" / "README.txt").write_text("beside the class folders")
    (tmp_path / "set" / "class 0" / ".hidden").write_text("no image")
    return tmp_path / "set"


def test_classes_and_images_come_in_alphabetical_order(folder):
    images = load_image_folder(folder, image_size=16)
    assert images.names == tuple(f"class {index}" for index in range(6))
    assert images.images.shape == (12, 16, 16, 1) and images.images.dtype == np.uint8
    for index in range(6):
        assert images.class_array(index)[:, 8, 8, 0].tolist() == [40 * index, 40 * index + 1]
    assert load_image_folder(folder, image_size=16, channels=3).image_shape == (16, 16, 3)


def test_classes_may_have_different_numbers_of_images(folder):
    (folder / "class 3" / "1.png").unlink()
    assert load_image_folder(folder).counts.tolist() == [2, 2, 2, 1, 2, 2]


def test_a_changed_image_is_read_again(folder):
    load_image_folder(folder)
    Image.new("L", (31, 20), 255).save(folder / "class 0" / "0.png")
    assert load_image_folder(folder).class_array(0)[0].min() == 255


@pytest.mark.parametrize("mode", ["1", "L", "P", "RGB", "RGBA", "LA", "CMYK", "I;16"])
def test_every_mode_shows_ink_on_paper(tmp_path, mode):
    pixels = np.full([20, 20], 255, np.uint8)
    pixels[5:15, 5:15] = 0
    image = Image.fromarray(pixels)
    if mode == "I;16":
        image = Image.fromarray(pixels.astype(np.uint16) * 257)
    elif mode in ("RGBA", "LA"):  # paper is transparent black
        image = Image.merge("LA", [Image.new("L", (20, 20), 0), Image.fromarray(255 - pixels)]).convert(mode)
    else:
        image = image.convert(mode)
    file = tmp_path / f"image.{'tif' if mode == 'CMYK' else 'png'}"
    image.save(file)
    read = read_image(file, 20, 1)[..., 0]
    assert np.abs(read.astype(int) - pixels).max() <= 1


def test_exif_orientation_is_honoured(tmp_path):
    image = Image.new("RGB", (20, 10), "white")
    image.paste("black", (0, 0, 10, 10))
    exif = Image.Exif()
    exif[0x0112] = 6  # turn clockwise to view
    image.save(tmp_path / "photo.jpg", exif=exif, quality=95)
    read = read_image(tmp_path / "photo.jpg", 20, 1)[..., 0]
    assert read[2].max() < 30 and read[17].min() > 225


def test_what_is_no_image_is_named(folder):
    (folder / "class 1" / "notes.txt").write_text("not an image")
    with pytest.raises(UserError, match="class 1/notes.txt is not a readable image"):
        load_image_folder(folder)
    (folder / "class 1" / "notes.txt").unlink()
    whole = (folder / "class 2" / "0.png").read_bytes()
    (folder / "class 2" / "0.png").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(UserError, match="class 2/0.png is not a readable image"):
        load_image_folder(folder)


def test_empty_folders_are_named(folder, tmp_path):
    (folder / "class 7").mkdir()
    with pytest.raises(UserError, match="class 7 holds no images"):
        load_image_folder(folder)
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match="empty holds no class folders"):
        load_image_folder(tmp_path / "empty")
    with pytest.raises(UserError, match="nowhere does not exist"):
        load_image_folder(tmp_path / "nowhere")
    with pytest.raises(UserError, match="channels = 2"):
        load_image_folder(folder, channels=2)


def test_a_folder_is_a_data_set_with_splits(folder):
    splits = load_splits(str(folder), "folder", train="0-2", val="3", test="4-5", shuffle_seed=None)
    assert splits.train.names == ("class 0", "class 1", "class 2") and splits.name == "folder"
    assert splits.train.image_shape == (28, 28, 1)


def pack(folder, archive, top=""):
    """Zips a folder's files under the name `top`."""
    with zipfile.ZipFile(archive, "w") as packed:
        for file in sorted(folder.rglob("*")):
            packed.write(file, f"{top}{file.relative_to(folder).as_posix()}")
    return archive


@pytest.mark.parametrize("top", ["", "images/", "data/images/"])
def test_a_zip_or_a_folder_around_the_classes_gives_the_same(folder, tmp_path, top):
    (folder / "class 3" / "1.png").unlink()
    (folder / "class 2" / "below").mkdir()
    (folder / "class 2" / "0.png").rename(folder / "class 2" / "below" / "0.png")
    expected = load_image_folder(folder, 16, 3)
    (tmp_path / "zips").mkdir()
    archive = pack(folder, tmp_path / "zips" / "all.zip", top)
    (tmp_path / "zips" / "train.txt").write_text("class 0")
    places = [archive, archive.parent]
    if top:
        shutil.copytree(folder, tmp_path / "around" / top)
        (tmp_path / "around" / "README.txt").write_text("beside")
        places.append(tmp_path / "around")
    for place in places:
        images = load_image_folder(place, 16, 3)
        assert images.names == expected.names and images.counts.tolist() == [2, 2, 2, 1, 2, 2]
        np.testing.assert_array_equal(images.images, expected.images)


def test_what_is_wrong_in_a_zip_is_named(folder, tmp_path):
    (folder / "class 1" / "notes.txt").write_text("not an image")
    archive = pack(folder, tmp_path / "a.zip")
    with pytest.raises(UserError, match=r"a.zip/class 1/notes.txt is not a readable image"):
        load_image_folder(archive)
    archive.write_bytes(archive.read_bytes()[:300])
    with pytest.raises(UserError, match=r"a.zip is no readable zip"):
        load_image_folder(archive)
    with zipfile.ZipFile(tmp_path / "b.zip", "w") as packed:
        packed.writestr("README.txt", "no classes")
    with pytest.raises(UserError, match=r"b.zip holds no class folders"):
        load_image_folder(tmp_path / "b.zip")


def test_split_files_lie_beside_the_images(folder):
    for part, names in (("train", "012"), ("val", "3"), ("test", "54")):
        (folder / f"{part}.txt").write_text("".join(f"class {name}\n" for name in names))
    splits = load_splits(str(folder), "folder", split="names")
    assert splits.train.num_classes == 3 and splits.test.names == ("class 5", "class 4")
    archive = pack(folder, folder.parent / "set.zip")
    with pytest.raises(UserError, match="split_dir"):
        load_splits(str(archive), "folder", split="names")
    assert load_splits(str(archive), "folder", split="names", split_dir=str(folder)).val.num_classes == 1
