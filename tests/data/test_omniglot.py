"""Omniglot from the official zips, from folders and from TFDS: the same classes, the same pixels."""

import hashlib
import shutil
import time
import zipfile

import numpy as np
import pytest
from PIL import Image

from hypertransformer_tf.data import omniglot
from hypertransformer_tf.data.omniglot_tfds import load_omniglot_tfds
from hypertransformer_tf.errors import UserError


@pytest.fixture(scope="module")
def from_zips(data_dir):
    return omniglot.load_omniglot(omniglot.find_omniglot(data_dir))


def test_all_classes_are_there_in_the_order_of_their_ids(from_zips):
    assert (from_zips.num_classes, from_zips.num_images) == (1623, 32460)
    assert from_zips.image_shape == (28, 28, 1) and (from_zips.counts == 20).all()
    assert from_zips.names[0] == "Arcadian/character01"
    assert from_zips.names[964] == "Angelic/character01"


def test_ink_is_dark_on_light(from_zips):
    assert from_zips.images.min() == 0 and from_zips.images.max() == 255
    assert 220 < from_zips.images[::50].mean() < 250


def test_pixels_are_pillows_antialiased_reduction(data_dir, from_zips):
    with zipfile.ZipFile(data_dir / "omniglot" / "images_background.zip") as archive:
        name = "images_background/Alphabet_of_the_Magi/character01/0709_03.png"
        original = Image.open(archive.open(name))
        expected = original.convert("L").resize((28, 28), Image.Resampling.BILINEAR)
    names = dict(zip(from_zips.names, range(1623)))
    drawn = from_zips.class_array(names["Alphabet_of_the_Magi/character01"])[2, :, :, 0]
    np.testing.assert_array_equal(drawn, expected)
    assert len(np.unique(drawn)) > 10, "a one-bit image was reduced without a filter"


def test_the_known_pair_of_identical_drawings_is_the_only_one_in_its_class(from_zips):
    drawings = from_zips.class_array(191).reshape(20, -1)
    assert len(np.unique(drawings, axis=0)) == 19
    np.testing.assert_array_equal(drawings[2], drawings[18])


def test_golden_checksum(from_zips):
    chosen = np.ascontiguousarray(from_zips.images[::1000])
    assert hashlib.sha256(chosen).hexdigest()[:16] == "0739a62a496c0668"


def test_the_cache_is_fast(data_dir, from_zips):
    started = time.perf_counter()
    again = omniglot.load_omniglot(omniglot.find_omniglot(data_dir))
    assert isinstance(again.images, np.memmap) and again.names == from_zips.names
    assert time.perf_counter() - started < 2.0


@pytest.mark.slow
def test_tfds_gives_the_same_classes_and_pixels(data_dir, from_zips):
    pytest.importorskip("tensorflow_datasets")
    from_tfds = load_omniglot_tfds(data_dir / "tfds")
    assert from_tfds.names == from_zips.names
    for index in range(1623):
        one, other = (
            sorted(image.tobytes() for image in source.class_array(index))
            for source in (from_zips, from_tfds)
        )
        assert one == other, from_zips.names[index]


def test_a_truncated_tfds_file_is_named(data_dir, tmp_path):
    pytest.importorskip("tensorflow_datasets")
    shutil.copytree(data_dir / "tfds" / "omniglot", tmp_path / "omniglot", copy_function=shutil.copyfile)
    (tmp_path / "omniglot").chmod(0o755)
    file = tmp_path / "omniglot" / "3.0.0" / "omniglot-train.tfrecord-00000-of-00001"
    file.parent.chmod(0o755)
    file.write_bytes(file.read_bytes()[:100_000])
    with pytest.raises(UserError, match="omniglot can't be read"):
        load_omniglot_tfds(tmp_path)


@pytest.fixture
def unpacked(tmp_path, monkeypatch):
    """Three characters as folders, for a data set that is made of three."""
    monkeypatch.setattr(omniglot, "NUM_CLASSES", 3)
    rng = np.random.default_rng(0)
    for identity, (part, place) in enumerate(
        [
            ("images_background", "Latin/character01"),
            ("images_evaluation", "Angelic/character07"),
            ("images_background", "Latin/character02"),
        ],
        start=1,
    ):
        folder = tmp_path / part / place
        folder.mkdir(parents=True)
        for drawer in range(1, 21):
            image = Image.fromarray(rng.integers(0, 2, [105, 105]).astype(np.uint8) * 255).convert("1")
            image.save(folder / f"{identity:04d}_{drawer:02d}.png")
    return tmp_path


def test_unpacked_folders_equal_their_zips(unpacked, tmp_path):
    from_folders = omniglot.load_omniglot(unpacked)
    assert from_folders.names == ("Latin/character01", "Angelic/character07", "Latin/character02")
    zipped = tmp_path / "zipped"
    zipped.mkdir()
    for part in omniglot.PARTS:
        with zipfile.ZipFile(zipped / f"{part}.zip", "w") as archive:
            for file in (unpacked / part).rglob("*.png"):
                archive.write(file, file.relative_to(unpacked))
    np.testing.assert_array_equal(omniglot.load_omniglot(zipped).images, from_folders.images)


def test_a_changed_drawing_in_a_folder_is_read_again(unpacked):
    before = omniglot.load_omniglot(unpacked).class_array(0)[0]
    file = unpacked / "images_background" / "Latin" / "character01" / "0001_01.png"
    Image.new("1", (105, 105), 1).save(file)
    after = omniglot.load_omniglot(unpacked).class_array(0)[0]
    assert before.min() < 255 and after.min() == 255


def test_what_is_wrong_in_the_folders_is_named(unpacked):
    character = unpacked / "images_background" / "Latin" / "character01"
    (character / "notes.txt").write_text("not an image")
    with pytest.raises(UserError, match="notes.txt is not a PNG file"):
        omniglot.load_omniglot(unpacked)
    (character / "notes.txt").unlink()
    (character / "0001_05.png").write_bytes(b"not a png")
    with pytest.raises(UserError, match="0001_05.png is not a readable image"):
        omniglot.load_omniglot(unpacked)
    (character / "0001_05.png").unlink()
    with pytest.raises(UserError, match="Latin/character01 has 19 drawings instead of 20"):
        omniglot.load_omniglot(unpacked)


def test_damaged_zips_and_empty_folders(tmp_path):
    for part in omniglot.PARTS:
        (tmp_path / f"{part}.zip").write_bytes(b"PK, but no zip")
    with pytest.raises(UserError, match="images_background.zip is damaged"):
        omniglot.load_omniglot(tmp_path)
    with zipfile.ZipFile(tmp_path / "images_background.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("Latin/character01/0001_01.png", bytes(1000) + b"drawing")
    content = bytearray((tmp_path / "images_background.zip").read_bytes())
    content[62] ^= 255  # in the packed drawing
    (tmp_path / "images_background.zip").write_bytes(content)
    with pytest.raises(UserError, match="images_background.zip is damaged"):
        omniglot.load_omniglot(tmp_path)
    empty = tmp_path / "empty"
    for part in omniglot.PARTS:
        (empty / part).mkdir(parents=True)
    with pytest.raises(UserError, match="has 0 characters instead of 1623"):
        omniglot.load_omniglot(empty)
    assert omniglot.find_omniglot(tmp_path / "nowhere") is None


def test_unknown_resampling_is_refused(tmp_path):
    with pytest.raises(UserError, match="'cubic'.*bilinear"):
        omniglot.load_omniglot(tmp_path, resampling="cubic")
