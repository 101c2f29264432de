"""The training step as a program of XLA's, and running it without TensorFlow, by JAX's PJRT client.

There the step is a pure function: its number, the training images and all variables go in, metrics and the
changed variables come out.
"""

from __future__ import annotations

import re
import time

import numpy as np

from hypertransformer_tf.backend import tf
from hypertransformer_tf.errors import UserError


class ExportedStep:
    """The program of a step and what its inputs and outputs are.

    Args:
        step: tf.function of an int64 scalar, compiled by XLA, that returns a dict of scalars.
        variables: all that it writes.

    Attributes:
        hlo: serialized HloModuleProto.
        inputs: for each parameter of the program "step", the variable, or the tensor of a constant: the
            training images and where each class begins.
        outputs: for each result the name of a metric, or the variable whose new value it is.
    """

    def __init__(self, step, variables: list[tf.Variable]):
        number = tf.constant(0, tf.int64)
        ir = step.experimental_get_compiler_ir(number)
        self.hlo = ir(stage="hlo_serialized")
        function = step.get_concrete_function(number)
        by_handle = {id(v.handle): v for v in (*variables, *function.graph.variables)}
        self.inputs = ["step", *(by_handle.get(id(x), x) for x in function.captured_inputs)]
        if any(isinstance(x, tf.Tensor) and x.dtype == tf.resource for x in self.inputs):
            raise ValueError("the step uses a variable that is not listed")
        # TensorFlow has the results first, then the variables that were written, tied to their parameters.
        first_line = ir(stage="hlo").split("\n", 1)[0]
        changed = re.findall(r"\{(\d+)\}: \((\d+), \{\}", first_line)
        self.outputs = sorted(function.structured_outputs)
        for output, parameter in changed:
            if int(output) != len(self.outputs):
                raise ValueError("the results of the step are in an order that is not known")
            self.outputs.append(self.inputs[int(parameter)])

    def values_now(self) -> list[np.ndarray]:
        """Values for all inputs: step 0, and what constants and variables hold now."""
        return [np.int64(0), *(x.numpy() for x in self.inputs[1:])]

    def signature(self) -> dict:
        """{"inputs", "outputs"}: name, shape and type of each, in order."""
        names = _names([x for x in self.inputs if isinstance(x, tf.Variable)])

        def line(entry):
            if isinstance(entry, str):
                return {"name": entry, "shape": [], "dtype": "int64" if entry == "step" else "float32"}
            name = names[entry.ref()] if isinstance(entry, tf.Variable) else "constant"
            return {"name": name, "shape": entry.shape.as_list(), "dtype": entry.dtype.name}

        return {"inputs": [line(x) for x in self.inputs], "outputs": [line(x) for x in self.outputs]}


def _names(variables: list[tf.Variable]) -> dict:
    """A name for each variable, {reference: name}; those that are not unique get numbers."""
    names, seen = {}, {}
    for variable in variables:
        name = variable.name.split(":")[0]
        seen[name] = seen.get(name, 0) + 1
        names[variable.ref()] = name if seen[name] == 1 else f"{name}#{seen[name]}"
    return names


class Runner:
    """The program on a device of JAX's client, with the values of the variables there."""

    def __init__(self, device, exported: ExportedStep):
        self.exported, self._client, self._device = exported, device.client, device
        self._program = self._client.compile(stablehlo(exported.hlo))
        positions = {v.ref(): i for i, v in enumerate(exported.inputs) if isinstance(v, tf.Variable)}
        metrics = sum(isinstance(entry, str) for entry in exported.outputs)
        self._back = [(metrics + i, positions[v.ref()]) for i, v in enumerate(exported.outputs[metrics:])]
        self._metrics = exported.outputs[:metrics]
        self.reset(exported.values_now())

    def reset(self, values: list[np.ndarray]) -> None:
        """Puts values for all inputs on the device."""
        self._buffers = [self._client.buffer_from_pyval(np.asarray(x), self._device) for x in values]

    def step(self, number: int) -> list:
        """Runs a step and keeps its variables for the next; returns the metrics, still on the device."""
        self._buffers[0] = self._client.buffer_from_pyval(np.int64(number), self._device)
        results = self._program.execute(self._buffers)
        for output, parameter in self._back:
            self._buffers[parameter] = results[output]
        return results[: len(self._metrics)]

    def metrics(self, number: int) -> dict[str, float]:
        """Runs a step; {name: value}."""
        return {name: float(np.asarray(x)) for name, x in zip(self._metrics, self.step(number))}

    def variables(self) -> list:
        """(variable, its value now) of all that the step changes."""
        return [(self.exported.inputs[i], np.asarray(self._buffers[i])) for _, i in self._back]

    def steps_per_second(self, seconds: float) -> float:
        """Measures, after a first step; the loss of each step is fetched."""
        np.asarray(self.step(0)[0])
        count, started = 0, time.perf_counter()
        while count == 0 or time.perf_counter() - started < seconds:
            count += 1
            np.asarray(self.step(count)[0])
        return count / (time.perf_counter() - started)


def stablehlo(hlo: bytes) -> str:
    """The text of a serialized HloModuleProto in StableHLO; TensorFlow 2.15 does not write it itself."""
    from jaxlib import xla_client

    computation = xla_client.XlaComputation(hlo)
    return xla_client._xla.mlir.xla_computation_to_mlir_module(computation)


def import_jax():
    """The module; raises UserError when it isn't installed."""
    try:
        import jax
    except ImportError:
        raise UserError("JAX is missing: python -m pip install -r requirements-jax.txt") from None
    return jax
