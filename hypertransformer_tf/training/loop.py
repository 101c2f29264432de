"""The training loop: steps, validation, checkpoints, a clean end."""

from __future__ import annotations

import contextlib
import signal
import time
from typing import Callable, NamedTuple

import gin
import numpy as np

from hypertransformer_tf.backend import keras, tf
from hypertransformer_tf.baselines.methods import make_model
from hypertransformer_tf.baselines.rfs import RFS
from hypertransformer_tf.data.augmentation import Augmentation
from hypertransformer_tf.data.episodes import Episodes, EpisodeSampler
from hypertransformer_tf.data.host_pipeline import distributed_batches, host_draws
from hypertransformer_tf.data.splits import Splits
from hypertransformer_tf.errors import UserError
from hypertransformer_tf.evaluation.accuracy import TaskEvaluator
from hypertransformer_tf.evaluation.intervals import confidence_interval
from hypertransformer_tf.evaluation.records import hardware, versions
from hypertransformer_tf.models.hypertransformer import HyperTransformer
from hypertransformer_tf.models.normalization import mean_of_parts
from hypertransformer_tf.storage import Place, write_text
from hypertransformer_tf.training import checkpoints, trained
from hypertransformer_tf.training.averaging import WeightAverage, held
from hypertransformer_tf.training.log import NoLog, RunLog
from hypertransformer_tf.training.masking import SupportMasking
from hypertransformer_tf.training.optimizers import Optimizer
from hypertransformer_tf.training.schedules import LearningRate
from hypertransformer_tf.training.shared_head import SharedHead
from hypertransformer_tf.training.step import TrainingStep
from hypertransformer_tf.training.workers import Workers

# Training episodes, the latest ones, whose statistics become the moving averages of averaged parameters.
OBSERVED_EPISODES, OBSERVED_AT_ONCE = 128, 8


@gin.configurable
class Task(NamedTuple):
    """What an episode of this configuration looks like.

    Attributes:
        way, shot: classes of an episode and labeled support images of each.
        query: query images of all classes together in a training episode.
        unlabeled: unlabeled support images of each class.
        rotate: rotate classes by random multiples of 90 degrees in training.
    """

    way: int = 20
    shot: int = 1
    query: int = 60
    unlabeled: int = 0
    rotate: bool = False


class Result(NamedTuple):
    """How a training ended: "finished" or "interrupted", steps done, best validation accuracy (0..1)."""

    ending: str
    step: int
    best_accuracy: float


Pictures = Callable[[HyperTransformer, Episodes], dict[str, np.ndarray]]


@gin.configurable(denylist=["splits", "workdir", "strategy", "ready", "pictures"])
def train(
    splits: Splits,
    workdir: Place,
    strategy: tf.distribute.Strategy,
    ready: Callable[[], None] = lambda: None,
    pictures: Pictures | None = None,
    episodes: int = 4_000_000,
    max_minutes: float | None = None,
    steps_per_call: int = 10,
    validate_episodes: int = 50_000,
    validation_tasks: int = 100,
    validation_statistics: str = "support",
    checkpoint_episodes: int = 50_000,
    keep: int = 3,
    seed: int = 0,
    start: str | None = None,
    picture_episodes: int = 200_000,
    write_graph: bool = False,
    host_sampling: bool | None = None,
) -> Result:
    """Trains the model of `make_model`; goes on where an earlier run in the same workdir stopped.

    With several workers (see `workers`) each calls this with the same arguments; the chief alone validates
    and writes files.

    Args:
        splits: train classes to learn from, val classes for every choice; test classes are not touched.
        workdir: folder for checkpoints, the best model and logs, on this machine or in a store
            (see `storage`).
        strategy: see `strategy.make_strategy`.
        ready: called when everything is built, before the first step.
        episodes: length of the training (4,000,000 in appendix C).
        max_minutes: stop after so many minutes of training, over all resumes, validation not counted;
            with a cosine schedule the rate still follows `episodes`.
        steps_per_call: steps inside one tf.function call; changes speed only.
        validate_episodes, validation_tasks, validation_statistics: how often, on how many tasks and with
            which batch statistics the validation accuracy is measured.
        checkpoint_episodes: how often the state is saved.
        keep: how many of the newest states are kept.
        seed: of parameters and episodes.
        start: a checkpoint, as `trained.find` finds it, whose parameters are the first ones; it must be of
            the same model. Its episodes and its time count as this model's. The episodes of an equal seed
            would come again: give another one.
        pictures: makes pictures (uint8 [height, width, channels] by name) of a model and a validation
            episode, for TensorBoard.
        picture_episodes: how often it does; 0 = never.
        write_graph: show the graph of the first call in TensorBoard, once (some MB).
        host_sampling: the host draws the episodes ahead and hands them to the step, which draws them itself
            otherwise; the episodes are the same. None = only where it must be so: on a TPU, for images that
            are read from the disk.

    Raises:
        UserError: for impossible values, a checkpoint of another configuration, workers that don't fit
            together, or a loss that is no longer finite.
    """
    counts = {
        "episodes": episodes,
        "steps_per_call": steps_per_call,
        "validate_episodes": validate_episodes,
        "validation_tasks": validation_tasks,
        "checkpoint_episodes": checkpoint_episodes,
        "keep": keep,
    }
    for name, value in counts.items():
        if value < 1:
            raise UserError(f"train.{name} = {value}: must be at least 1")
    if picture_episodes < 0:
        raise UserError(f"train.picture_episodes = {picture_episodes}: must be 0 (none) or above")
    run = _Run(
        splits, workdir, strategy, seed, start, episodes, validation_tasks, validation_statistics, keep
    )
    run.sample_on_host(host_sampling)
    ready()
    if run.workers.is_chief:
        print(run.summary(), flush=True)
    if pictures is None or not picture_episodes:
        pictures, picture_episodes = None, episodes
    every = {"validate": validate_episodes, "checkpoint": checkpoint_episodes, "picture": picture_episodes}
    return run.train(max_minutes, steps_per_call, every, pictures, write_graph)


