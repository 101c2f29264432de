"""Checkpoints that are either whole or not there.

A checkpoint is a folder. It is written under a temporary name, a manifest with the size and hash of every
file is put in last, and the folder gets its name by one rename. A reader believes only folders whose
manifest matches, so a process killed at any moment leaves the older checkpoints usable.

Two kinds: `step-00001000` holds the whole state of a training run (to go on with), `best-00001000` only the
model's variables as an .npz file (to evaluate, generate and ship).
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Callable

import numpy as np

from hypertransformer_tf.backend import tf
from hypertransformer_tf.errors import UserError

MANIFEST = "manifest.json"
MODEL_FILE = "model.npz"


def write_folder(path: Path, write: Callable[[Path], None], info: dict) -> None:
    """Writes a folder atomically.

    Args:
        path: the folder to make; an older one of that name is replaced.
        write: puts the files into the folder that it is given.
        info: JSON values for the manifest.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}."))
    try:
        write(temporary)
        files = {}
        for file in sorted(temporary.iterdir()):
            files[file.name] = {"bytes": file.stat().st_size, "sha256": _hash(file)}
            with open(file, "rb") as opened:
                os.fsync(opened.fileno())
        (temporary / MANIFEST).write_text(json.dumps({**info, "files": files}, indent=1) + "\n")
        temporary.chmod(0o755)
        if path.exists():
            shutil.rmtree(path)
        os.rename(temporary, path)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise


def write_text(path: Path, text: str) -> None:
    """Writes a small text file atomically."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.part")
    temporary.write_text(text)
    os.replace(temporary, path)


def read_manifest(path: Path) -> dict:
    """The manifest of a sound checkpoint folder.

    Raises:
        ValueError: saying what is wrong with the folder.
    """
    try:
        manifest = json.loads((path / MANIFEST).read_text())
        for name, expected in manifest["files"].items():
            file = path / name
            if file.stat().st_size != expected["bytes"] or _hash(file) != expected["sha256"]:
                raise ValueError(f"{name} is not what was written")
    except FileNotFoundError as error:
        raise ValueError(f"{Path(error.filename).name} is missing") from error
    except (json.JSONDecodeError, KeyError, TypeError) as error:
        raise ValueError(f"{MANIFEST} is damaged") from error
    return manifest


def newest_sound(folder: Path, kind: str) -> tuple[Path, dict] | None:
    """The newest checkpoint of a kind ("step" or "best") that is whole, and its manifest.

    Damaged newer ones are named in a warning. None when there is none.
    """
    for path in sorted(folder.glob(f"{kind}-*"), reverse=True):
        try:
            return path, read_manifest(path)
        except ValueError as error:
            print(f"warning: checkpoint {path} is damaged ({error}): using an older one", file=sys.stderr)
    return None


class Checkpoints:
    """The checkpoints of one training run.

    Args:
        workdir: folder of the run.
        state: everything that a resumed run needs, as a tf.train.Checkpoint.
        fingerprint: JSON values that tell this configuration from others.
        keep: how many of the newest training states to keep.
    """

    def __init__(self, workdir: Path, state: tf.train.Checkpoint, fingerprint: dict, keep: int = 3):
        self.folder, self.state, self.fingerprint = workdir / "checkpoints", state, fingerprint
        self.keep = keep

    def save(self, step: int, info: dict) -> Path:
        """Writes the training state after `step` steps; removes all but the newest `keep`."""
        path = self.folder / f"step-{step:010d}"
        info = {"step": step, "fingerprint": self.fingerprint, **info}
        write_folder(path, lambda folder: self.state.write(str(folder / "state")), info)
        for old in sorted(self.folder.glob("step-*"))[: -self.keep]:
            shutil.rmtree(old, ignore_errors=True)
        for left in self.folder.glob(".step-*"):
            shutil.rmtree(left, ignore_errors=True)
        return path

    def newest(self) -> tuple[Path, dict] | None:
        """The newest sound checkpoint and its manifest; None if there is none.

        Raises:
            UserError: when the checkpoint belongs to another configuration.
        """
        found = newest_sound(self.folder, "step")
        if found:
            check_fingerprint(found[0], found[1].get("fingerprint", {}), self.fingerprint)
        return found

    def read(self, path: Path) -> None:
        """Fills the state from a checkpoint that `newest` gave."""
        self.state.read(str(path / "state")).assert_consumed()

    def restore(self) -> dict | None:
        """Fills the state from the newest sound checkpoint; returns its manifest. See `newest`."""
        found = self.newest()
        if found is None:
            return None
        self.read(found[0])
        return found[1]


def check_fingerprint(path: Path, saved: dict, wanted: dict) -> None:
    """Raises UserError naming the first difference between two configurations."""
    for name in dict.fromkeys([*wanted, *saved]):
        if saved.get(name) != wanted.get(name):
            raise UserError(
                f"checkpoint {path} was made with {name} = {saved.get(name)!r}, this run has "
                f"{wanted.get(name)!r}: use another --workdir or the configuration of the checkpoint"
            )


def save_model(path: Path, variables: dict[str, tf.Variable], info: dict) -> None:
    """Writes a model's variables and `info` as a checkpoint folder that evaluation and export read."""
    arrays = {name.replace("/", "|"): variable.numpy() for name, variable in variables.items()}
    write_folder(path, lambda folder: np.savez(folder / MODEL_FILE, **arrays), info)


def load_model(path: Path, variables: dict[str, tf.Variable]) -> None:
    """Fills a model's variables from a folder that `save_model` wrote.

    Raises:
        UserError: naming the first variable that is missing or of another shape.
    """
    with np.load(path / MODEL_FILE) as arrays:
        saved = {name.replace("|", "/"): arrays[name] for name in arrays.files}
    for name, variable in variables.items():
        shape = saved[name].shape if name in saved else None
        if shape != tuple(variable.shape):
            raise UserError(
                f"checkpoint {path} has {name} of shape {shape}, the model needs {variable.shape}"
            )
    for name, variable in variables.items():
        variable.assign(saved[name])


def _hash(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def remove_others(folder: Path, kept: Path) -> None:
    """Removes the best models before `kept`, once that one is whole."""
    for path in folder.glob("best-*"):
        if path != kept:
            shutil.rmtree(path, ignore_errors=True)
