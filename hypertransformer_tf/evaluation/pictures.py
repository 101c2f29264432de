"""Names of pictures, checked before the work that they shall show."""

from __future__ import annotations

import os
from pathlib import Path

from hypertransformer_tf.errors import UserError

FORMATS = (".png", ".pdf", ".svg")


def check_picture(name: str) -> None:
    """Raises UserError when a picture can't be written under a name."""
    path = Path(name)
    if path.suffix.lower() not in FORMATS:
        raise UserError(f"--picture={name}: name a {', '.join(FORMATS[:-1])} or {FORMATS[-1]} file")
    folder = path.parent
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    if not folder.is_dir() or not os.access(folder, os.W_OK | os.X_OK):
        raise UserError(f"--picture={name}: {folder} is no folder that can be written: name another place")
