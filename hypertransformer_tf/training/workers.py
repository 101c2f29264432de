"""Several processes ("workers") that train one model together; the environment variable TF_CONFIG lists them.

The first worker is the chief: it alone validates, writes checkpoints and logs. All workers run the same
steps, so whatever decides about steps (a signal, a time limit, the checkpoint to go on from) is agreed on
here. When a worker is lost, the others can't go on: each starts its program again and waits for the lost one.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
import re
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from hypertransformer_tf.backend import tf
from hypertransformer_tf.errors import UserError

# Exit code when a lost worker (or a TPU) does not come back; sysexits.h calls it EX_TEMPFAIL: try again.
LOST = 75
# What TensorFlow raises in the workers that are left.
_LOST_ERRORS = (
    tf.errors.UnavailableError,
    tf.errors.AbortedError,
    tf.errors.InternalError,
    tf.errors.DeadlineExceededError,
    tf.errors.CancelledError,
    tf.errors.FailedPreconditionError,
)
# How often in a row this program has started itself again, from one start to the next.
_RESTARTS = "HYPERTRANSFORMER_RESTARTS"
_PAUSE = 3.0  # seconds before a start, in which the others notice the loss, too
_HEARTBEAT = 30_000  # milliseconds of silence after which a worker counts as lost; TensorFlow's 10 s are
# too short for a machine with more processes than cores

_connected: Cluster | None = None


class Cluster(NamedTuple):
    """What TF_CONFIG says: the addresses of all workers, chief first, and this one's place among them."""

    addresses: tuple[str, ...]
    index: int

    @property
    def count(self) -> int:
        return len(self.addresses)

    @property
    def others(self) -> str:
        """Addresses of the other workers, for people."""
        return ", ".join(a for i, a in enumerate(self.addresses) if i != self.index)


def read_cluster() -> Cluster | None:
    """Reads the environment variable TF_CONFIG; None when it is not set.

    Raises:
        UserError: when it is not what tf.distribute understands, or names tasks other than chief and workers.
    """
    text = os.environ.get("TF_CONFIG", "").strip()
    if not text:
        return None
    try:
        content = json.loads(text)
        jobs, task = content["cluster"], content["task"]
        kind, index = task["type"], int(task["index"])
        jobs = {job: list(addresses) for job, addresses in jobs.items()}
    except json.JSONDecodeError as error:
        raise UserError(f"TF_CONFIG is no JSON ({error}); BUILD.md has an example") from error
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise UserError(
            'TF_CONFIG must be {"cluster": {"worker": ["host:port", ...]}, "task": {"type": "worker", '
            f'"index": 0}}}}, it is {text[:200]}'
        ) from error
    others = sorted({*jobs, kind} - {"chief", "worker"})
    if others:
        raise UserError(f"TF_CONFIG has a task {others[0]!r}: only chief and worker take part in a training")
    if not 0 <= index < len(jobs.get(kind, ())):
        raise UserError(f"TF_CONFIG: there is no {kind} {index} among {jobs.get(kind, [])}")
    if len(jobs.get("chief", ())) > 1:
        raise UserError(f"TF_CONFIG has {len(jobs['chief'])} chiefs: one at most, the rest are workers")
    addresses = [*jobs.get("chief", ()), *jobs.get("worker", ())]
    for address in addresses:
        if not isinstance(address, str) or not address.rpartition(":")[2].isdigit():
            raise UserError(f"TF_CONFIG: the address {address!r} must be 'host:port'")
    if len(set(addresses)) < len(addresses):
        raise UserError("TF_CONFIG has an address twice: every worker needs one of its own")
    place = index + (len(jobs.get("chief", ())) if kind == "worker" else 0)
    return Cluster(tuple(addresses), place)


def connect(cluster: Cluster, wait_minutes: float = 30.0) -> tf.distribute.Strategy:
    """Waits for the other workers and makes the strategy that they share.

    Ends the process with code `LOST` when they are not all there after `wait_minutes`.

    Raises:
        UserError: when this worker can't listen at its address.
    """
    global _connected
    if cluster.count > 1:
        _connected = cluster
        print(f"worker {cluster.index} of {cluster.count}: waiting for {cluster.others}", flush=True)
    missing = (
        f"not all workers came within {wait_minutes:g} minutes ({cluster.others}): start train.py on each, "
        "with the same addresses in TF_CONFIG"
    )
    _set_heartbeat()
    try:
        with time_limit(wait_minutes, missing):
            return tf.distribute.MultiWorkerMirroredStrategy()
    except (tf.errors.UnknownError, tf.errors.InvalidArgumentError, tf.errors.NotFoundError) as error:
        address = cluster.addresses[cluster.index]
        raise UserError(
            f"TF_CONFIG: this worker can't listen at {address} ({first_line(error)}): is the port taken?"
        ) from error


def _set_heartbeat() -> None:
    """Lets the strategy, which has no argument for it, configure TensorFlow with `_HEARTBEAT`."""
    from tensorflow.python.eager import context

    this = context.context()
    configure = getattr(this, "configure_coordination_service", None)
    if configure is not None:
        this.configure_coordination_service = functools.partial(configure, heartbeat_timeout_in_ms=_HEARTBEAT)


