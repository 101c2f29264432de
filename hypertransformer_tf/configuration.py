"""gin files and bindings, with every mistake in one line."""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Callable

import gin

# Imported for their @gin.configurable: a configuration may name anything that exists.
import hypertransformer_tf.baselines.methods
import hypertransformer_tf.baselines.oracle
import hypertransformer_tf.data.sources
import hypertransformer_tf.models.hypertransformer
import hypertransformer_tf.training.loop  # noqa: F401
from hypertransformer_tf.errors import UserError

ROOT = Path(__file__).resolve().parent.parent


def load(files: Sequence[str], bindings: Sequence[str] = ()) -> None:
    """Reads gin files, then single bindings.

    Args:
        files: paths; relative ones are looked for in the working directory, then in the project. An
            `include` is looked for beside the file that includes, too.
        bindings: texts like "LearningRate.rate = 0.01"; they win over the files.

    Raises:
        UserError: for a missing file, a syntax error, or a name that does not exist.
    """
    found = []
    for file in files:
        candidates = [path for path in (Path(file), ROOT / file) if path.is_file()]
        if not candidates:
            near = sorted(path.name for path in (ROOT / "gin").glob("*.gin"))
            raise UserError(f"--gin_file={file}: no such file; there are gin/{', gin/'.join(near)}")
        found.append(str(candidates[0].resolve()))
        gin.add_config_file_search_path(str(candidates[0].resolve().parent))
    _parse(lambda: gin.parse_config_files_and_bindings(found, list(bindings)))


def load_text(text: str, bindings: Sequence[str] = ()) -> None:
    """Reads the configuration that a checkpoint keeps, then single bindings; raises as `load` does."""
    _parse(lambda: gin.parse_config([text, *bindings]))


def _parse(parse: Callable[[], None]) -> None:
    gin.clear_config()
    gin.add_config_file_search_path(str(ROOT))
    logging.disable(logging.ERROR)  # gin logs an error for each folder in which an include is not
    try:
        parse()
    except (ValueError, SyntaxError, OSError, TypeError, NameError) as error:
        raise UserError(f"configuration: {_first_line(error)}") from error
    finally:
        logging.disable(logging.NOTSET)


def check_all_used() -> None:
    """Raises UserError when a binding has had no effect; call once everything is built.

    gin is silent about a binding of a configurable that is never called.
    """
    binding = re.compile(r"^([\w./]+\.\w+) *=", re.MULTILINE)
    used = set(binding.findall(gin.operative_config_str()))
    for given in binding.findall(gin.config_str()):
        if given not in used:
            raise UserError(
                f"the binding {given} has no effect: nothing in this configuration uses it; remove it"
            )


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
