"""Checkpoints that are either whole or not there.

A checkpoint is a folder. It is written under a temporary name, a manifest with the size and hash of every
file is put in last, and the folder gets its name by one rename. A reader believes only folders whose
manifest matches, so a process killed at any moment leaves the older checkpoints usable. Into a store
(`storage.Remote`) the folder is copied after it was written on this machine, the manifest last.

Two kinds: `step-00001000` holds the whole state of a training run (to go on with), `best-00001000` only the
model's variables as an .npz file (to evaluate, generate and ship).
"""

from __future__ import annotations

import contextlib
import hashlib
import io
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
from hypertransformer_tf.storage import Place, Remote, remove, upload

MANIFEST = "manifest.json"
MODEL_FILE = "model.npz"


def write_folder(path: Place, write: Callable[[Path], None], info: dict) -> None:
    """Writes a folder atomically.

    Args:
        path: the folder to make; an older one of that name is replaced.
        write: puts the files into the folder that it is given.
        info: JSON values for the manifest.
    """
    if isinstance(path, Remote):
        with tempfile.TemporaryDirectory() as scratch:
            write_folder(Path(scratch) / path.name, write, info)
            upload(Path(scratch) / path.name, path, MANIFEST)
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}."))
    try:
        write(temporary)
        files = {}
        for file in sorted(temporary.iterdir()):
            files[file.name] = _description(file)
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


def read_manifest(path: Place) -> dict:
    """The manifest of a sound checkpoint folder.

    Raises:
        ValueError: saying what is wrong with the folder.
    """
    try:
        manifest = json.loads((path / MANIFEST).read_text())
        for name, expected in manifest["files"].items():
            if _description(path / name) != {key: expected[key] for key in ("bytes", "sha256")}:
                raise ValueError(f"{name} is not what was written")
    except FileNotFoundError as error:
        raise ValueError(f"{Path(error.filename).name} is missing") from error
    except (UnicodeDecodeError, json.JSONDecodeError, KeyError, TypeError) as error:
        raise ValueError(f"{MANIFEST} is damaged") from error
    return manifest


def newest_sound(folder: Place, kind: str) -> tuple[Place, dict] | None:
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

    def __init__(self, workdir: Place, state: tf.train.Checkpoint, fingerprint: dict, keep: int = 3):
        self.folder, self.state, self.fingerprint = workdir / "checkpoints", state, fingerprint
        self.keep = keep

    def save(self, step: int, info: dict) -> Place:
        """Writes the training state after `step` steps; removes all but the newest `keep`."""
        path = self.folder / f"step-{step:010d}"
        info = {"step": step, "fingerprint": self.fingerprint, **info}
        write_folder(path, lambda folder: self.state.write(str(folder / "state")), info)
        for old in sorted(self.folder.glob("step-*"))[: -self.keep]:
            _remove(old)
        for left in self.folder.glob(".step-*"):
            _remove(left)
        return path

    def newest(self) -> tuple[Place, dict] | None:
        """The newest sound checkpoint and its manifest; None if there is none.

        Raises:
            UserError: when the checkpoint belongs to another configuration.
        """
        found = newest_sound(self.folder, "step")
        if found:
            check_fingerprint(found[0], found[1].get("fingerprint", {}), self.fingerprint)
        return found

    def read(self, path: Place) -> None:
        """Fills the state from a checkpoint that `newest` gave."""
        self.state.read(str(path / "state")).assert_consumed()

    def restore(self) -> dict | None:
        """Fills the state from the newest sound checkpoint; returns its manifest. See `newest`."""
        found = self.newest()
        if found is None:
            return None
        self.read(found[0])
        return found[1]


def check_fingerprint(path: Place, saved: dict, wanted: dict, instead: str = "another --workdir") -> None:
    """Raises UserError naming the first difference between two configurations, and what to use instead."""
    for name in dict.fromkeys([*wanted, *saved]):
        if saved.get(name) != wanted.get(name):
            raise UserError(
                f"checkpoint {path} was made with {name} = {saved.get(name)!r}, this run has "
                f"{wanted.get(name)!r}: use {instead} or the configuration of the checkpoint"
            )


def save_model(path: Place, variables: dict[str, tf.Variable], info: dict) -> None:
    """Writes a model's variables and `info` as a checkpoint folder that evaluation and export read."""
    arrays = {name.replace("/", "|"): variable.numpy() for name, variable in variables.items()}
    write_folder(path, lambda folder: np.savez(folder / MODEL_FILE, **arrays), info)


def load_model(path: Place, variables: dict[str, tf.Variable]) -> None:
    """Fills a model's variables from a folder that `save_model` wrote.

    Raises:
        UserError: naming the first variable that is missing or of another shape.
    """
    with np.load(io.BytesIO((path / MODEL_FILE).read_bytes())) as arrays:
        saved = {name.replace("|", "/"): arrays[name] for name in arrays.files}
    for name, variable in variables.items():
        shape = saved[name].shape if name in saved else None
        if shape != tuple(variable.shape):
            raise UserError(
                f"checkpoint {path} has {name} of shape {shape}, the model needs {variable.shape}"
            )
    for name, variable in variables.items():
        variable.assign(saved[name])


def _description(file: Place) -> dict:
    content = file.read_bytes()
    return {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}


def _remove(path: Place) -> None:
    """Removes a checkpoint, as far as that works."""
    if isinstance(path, Remote):
        with contextlib.suppress(OSError):
            remove(path, MANIFEST)
    else:
        shutil.rmtree(path, ignore_errors=True)


def remove_others(folder: Place, kept: Place) -> None:
    """Removes the best models before `kept`, once that one is whole."""
    for path in folder.glob("best-*"):
        if path != kept:
            _remove(path)
