"""scripts/prepare_data.py: counts, sizes and images that come again."""

import numpy as np


def test_it_prints_what_is_in_a_data_set(program, tmp_path):
    images = np.random.default_rng(0).integers(0, 256, [6, 4, 16, 16, 3]).astype(np.uint8)
    images[3, 0] = images[0, 1]  # in train and val
    images[5, 2:] = images[5, 0]  # twice more in test
    np.save(tmp_path / "a.npy", images)
    bindings = ['name = "npy"', 'train = "0-2"', 'val = "3"', 'test = "4-5"', "shuffle_seed = None"]
    result = program(
        "scripts/prepare_data.py",
        f"--data_dir={tmp_path / 'a.npy'}",
        *(f"--gin_bindings=load_splits.{binding}" for binding in bindings),
    )
    assert result.returncode == 0, result.stderr
    lines = result.stdout.splitlines()
    assert lines[0].startswith("npy: 6 classes")
    assert lines[1] == "train: 3 classes, 12 images (4 a class), 16x16x3, 0.0 MB decoded"
    for line in (
        "0 images come more than once in train",
        "1 images come more than once in test",
        "1 images are in both train and val",
        "0 images are in both train and test",
    ):
        assert line in lines
    missing = program(
        "scripts/prepare_data.py", '--gin_bindings=load_splits.name = "cifar_fs"', "--data_dir=/none"
    )
    assert missing.returncode == 2 and missing.stderr.startswith("error: no CIFAR-FS in /none")
