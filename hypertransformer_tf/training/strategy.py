"""Which devices a program runs on."""

from __future__ import annotations

from hypertransformer_tf.backend import tf
from hypertransformer_tf.errors import UserError

STRATEGIES = ("auto", "cpu", "gpu", "mirrored")


def configure_threads() -> None:
    """Sets up a CPU for many small operations; call before TensorFlow touches a device.

    One thread within an operation and as many operations at a time as there are cores: operations here
    are too small to be split up, and a batch of episodes has enough of them that are independent. It also
    leaves no sum whose order depends on the moment, so results repeat bit for bit.
    """
    tf.config.threading.set_intra_op_parallelism_threads(1)


def make_strategy(name: str = "auto", logical_cpus: int = 0) -> tf.distribute.Strategy:
    """Builds a strategy.

    Args:
        name: "auto": mirrored over all GPUs (or logical CPUs) when there are several, else one device;
            "cpu"; "gpu": one GPU; "mirrored": all GPUs, or all logical CPUs when there is no GPU.
        logical_cpus: split the CPU into so many devices first (for tests); 0 = leave it.

    Raises:
        UserError: for an unknown name or a device that is not there.
    """
    if name in ("tpu", "multiworker"):
        raise UserError(f"--strategy={name} is not there yet: use {', '.join(STRATEGIES)}")
    if name not in STRATEGIES:
        raise UserError(f"--strategy={name}: unknown, use {', '.join(STRATEGIES)}")
    if logical_cpus:
        cpu = tf.config.list_physical_devices("CPU")[0]
        tf.config.set_logical_device_configuration(
            cpu, [tf.config.LogicalDeviceConfiguration()] * logical_cpus
        )
    if name == "cpu":
        tf.config.set_visible_devices([], "GPU")
    gpus = [device.name for device in tf.config.list_logical_devices("GPU")]
    cpus = [device.name for device in tf.config.list_logical_devices("CPU")]
    if name == "gpu" and not gpus:
        raise UserError("--strategy=gpu: TensorFlow sees no GPU here; see BUILD.md, or use --strategy=cpu")
    if name == "mirrored" or (name == "auto" and max(len(gpus), len(cpus)) > 1):
        return tf.distribute.MirroredStrategy(gpus or cpus)
    return tf.distribute.OneDeviceStrategy((gpus if name in ("gpu", "auto") and gpus else cpus)[0])
