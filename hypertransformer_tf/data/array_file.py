"""Images in one .npy file: an array [classes, images, height, width, channels]."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from hypertransformer_tf.data.class_images import ClassImages
from hypertransformer_tf.errors import UserError


def load_array(path: Path) -> ClassImages:
    """Memory-maps the file.

    Args:
        path: .npy file, uint8 [classes, images, height, width, channels], or without the channels.

    Returns:
        ClassImages with classes named "0", "1", ...

    Raises:
        UserError: when there is no such file, or it holds something else.
    """
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except FileNotFoundError as error:
        raise UserError(f"{path} does not exist: give the .npy file as --data_dir") from error
    except (OSError, ValueError, EOFError) as error:
        raise UserError(f"{path} is not a readable .npy file ({error}): write it with numpy.save") from error
    if getattr(array, "ndim", 0) == 4:
        array = array[..., None]
    if getattr(array, "ndim", 0) != 5 or array.dtype != np.uint8 or 0 in array.shape:
        what = f"{array.dtype} {array.shape}" if isinstance(array, np.ndarray) else type(array).__name__
        raise UserError(
            f"{path} holds {what}: needed is uint8 [classes, images, height, width, channels], none of them 0"
        )
    classes, images = array.shape[:2]
    offsets = np.arange(classes, dtype=np.int64) * images
    counts = np.full(classes, images, np.int64)
    names = tuple(str(index) for index in range(classes))
    return ClassImages(array.reshape(classes * images, *array.shape[2:]), offsets, counts, names, str(path))
