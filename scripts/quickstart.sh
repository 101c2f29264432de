#!/usr/bin/env bash
# The main job in a few minutes: sets up the environment, then trains, evaluates and draws on `glyphs`.
# Arguments go to scripts/quickstart.py.
set -euo pipefail
root="$(CDPATH='' cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd)"
python="$("$root/scripts/environment.sh")"
PYTHONPATH="$root${PYTHONPATH:+:$PYTHONPATH}" exec "$python" "$root/scripts/quickstart.py" "$@"
