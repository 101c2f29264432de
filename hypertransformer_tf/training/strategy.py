"""Which devices a program runs on."""

from __future__ import annotations

import os

from hypertransformer_tf.backend import tf
from hypertransformer_tf.errors import UserError
from hypertransformer_tf.training import workers

STRATEGIES = ("auto", "cpu", "gpu", "mirrored", "multiworker", "tpu")


def configure_threads() -> None:
    """Sets up a CPU for many small operations; call before TensorFlow touches a device.

    One thread within an operation and as many operations at a time as there are cores: operations here
    are too small to be split up, and a batch of episodes has enough of them that are independent. It also
    leaves no sum whose order depends on the moment, so results repeat bit for bit.
    """
    tf.config.threading.set_intra_op_parallelism_threads(1)


def make_strategy(
    name: str = "auto", logical_cpus: int = 0, tpu: str | None = None
) -> tf.distribute.Strategy:
    """Builds a strategy; call before TensorFlow touches a device.

    Args:
        name: "auto": "tpu" when a TPU is named, "multiworker" when $TF_CONFIG names several workers, else
            mirrored over all GPUs (or logical CPUs) when there are several, else one device;
            "cpu"; "gpu": one GPU; "mirrored": all GPUs, or all logical CPUs when there is no GPU;
            "multiworker": the GPUs (or the CPU) of every worker in $TF_CONFIG; waits for all of them;
            "tpu": all cores of a TPU.
        logical_cpus: split the CPU into so many devices first (for tests); 0 = leave it.
        tpu: name or grpc:// address of a Cloud TPU; "local": the TPU of this machine; None: with "tpu" the
            one that the environment names, else this machine's.

    Raises:
        UserError: for an unknown name, a device that is not there, or a $TF_CONFIG without a sense.
    """
    if name not in STRATEGIES:
        raise UserError(f"--strategy={name}: unknown, use {', '.join(STRATEGIES)}")
    if tpu is not None and name not in ("auto", "tpu"):
        raise UserError(f"--tpu={tpu} with --strategy={name}: use --strategy=tpu, or leave --tpu out")
    if tpu == "":
        raise UserError("--tpu is empty: give the name of a TPU, or local for the one of this machine")
    cluster = workers.read_cluster() if name in ("auto", "multiworker") and tpu is None else None
    if name == "multiworker" and cluster is None:
        raise UserError(
            "--strategy=multiworker: the environment variable TF_CONFIG is not set; BUILD.md has an example"
        )
    several = cluster is not None and cluster.count > 1
    if logical_cpus and (name in ("multiworker", "tpu") or tpu or several):
        raise UserError(
            f"--logical_cpus={logical_cpus} is for --strategy=mirrored: leave it out with workers or TPUs"
        )
    if name == "tpu" or tpu:
        return _tpu(tpu)
    if name == "multiworker" or several:
        return workers.connect(cluster)
    return _of_this_machine(name, logical_cpus)


def _of_this_machine(name: str, logical_cpus: int) -> tf.distribute.Strategy:
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


def make_device(name: str = "auto") -> tf.distribute.Strategy:
    """A device for a program that only uses a model; $TF_CONFIG plays no part.

    Args:
        name: "auto" or "mirrored": a GPU when there is one; "cpu"; "gpu".

    Raises:
        UserError: for another name or a GPU that is not there.
    """
    if name in ("multiworker", "tpu"):
        raise UserError(f"--strategy={name} is for train.py: use auto, cpu or gpu here")
    if name not in STRATEGIES:
        raise UserError(f"--strategy={name}: unknown, use auto, cpu or gpu")
    return _of_this_machine("auto" if name == "mirrored" else name, 0)


def _tpu(name: str | None, wait_minutes: float = 10.0) -> tf.distribute.Strategy:
    """Connects to a TPU and sets it up."""
    named = any(os.environ.get(v) for v in ("TPU_NAME", "TPU_CONFIG", "KUBE_GOOGLE_CLOUD_TPU_ENDPOINTS"))
    if name is None and not named:
        name = "local"
    asked = "--strategy=tpu" if name is None else f"--tpu={name}"
    try:
        with workers.time_limit(wait_minutes, f"{asked}: no answer within {wait_minutes:g} minutes"):
            resolver = tf.distribute.cluster_resolver.TPUClusterResolver(tpu=name)
            if resolver.master():
                tf.config.experimental_connect_to_cluster(resolver)
            tf.tpu.experimental.initialize_tpu_system(resolver)
            return tf.distribute.TPUStrategy(resolver)
    except (tf.errors.OpError, ValueError, RuntimeError, OSError, ImportError) as error:
        raise UserError(
            f"{asked}: no TPU there ({workers.first_line(error)}): give the TPU's name, or local on a TPU "
            "VM, with a TensorFlow built for TPUs (BUILD.md)"
        ) from error
