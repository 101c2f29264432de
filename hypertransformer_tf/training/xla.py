"""Whether XLA, without which nothing runs on a TPU, compiles a training step, and with which result."""

from __future__ import annotations

import contextlib
import math
import re
import time
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from tensorflow.python.framework import op_callbacks
from tensorflow.python.util import pywrap_xla_ops  # TensorFlow has no public list

from hypertransformer_tf.backend import tf
from hypertransformer_tf.training.assembly import Assembly

# How the arguments of a graph are written down; they are values, not work.
_ARGUMENTS = {"Placeholder"}


def ops_of(function) -> set[str]:
    """Types of all ops of a ConcreteFunction, with those of every function that it calls or loops over."""
    graph = function.graph.as_graph_def()
    bodies = [body.node_def for body in graph.library.function]
    return {node.op for nodes in (graph.node, *bodies) for node in nodes} - _ARGUMENTS


@contextlib.contextmanager
def recorded_ops():
    """Yields a set that gets the types of all ops that run eagerly meanwhile.

    Much cheaper than to trace and list a graph, but an op that is Python has no type here, and what a
    function that is called consists of is not seen: it shows as PartitionedCall or the like.
    """
    seen = set()

    def record(op_type, inputs, attributes, outputs, op_name=None, graph=None):
        seen.add(op_type.decode() if isinstance(op_type, bytes) else op_type)

    op_callbacks.add_op_callback(record)
    try:
        yield seen
    finally:
        op_callbacks.remove_op_callback(record)


def without_kernel(ops: Iterable[str]) -> set[str]:
    """Those ops that XLA can't compile.

    TensorFlow tells the ops that have an XLA kernel on a CPU, which are those with one on a GPU. A TPU's
    kernels come from the same sources, but are registered by a TensorFlow built for TPUs: the few ops that
    exist for one kind of device only may differ.
    """
    return set(ops) - set(pywrap_xla_ops.get_cpu_kernel_names())


class Comparison(NamedTuple):
    """How a step that XLA compiled differs from the ordinary one.

    Attributes:
        without_kernel: ops that XLA can't compile; then nothing else was measured.
        ops: number of different ops.
        compile_seconds: of the first call.
        loss, compiled_loss: in nats.
        gradient: largest difference of a gradient, as a share of the norm of all of them.
        updates: for each kind of variables ("parameters", "average", "moving_mean", the optimizer's "m", ...)
            the largest difference after the step, beyond the rounding of the values themselves, as a share of
            the norm of the changes of all such variables.
    """

    without_kernel: tuple[str, ...]
    ops: int
    compile_seconds: float = 0.0
    loss: float = 0.0
    compiled_loss: float = 0.0
    gradient: float = 0.0
    updates: dict[str, float] = {}


def compare(assembly: Assembly, number: int = 1000) -> Comparison:
    """Runs a step as it is and compiled, from the same state.

    A difference of the last bit may open or close a ReLU or choose another pixel of a pool; so gradients
    computed by another convolution library differ by some 1e-4 of their norm.

    Args:
        assembly: a step; its variables and its optimizer's `apply` are changed.
        number: the step to run.
    """
    step, apply = assembly.step, assembly.optimizer.apply
    assembly.optimizer.apply = lambda gradients, variables, step: {
        **apply(gradients, variables, step),
        "gradients": [tf.convert_to_tensor(g) for g in gradients],
    }
    argument = tf.constant(number, tf.int64)
    plain, compiled = tf.function(step), tf.function(step, jit_compile=True)
    ops = ops_of(compiled.get_concrete_function(argument))  # TensorFlow makes branches differently for XLA
    if without_kernel(ops):
        return Comparison(tuple(sorted(without_kernel(ops))), len(ops))
    variables = assembly.variables
    kinds, start = start_for_comparison(assembly)

    def run_from_start(function):
        for variable, value in zip(variables, start):
            variable.assign(value)
        metrics = function(argument)
        return metrics, [v.numpy() for v in variables]

    expected, after = run_from_start(plain)
    began = time.perf_counter()
    found, after_compiled = run_from_start(compiled)
    seconds = time.perf_counter() - began
    norm = float(expected["gradient_norm"])
    gradient = max(_distance(a, b) for a, b in zip(expected["gradients"], found["gradients"])) / norm
    updates = update_differences(kinds, start, after, after_compiled)
    return Comparison((), len(ops), seconds, float(expected["loss"]), float(found["loss"]), gradient, updates)


def start_for_comparison(assembly: Assembly) -> tuple[list[str], list[np.ndarray]]:
    """Kinds and values, for each of `Assembly.variables`, from which steps can be compared.

    They are what they are, but for Adam's second moments, which are 0.01: at its first step Adam would divide
    gradients that are nothing but rounding by their own size.
    """
    trained = {v.ref() for v in assembly.step.variables}
    kinds = ["parameters" if v.ref() in trained else _kind(v) for v in assembly.variables]
    values = [v.numpy() for v in assembly.variables]
    return kinds, [np.full_like(x, 0.01) if kind == "v" else x for kind, x in zip(kinds, values)]


def update_differences(kinds, start, expected, found) -> dict[str, float]:
    """Differences of variables by kind, as `Comparison.updates`; arguments are lists of equal length."""
    changes, differences = {}, {}
    for kind, old, a, b in zip(kinds, start, expected, found):
        changes[kind] = math.hypot(changes.get(kind, 0.0), float(np.linalg.norm(a - old)))
        differences[kind] = max(differences.get(kind, 0.0), _distance(a, b, 2.0**-22))
    return {kind: value / (changes[kind] or 1.0) for kind, value in differences.items()}


def _kind(variable: tf.Variable) -> str:
    """The last part of a variable's name: "m", "v", "average", "moving_mean"."""
    name = variable.name.split(":")[0].split("/")[-1]
    return re.sub(r"^layer_\d+_|_\d+$", "", name)


def _distance(a, b, rounding: float = 0.0) -> float:
    """Largest difference of two arrays, less this share of the values."""
    a, b = (np.asarray(x, np.float64) for x in (a, b))
    return float(np.maximum(np.abs(a - b) - rounding * np.abs(b), 0.0).max())
