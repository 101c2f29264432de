"""gin files of the project and how configurations are read."""

import gin
import pytest
from conftest import ROOT

from hypertransformer_tf import configuration
from hypertransformer_tf.errors import UserError
from hypertransformer_tf.models.hypertransformer import HyperTransformer
from hypertransformer_tf.training.loop import Task


@pytest.fixture(autouse=True)
def clean():
    yield
    gin.clear_config()


@pytest.mark.parametrize("name", sorted(path.name for path in (ROOT / "gin").glob("*.gin")))
def test_every_gin_file_describes_a_model_from_any_folder(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    configuration.load([f"gin/{name}"])
    model = HyperTransformer(way=Task().way)
    assert model.cnn.num_parameters > 500


def test_omniglot_is_the_papers_recipe():
    configuration.load(["gin/omniglot.gin"])
    assert Task() == (20, 1, 60, 0, True)
    model = HyperTransformer(way=20).config()
    expected = {
        "channels": 8,
        "embedding_dim": 32,
        "transformer_layers": 3,
        "heads": 2,
        "key_query": 1.0,
        "num_learned_layers": 0,
        "allocation": "output",
        "shared_features": 32,
        "shared_layers": 4,
        "shared_padding": "same",
        "initialization": "random",
    }
    assert {name: model[name] for name in expected} == expected
    for name, value in (
        ("Optimizer.kind", "sgd"),
        ("LearningRate.rate", 0.02),
        ("train.episodes", 4_000_000),
        ("TrainingStep.episodes_per_step", 1),
    ):
        assert gin.query_parameter(name) == value


def test_the_fast_recipe_trains_the_same_model_but_for_its_start_and_block_order():
    models = []
    for name in ("omniglot", "omniglot_fast"):
        configuration.load([f"gin/{name}.gin"])
        config = HyperTransformer(way=20).config()
        models.append({k: v for k, v in config.items() if k not in ("initialization", "block_order")})
    assert models[0] == models[1]


def test_bindings_win_over_files_and_includes_are_found_beside_the_file(tmp_path):
    (tmp_path / "base.gin").write_text("HyperTransformer.channels = 4\nTask.way = 7\n")
    (tmp_path / "own.gin").write_text('include "base.gin"\nTask.way = 6\n')
    configuration.load([str(tmp_path / "own.gin")], ["HyperTransformer.channels = 12"])
    assert Task().way == 6 and HyperTransformer().config()["channels"] == 12


def test_a_binding_that_nothing_uses_is_named():
    configuration.load_text("Task.way = 7\nLearningRate.rate = 0.1\n")
    Task()
    with pytest.raises(UserError, match="LearningRate.rate has no effect"):
        configuration.check_all_used()


@pytest.mark.parametrize("text", ["Task.way =", "Task.ways = 3", "Tusk.way = 3", "include 'nowhere.gin'"])
def test_mistakes_are_one_line(text):
    with pytest.raises(UserError, match="^configuration: [^\n]+$"):
        configuration.load_text(text)
