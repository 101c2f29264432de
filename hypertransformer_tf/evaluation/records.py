"""Result records: one JSON file for each result, and tables made from them."""

from __future__ import annotations

import csv
import io
import json
import os
import platform
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np

import hypertransformer_tf
from hypertransformer_tf.backend import keras, tf
from hypertransformer_tf.storage import Place, write_text

# Every record has at least these; accuracies and intervals are in percent. One without "method" is of a
# HyperTransformer.
FIELDS = (
    "dataset",
    "split",
    "way",
    "shot",
    "channels",
    "generated",
    "statistics",
    "accuracy",
    "ci95",
    "tasks",
    "query_per_task",
    "episodes_trained",
    "train_seconds",
    "seed",
    "config",
    "checkpoint",
    "hardware",
    "versions",
)


def write_record(path: Place, record: dict) -> None:
    """Writes a record as JSON, atomically.

    Raises:
        ValueError: when a field of FIELDS is missing.
    """
    missing = [field for field in FIELDS if field not in record]
    if missing:
        raise ValueError(f"record {path.name} lacks {', '.join(missing)}")
    write_text(path, json.dumps(record, indent=1) + "\n")


def read_records(folder: Path) -> dict[str, dict]:
    """All records of a folder: {file name without .json: record}, sorted by name."""
    return {path.stem: json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))}


def bound(config: str, name: str, missing: str = "") -> str:
    """The value of a binding in the configuration of a record, as text."""
    found = re.search(rf"^{re.escape(name)} = (.*)$", config, re.MULTILINE)
    return found[1] if found else missing


# What `cell` marks; goes below a table.
OWN_AVERAGES = (
    "† moving averages of the training's own parameters, not of their average, which was evaluated "
    "(up to version 0.1.0)."
)


def cell(record: dict) -> str:
    """Accuracy and interval of a record in percent, for a table; see OWN_AVERAGES for the mark."""
    marked = record["statistics"] == "moving" and record["versions"]["hypertransformer_tf"] == "0.1.0"
    return f"{record['accuracy']:.2f} ± {record['ci95']:.2f}{' †' if marked else ''}"


def write_csv(path: Place, records: Sequence[dict]) -> None:
    """Writes records as CSV with the fields that fit into a cell, atomically."""
    fields = ["method", *(field for field in FIELDS if field not in ("config", "versions"))]
    file = io.StringIO(newline="")
    writer = csv.DictWriter(file, fields, extrasaction="ignore")
    writer.writeheader()
    writer.writerows(records)
    write_text(path, file.getvalue())


def text_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Aligned columns for a terminal."""
    lines = [list(map(str, line)) for line in (header, *rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(header))]
    return "\n".join("  ".join(cell.ljust(w) for cell, w in zip(line, widths)).rstrip() for line in lines)


def hardware() -> str:
    """Accelerators, or the cores and name of the processor."""
    gpus = tf.config.list_physical_devices("GPU")
    if gpus:
        names = [tf.config.experimental.get_device_details(gpu).get("device_name", "GPU") for gpu in gpus]
        return ", ".join(names)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return f"{cores} CPU cores ({_processor()})"


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def versions() -> dict[str, str]:
    """Versions that numbers may depend on."""
    return {
        "hypertransformer_tf": hypertransformer_tf.__version__,
        "tensorflow": tf.__version__,
        "keras": keras.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
    }
