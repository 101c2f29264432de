"""The run's log: JSON lines for programs, TensorBoard for people, a progress bar for the moment."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import numpy as np
from tqdm import tqdm

from hypertransformer_tf.backend import tf


class RunLog:
    """Writes what happens in a training run.

    Args:
        workdir: folder of the run; gets log.jsonl and tensorboard/.
        step: step at which the run goes on; later lines of an interrupted run are dropped.
        total: number of steps of the whole run, for the progress bar.
    """

    def __init__(self, workdir: Path, step: int, total: int):
        self.path = workdir / "log.jsonl"
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
        self._file.close()
        self._board.close()


class NoLog:
    """Stands in for RunLog in a worker that is not the chief: writes and shows nothing."""

    def __init__(self):
        self.bar = tqdm(disable=True)

    def write(self, step: int, **values: float) -> None:
        """Does nothing."""

    def say(self, text: str) -> None:
        """Does nothing."""

    def close(self) -> None:
        """Does nothing."""