class _Run:
    """The objects of a training run and what is done with them."""

    def __init__(self, splits, workdir, strategy, seed, start, episodes, validation_tasks, statistics, keep):
        self.workdir, self.strategy, self.seed, self.splits = workdir, strategy, seed, splits
        self.workers = Workers(strategy)
        self.task, self.validation_tasks = Task(), validation_tasks
        self.start = trained.find(start) if start is not None else None
        task, shape = self.task, splits.train.image_shape
        self.augmentation = Augmentation()
        self.workers.check_same("configuration", gin.config_str())
        for part in (splits.train, splits.val):
            self.workers.check_same("data", f"{splits.name} {part.names} {part.counts.tolist()} {shape}")
        keras.utils.set_random_seed(seed)
        sampler = EpisodeSampler(
            splits.train,
            task.way,
            task.shot,
            task.query,
            task.unlabeled,
            seed,
            "train",
            task.rotate,
            self.augmentation,
        )
        validation = EpisodeSampler(splits.val, task.way, task.shot, task.query, task.unlabeled, seed, "val")
        with strategy.scope():
            self.model = make_model(task.way, shape, splits.train.num_classes)
            if isinstance(self.model, RFS) and self.model.teacher:
                self.model.learn_from(trained.find(self.model.teacher).load_model(baselines=True))
            if self.start:
                self.start.fill(self.model)
            rate = LearningRate()
            self.optimizer = Optimizer(lambda step: rate(step * self.per_step, episodes))
            self.shared_head = SharedHead(self.model, splits.train.num_classes)
            self.average = WeightAverage(self.model.trainable_variables)
            self.step_function = TrainingStep(
                self.model,
                self.optimizer,
                sampler,
                self.average,
                SupportMasking(),
                self.shared_head,
                episodes,
            )
            self.optimizer.build(self.step_function.variables)
        self._observe = tf.function(self.step_function.observed)
        self.sampler = sampler
        self.per_step = self.step_function.episodes_per_step
        self.total_steps = -(-episodes // self.per_step)
        self.validation = validation
        self.evaluator = TaskEvaluator(self.model, validation, [statistics])
        self.validated_step = -1
        self.clock = tf.Variable([0.0, -1.0], dtype=tf.float64, trainable=False)  # seconds, best accuracy
        state = tf.train.Checkpoint(
            model=self.model,
            shared_head=self.shared_head,
            average=self.average,
            clock=self.clock,
            **self.optimizer.parts,
        )
        self.checkpoints = checkpoints.Checkpoints(workdir, state, self.fingerprint(), keep)

    def sample_on_host(self, wanted: bool | None) -> None:
        """Decides who draws the episodes, see `train`; raises UserError when it can't be as wanted."""
        self.host_sampling = host_draws(self.sampler, self.strategy, wanted)
        if not self.host_sampling:
            with self.strategy.scope():
                self.sampler.keep_on_devices()

    def summary(self) -> str:
        """What is trained, on what and where, for people."""
        splits, model = self.splits, self.model
        size = sum(v.shape.num_elements() for v in model.trainable_variables)
        height, width, channels = splits.train.image_shape
        devices, workers = self.strategy.num_replicas_in_sync, self.workers.count
        classes = ", ".join(
            f"{part.num_classes} {what}"
            for what, part in (("training", splits.train), ("validation", splits.val), ("test", splits.test))
        )
        lines = [
            f"data: {splits.name}, {height}x{width}x{channels}; classes: {classes}",
            f"model: {model.method}, {size:,} parameters; writes CNNs of {model.cnn.num_parameters:,} "
            f"(generated: {model.generated}) for {self.task.way}-way {self.task.shot}-shot episodes",
            f"device: {hardware()}, {devices} replica{'s' if devices > 1 else ''}"
            f"{f' on {workers} workers' if workers > 1 else ''}; "
            f"{self.per_step} episodes per step, {self.total_steps:,} steps; workdir {self.workdir}",
        ]
        if self.start:
            trained_before = f"{self.start.manifest['episodes_trained']:,} episodes"
            lines.insert(2, f"start: checkpoint {self.start.path}, after {trained_before}")
        return "\n".join(lines)

    def fingerprint(self) -> dict:
        """What must be the same for a run to go on from a checkpoint."""
        method = self.model.method
        return {
            **({} if method == HyperTransformer.method else {"make_model.method": method}),
            **self.model.config(),
            **{f"Task.{name}": value for name, value in self.task._asdict().items()},
            **{f"Augmentation.{name}": value for name, value in self.augmentation.changed().items()},
            "load_splits.name": self.splits.name,
            "train.seed": self.seed,
            "TrainingStep.episodes_per_step": self.per_step,
            **({"train.start": self.start.manifest["files"]} if self.start else {}),
        }

    def train(self, max_minutes, steps_per_call, episodes_between, pictures, write_graph) -> Result:
        """Runs until the end, the time limit or a signal."""
        if not self.model.trainable_variables:
            return self._untrained()
        step = self._restore()
        every = {name: max(1, -(-count // self.per_step)) for name, count in episodes_between.items()}
        log = self._open_log(step)
        try:
            return self._train(log, step, max_minutes, steps_per_call, every, pictures, write_graph)
        finally:
            log.close()

    def _restore(self) -> int:
        """Fills the state from the newest checkpoint, the same on every worker; returns its step."""
        found = self.checkpoints.newest()
        self.workers.check_same_step(found[1]["step"] if found else -1, str(self.checkpoints.folder))
        if found is None:
            return 0
        self.checkpoints.read(found[0])
        return found[1]["step"]

    def _open_log(self, step: int) -> RunLog | NoLog:
        if not self.workers.is_chief:
            return NoLog()
        return RunLog(self.workdir, step, self.total_steps)

    def _train(self, log, step, max_minutes, steps_per_call, every, pictures, write_graph) -> Result:
        resumed, is_chief = step, self.workers.is_chief
        call, window, batches = self._make_call(), _Window(), ()
        if self.host_sampling:
            batches = (iter(distributed_batches(self.strategy, self.sampler, self.per_step, step)),)
        if step:
            log.say(f"resuming after step {step:,} ({step * self.per_step:,} episodes)")
        with _StopSignals() as stop:
            while not self._must_stop(step, stop, max_minutes):
                started = time.perf_counter()
                # Calls end where something is due, so that nothing depends on steps_per_call.
                due = [steps_per_call, self.total_steps - step, *(n - step % n for n in every.values())]
                count = min(due)
                metrics = call(tf.constant(step, tf.int64), tf.constant(count, tf.int64), *batches)
                metrics = {name: value.numpy().item() for name, value in metrics.items()}
                step += count
                if is_chief and step == resumed + count:
                    self._write_configuration()
                    if write_graph and resumed == 0:
                        log.graph(
                            call.get_concrete_function(
                                tf.constant(0, tf.int64), tf.constant(1, tf.int64), *batches
                            )
                        )
                if metrics["first_bad_step"] >= 0:
                    log.close()
                    raise UserError(self._not_finite(int(metrics["first_bad_step"])))
                seconds = time.perf_counter() - started
                self.clock.assign_add([seconds, 0.0])
                window.add(count, seconds, metrics)
                log.bar.update(count)
                if window.seconds > 5.0 or step % every["validate"] == 0:
                    self._report(log, step, window)
                    window = _Window()
                if is_chief and step % every["validate"] == 0:
                    self._validate(log, step)
                if is_chief and pictures and step % every["picture"] == 0:
                    with self.average.applied():
                        episode = self.validation(tf.constant([0], tf.int64))
                        log.pictures(step, pictures(self.model, episode))
                if step % every["checkpoint"] == 0:
                    log.sync()  # first: what is logged after the checkpoint is dropped on a resume
                    self._save(step)
        finished = step >= self.total_steps or self._time_is_up(max_minutes)
        if is_chief and finished and self.validated_step != step:
            self._validate(log, step)
        self._save(step)
        self._agree_on_clock()  # nobody leaves before the chief has written everything
        return Result("finished" if finished else "interrupted", step, float(self.clock[1]))

    def _must_stop(self, step: int, stop: _StopSignals, max_minutes: float | None) -> bool:
        """Whether the training ends before this step, on all workers or none."""
        asked = self._agree_on_clock(stop.asked)
        return asked or step >= self.total_steps or self._time_is_up(max_minutes)

    def _agree_on_clock(self, asked: bool = False) -> bool:
        """Gives all workers the chief's clock; tells whether any worker was asked to stop."""
        chief = self.workers.is_chief
        *clock, asking = self.workers.total([*(self.clock.numpy() if chief else (0.0, 0.0)), asked])
        if not chief:
            self.clock.assign(clock)
        return asking > 0

    def _untrained(self) -> Result:
        """A method without anything to learn is validated and saved as it is."""
        if self.workers.is_chief:
            log = RunLog(self.workdir, 0, 0)
            self._write_configuration()
            self._validate(log, 0)
            log.close()
        self._agree_on_clock()
        return Result("finished", 0, float(self.clock[1]))

    def _make_call(self):
        """A tf.function of (first step, number of steps, iterator of the host's episodes) that runs them.

        It returns mean metrics and the first step with a loss or gradient that is not finite, or -1.
        """
        strategy, run_step = self.strategy, self.step_function
        summed = run_step.summed_metrics
        names = (*summed, "gradient_norm", "learning_rate")
        replicas = strategy.num_replicas_in_sync

        def of_replica(step, *drawn):
            metrics = run_step(step, *drawn)
            # One vector of shares, so that one reduction is enough for all metrics.
            return tf.stack([metrics[n] if n in summed else metrics[n] / replicas for n in names])

        @tf.function
        def call(first, count, batches=None):
            sums, bad = tf.zeros([len(names)]), tf.constant(-1, tf.int64)
            for step in tf.range(first, first + count):
                drawn = () if batches is None else (next(batches),)
                values = strategy.reduce("SUM", strategy.run(of_replica, args=(step, *drawn)), axis=None)
                sums += values
                sound = tf.reduce_all(tf.math.is_finite(values[:-1]))
                bad = tf.where(sound | (bad >= 0), bad, step + 1)
            means = dict(zip(names, tf.unstack(sums / tf.cast(count, tf.float32))))
            return {**means, "first_bad_step": bad}

        return call

    def _time_is_up(self, max_minutes: float | None) -> bool:
        return max_minutes is not None and float(self.clock[0]) >= 60.0 * max_minutes

    def _report(self, log: RunLog, step: int, window: _Window) -> None:
        means = window.means()
        rate = window.steps * self.per_step / window.seconds
        episodes = step * self.per_step
        log.write(
            step, episodes=episodes, train_seconds=float(self.clock[0]), episodes_per_second=rate, **means
        )
        log.bar.set_postfix_str(f"loss {means['loss']:.3f} acc {means['accuracy']:.3f} {rate:.0f} episodes/s")

    def _validate(self, log: RunLog, step: int) -> None:
        self.validated_step = step
        with self.average.applied(), self._statistics_of_average(step):
            accuracies = next(iter(self.evaluator(self.validation_tasks).values()))
            mean, half_width = confidence_interval(accuracies)
            log.write(step, episodes=step * self.per_step, val_accuracy=mean, val_ci95=half_width)
            best = mean > float(self.clock[1])
            if best:
                self.clock.assign([self.clock[0], mean])
                self._save_best(step, mean)
        log.say(
            f"{step * self.per_step:>9,} episodes, {float(self.clock[0]) / 60:.1f} min: "
            f"validation {100 * mean:.2f}% +- {100 * half_width:.2f}%{', best so far' if best else ''}"
        )

    def _statistics_of_average(self, step: int):
        """A context in which the moving averages are those of the averaged parameters, put in place before.

        Those of the training come from the parameters of each step, which differ from their average by more
        the higher the rate is: a model of averaged parameters needs the statistics that these bring about.
        """
        if not self.average.shadows:
            return contextlib.nullcontext()
        first = max(0, step * self.per_step - OBSERVED_EPISODES)
        found = [
            self._observe(tf.range(first + start, first + start + OBSERVED_AT_ONCE, dtype=tf.int64))
            for start in range(0, OBSERVED_EPISODES, OBSERVED_AT_ONCE)
        ]
        layers = self.model.layer_variables
        variables = [layer[name] for layer in layers for name in ("moving_mean", "moving_square")]
        return held(variables, tf.nest.flatten(mean_of_parts(found)))

    def info(self, step: int) -> dict:
        """What a checkpoint says of itself."""
        before = self.start.manifest if self.start else {}
        return {
            "step": step,
            "episodes_trained": before.get("episodes_trained", 0) + step * self.per_step,
            "train_seconds": round(before.get("train_seconds", 0.0) + float(self.clock[0]), 1),
            "seed": self.seed,
            "method": self.model.method,
            "model": self.model.config(),
            "task": self.task._asdict(),
            "dataset": self.splits.name,
            "generated": self.model.generated,
            "config": gin.config_str(),
            "operative_config": gin.operative_config_str(),
            "hardware": hardware(),
            "versions": versions(),
            **({"start": before} if before else {}),
        }

    def _write_configuration(self) -> None:
        """Keeps what was asked for and, after the first step, everything that was in effect."""
        write_text(self.workdir / "config.gin", gin.config_str())
        write_text(self.workdir / "operative_config.gin", gin.operative_config_str())

    def _save(self, step: int) -> None:
        finite = [tf.reduce_all(tf.math.is_finite(v)) for v in self.model.trainable_variables]
        if not tf.reduce_all(finite):
            raise UserError(self._not_finite(step))
        if self.workers.is_chief:
            self.checkpoints.save(step, {"train_seconds": float(self.clock[0])})
        self.workers.progressed()

    def _save_best(self, step: int, accuracy: float) -> None:
        folder = self.workdir / "checkpoints"
        info = {**self.info(step), "val_accuracy": round(100 * accuracy, 3)}
        path = folder / f"best-{step:010d}"
        checkpoints.save_model(path, self.model.named_variables(), info)
        checkpoints.remove_others(folder, path)

    def _not_finite(self, step: int) -> str:
        newest = checkpoints.newest_sound(self.checkpoints.folder, "step")
        kept = f"the last sound checkpoint is {newest[0]}" if newest else "no checkpoint was saved before"
        return (
            f"loss, gradient or parameters are not finite at step {step:,}: lower LearningRate.rate or set "
            f"Optimizer.clip_norm; {kept}"
        )


class _Window:
    """Metrics of the calls since the last report."""

    def __init__(self):
        self.steps, self.seconds, self._sums = 0, 0.0, {}

    def add(self, steps: int, seconds: float, metrics: dict[str, float]) -> None:
        self.steps += steps
        self.seconds += seconds
        for name, value in metrics.items():
            if name == "first_bad_step":
                continue
            self._sums[name] = self._sums.get(name, 0.0) + steps * value

    def means(self) -> dict[str, float]:
        return {name: value / self.steps for name, value in self._sums.items()}


class _StopSignals:
    """While open, the first SIGINT or SIGTERM only asks for a stop; the second has its usual effect."""

    def __init__(self):
        self.asked = False
        self._before = {}

    def __enter__(self):
        for number in (signal.SIGINT, signal.SIGTERM):
            self._before[number] = signal.signal(number, self._ask)
        return self

    def __exit__(self, *_):
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _ask(self, *_):
        self.asked = True
        self.__exit__()
