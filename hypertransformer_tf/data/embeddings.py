"""Given embeddings instead of images: an .npz file with one array [images, size] for each class.

For fully-connected layers generated on the features of a large network (appendix D, LEO), with
`HyperTransformer.architecture = "logits-only"`.
"""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np

from hypertransformer_tf.data.class_images import ClassImages
from hypertransformer_tf.errors import UserError


def load_embeddings(path: Path) -> ClassImages:
    """Reads the file.

    Args:
        path: .npz file; a class's array is float [images, size] under the class's name.

    Returns:
        ClassImages in the order of the names, with "images" float32 [image, 1, 1, size].

    Raises:
        UserError: when there is no such file, or it holds something else.
    """
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in sorted(file.files)}
    except FileNotFoundError as error:
        raise UserError(f"{path} does not exist: give the .npz file as --data_dir") from error
    except (OSError, ValueError, EOFError, AttributeError, zipfile.BadZipFile) as error:
        raise UserError(f"{path} is not a readable .npz file ({error}): write it with numpy.savez") from error
    for name, array in arrays.items():
        if array.ndim != 2 or array.dtype.kind != "f" or 0 in array.shape:
            raise UserError(
                f"{path}: class {name!r} is {array.dtype} {array.shape}; needed is float [images, size]"
            )
    return ClassImages.from_class_arrays(
        [array.astype(np.float32)[:, None, None, :] for array in arrays.values()], list(arrays), str(path)
    )
