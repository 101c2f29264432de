"""Finds which of the published forms of a data set a folder holds."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from hypertransformer_tf.errors import UserError

PARTS = ("train", "val", "test")


def find_forms(
    base: Path, folders: Sequence[str], forms: dict[str, dict[str, Sequence[str]]], what: str
) -> tuple[str, dict[str, Path]]:
    """The first form of a data set whose training files are there.

    Args:
        base: where to look.
        folders: names of folders in `base` that are looked into after `base` itself.
        forms: for each form its files: for each key, which starts with "train", "val" or "test", the
            names that the file may have.
        what: name of the data set, for messages.

    Returns:
        Name of the form, and the path of each of its files.

    Raises:
        UserError: when no form is there, or a file of the one that is there is missing.
    """
    for place in (base, *(base / folder for folder in folders)):
        for form, names in forms.items():
            found = {
                key: [place / n for n in options if (place / n).exists()] for key, options in names.items()
            }
            if not any(paths for key, paths in found.items() if key.startswith("train")):
                continue
            for key, paths in found.items():
                if not paths:
                    raise UserError(
                        f"{place} holds {what} without {' or '.join(names[key])}: put it beside the others"
                    )
            return form, {key: paths[0] for key, paths in found.items()}
    firsts = [
        options[0] for names in forms.values() for key, options in names.items() if key.startswith("train")
    ]
    raise UserError(
        f"no {what} in {base}: give the folder that holds {' or '.join(firsts)}, ... as --data_dir"
    )
