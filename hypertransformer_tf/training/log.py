"""The run's log: JSON lines for programs, TensorBoard for people, a progress bar for the moment."""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from tqdm import tqdm

from hypertransformer_tf.backend import tf
from hypertransformer_tf.storage import Place, Remote, write_text

_SYNC_SECONDS = 60.0  # how far the log in a store may be behind


class RunLog:
    """Writes what happens in a training run.

    Args:
        workdir: folder of the run; gets log.jsonl and tensorboard/. In a store (see `storage`), where nothing
            can be appended to a file, log.jsonl is written here and copied now and then.
        step: step at which the run goes on; later lines of an interrupted run are dropped.
        total: number of steps of the whole run, for the progress bar.
    """

    def __init__(self, workdir: Place, step: int, total: int):
        workdir.mkdir(parents=True, exist_ok=True)
        self.path, self._remote, self._scratch = workdir / "log.jsonl", None, None
        if isinstance(workdir, Remote):
            self._scratch, self._remote = tempfile.TemporaryDirectory(), self.path
            self.path = Path(self._scratch.name) / "log.jsonl"
            if self._remote.exists():
                self.path.write_bytes(self._remote.read_bytes())
        self._synced = time.monotonic()
        self._rewind(step)
        self._file = open(self.path, "a", buffering=1)  # noqa: SIM115  open as long as the run
        self._board = tf.summary.create_file_writer(str(workdir / "tensorboard"))
        interval = 0.5 if sys.stderr.isatty() else 30.0
        self.bar = tqdm(total=total, initial=step, unit="step", mininterval=interval, dynamic_ncols=True)

    def _rewind(self, step: int) -> None:
        if not self.path.exists():
            return
        kept = []
        for line in self.path.read_text().splitlines():
            try:
                if json.loads(line)["step"] <= step:
                    kept.append(line + "\n")
            except (json.JSONDecodeError, KeyError, TypeError):
                continue  # a line that the interrupted run did not finish
        temporary = self.path.with_suffix(".part")
        temporary.write_text("".join(kept))
        os.replace(temporary, self.path)

    def write(self, step: int, **values: float) -> None:
        """Logs scalars after `step` steps."""
        self._file.write(json.dumps({"step": step, **values}) + "\n")
        with self._board.as_default(step=step):
            for name, value in values.items():
                tf.summary.scalar(name, value)
        if time.monotonic() - self._synced > _SYNC_SECONDS:
            self.sync()

    def sync(self) -> None:
        """Copies the lines written so far to the store; nothing when the workdir is on this machine."""
        if self._remote is not None:
            write_text(self._remote, self.path.read_text())
        self._synced = time.monotonic()

    def pictures(self, step: int, pictures: dict[str, np.ndarray]) -> None:
        """Shows pictures, uint8 [height, width, channels] by name, in TensorBoard."""
        with self._board.as_default(step=step):
            for name, pixels in pictures.items():
                tf.summary.image(name, pixels[None])

    def graph(self, function) -> None:
        """Shows the graph of a concrete function in TensorBoard."""
        with self._board.as_default(step=0):
            tf.summary.graph(function.graph)

    def say(self, text: str) -> None:
        """Prints a line without disturbing the progress bar."""
        self.bar.write(text, file=sys.stderr)

    def close(self) -> None:
        """Ends the bar and the files; closing again does nothing."""
        self.bar.close()
        self._board.close()
        if not self._file.closed:
            self._file.close()
            self.sync()
        if self._scratch is not None:
            self._scratch.cleanup()


class NoLog:
    """Stands in for RunLog in a worker that is not the chief: writes and shows nothing."""

    def __init__(self):
        self.bar = tqdm(disable=True)

    def write(self, step: int, **values: float) -> None:
        """Does nothing."""

    def sync(self) -> None:
        """Does nothing."""

    def say(self, text: str) -> None:
        """Does nothing."""

    def close(self) -> None:
        """Does nothing."""