class Workers:
    """This process among the workers of a strategy. Alone, it is the chief and agrees with itself.

    Every worker must call `total` and the methods made of it, in the same order.
    """

    def __init__(self, strategy: tf.distribute.Strategy):
        self.strategy, self.index, self.count = strategy, 0, 1
        if isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy) and _connected:
            self.index, self.count = _connected.index, _connected.count
        self._sum = None

    @property
    def is_chief(self) -> bool:
        """Whether this worker writes files."""
        return self.index == 0

    def total(self, values: Sequence[float]) -> list[float]:
        """Sums of float64 values over the workers."""
        if self.count == 1:
            return [float(value) for value in values]
        if self._sum is None:
            self._sum = self._make_sum()
        return self._sum(tf.constant(values, tf.float64)).numpy().tolist()

    def _make_sum(self):
        strategy = self.strategy
        devices = strategy.num_replicas_in_sync // self.count

        def of_replica(values):
            # The devices of a worker hold the same values: the first one speaks for all.
            number = tf.distribute.get_replica_context().replica_id_in_sync_group
            return tf.where(number % devices == 0, values, tf.zeros_like(values))

        @tf.function
        def summed(values):
            return strategy.reduce("SUM", strategy.run(of_replica, args=(values,)), axis=None)

        return summed

    def of_chief(self, values: Sequence[float]) -> list[float]:
        """The chief's values, float64; those of other workers don't count."""
        return self.total([value if self.is_chief else 0.0 for value in values])

    def check_same(self, what: str, value: str) -> None:
        """Raises UserError on every worker unless all have the same value (a configuration, say)."""
        own = int(hashlib.sha256(value.encode()).hexdigest()[:12], 16)
        differs = self.of_chief([own]) != [own]
        if self.total([differs]) == [0.0]:
            return
        who = f"worker {self.index} has" if differs else "another worker has"
        raise UserError(f"{who} not the {what} of the chief: start all workers with the same files and flags")

    def check_same_step(self, step: int, folder: str) -> None:
        """Raises UserError on every worker unless all found the same checkpoint; step: -1 = none."""
        chief = int(self.of_chief([step])[0])
        if self.total([step != chief]) == [0.0]:
            return

        def name(step):
            return f"the checkpoint of step {step:,}" if step >= 0 else "no checkpoint"

        seen = f"worker {self.index} sees {name(step)}" if step != chief else "another worker does not"
        raise UserError(
            f"the chief sees {name(chief)} in {folder}, {seen}: --workdir must be a folder that all share"
        )

    def progressed(self) -> None:
        """Notes that a checkpoint was saved: restarts are counted anew."""
        os.environ.pop(_RESTARTS, None)


@contextlib.contextmanager
def restarted_after_a_loss(restarts: int) -> Iterator[None]:
    """Runs a program's work; when another worker is lost meanwhile, starts the program again.

    Args:
        restarts: how often in a row, without a checkpoint in between. Then the process ends with code `LOST`.
    """
    try:
        yield
    except _LOST_ERRORS as error:
        if _connected is None or _connected.count == 1:
            raise
        tries = int(os.environ.get(_RESTARTS, "0"))
        lost = f"lost a worker ({first_line(error)})"
        if tries >= restarts:
            often = f" {tries + 1} times in a row" if tries else ""
            _leave(f"error: {lost}{often}: start this program again, it goes on from the last checkpoint")
        print(
            f"{lost}: starting again from the last checkpoint, try {tries + 1} of {restarts}",
            file=sys.stderr,
            flush=True,
        )
        time.sleep(_PAUSE)
        os.environ[_RESTARTS] = str(tries + 1)
        _close_on_exec()
        given = getattr(sys, "orig_argv", None) or [sys.executable, *sys.argv]  # new in Python 3.10
        os.execv(sys.executable, [sys.executable, *given[1:]])


@contextlib.contextmanager
def time_limit(minutes: float, message: str) -> Iterator[None]:
    """Ends the process with one line and code `LOST` if the work inside takes longer.

    TensorFlow waits for other machines in C++, where no exception reaches it.
    """
    timer = threading.Timer(60.0 * minutes, _leave, [f"error: {message}"])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def first_line(error: Exception) -> str:
    """The first sentence of TensorFlow's message that says what is wrong."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    lines = [line for line in lines if not line.startswith(("Graph execution", "Detected at", "File "))]
    said = lines[0] if lines else type(error).__name__
    said = re.sub(r"^Collective ops is aborted by: |Error reported from \S+: ", "", said)
    return re.split(r"[.:;] ", said)[0][:200]


def _leave(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
    os._exit(LOST)


def _close_on_exec() -> None:
    """Lets no socket of this process live on in the next one, which listens at the same address."""
    import fcntl

    for name in os.listdir("/dev/fd") if os.path.isdir("/dev/fd") else ():
        if int(name) > 2:
            with contextlib.suppress(OSError):
                flags = fcntl.fcntl(int(name), fcntl.F_GETFD)
                fcntl.fcntl(int(name), fcntl.F_SETFD, flags | fcntl.FD_CLOEXEC)
