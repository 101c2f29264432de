"""The set-up layer: environment defaults, pins, which Keras, how programs end, the making of environments."""

import os
import re
import subprocess
import sys
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
REQUIREMENTS = ("requirements.txt", "requirements-latest.txt")


def run(command, **variables):
    """Runs a command in the project's folder with these environment variables; None removes one."""
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith("HYPERTRANSFORMER_")
    }
    for name, value in variables.items():
        environment.pop(name, None)
        if value is not None:
            environment[name] = str(value)
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120)


def run_python(code, **variables):
    return run([sys.executable, "-c", code], **variables)


def pins(file):
    """{package: version} of a requirements file, for the lines whose markers hold on CPython on Linux."""
    lines = (ROOT / file).read_text().splitlines()
    requirements = [line.split(";")[0].strip() for line in lines if line and not line.startswith("#")]
    return dict(requirement.split("==") for requirement in requirements)


def major_minor(version):
    return tuple(int(part) for part in version.split(".")[:2])


def test_importing_the_package_sets_defaults_and_keeps_the_users_values():
    code = "import os, hypertransformer_tf; print(os.environ['TF_ENABLE_ONEDNN_OPTS'])"
    assert run_python(code, TF_ENABLE_ONEDNN_OPTS=None).stdout.strip() == "1"
    assert run_python(code, TF_ENABLE_ONEDNN_OPTS="0").stdout.strip() == "0"


def test_importing_the_package_does_not_import_tensorflow():
    result = run_python("import sys, hypertransformer_tf; print('tensorflow' in sys.modules)")
    assert result.stdout.strip() == "False", result.stderr


def test_keras_is_keras_2_on_every_tensorflow():
    from hypertransformer_tf.backend import keras, tf

    assert keras.__version__.startswith("2.")
    assert major_minor(keras.__version__) == major_minor(tf.__version__)


@pytest.mark.parametrize("file", REQUIREMENTS)
def test_every_requirement_is_pinned_exactly(file):
    pinned = re.compile(
        r'[a-z0-9-]+==[0-9][a-z0-9.]*(; [a-z_]+ [=!<>]+ "[^"]+"( (and|or) [a-z_]+ [=!<>]+ "[^"]+")?)?'
    )
    lines = [line for line in (ROOT / file).read_text().splitlines() if line and not line.startswith("#")]
    assert [line for line in lines if not pinned.fullmatch(line)] == []


def test_pins_of_the_first_stack_keep_its_bounds():
    versions = pins("requirements.txt")
    assert versions["tensorflow"] == versions["tensorflow-cpu"] == "2.15.1"
    assert major_minor(versions["keras"]) == (2, 15)
    assert major_minor(versions["numpy"]) < (2, 0)
    assert major_minor(versions["protobuf"]) < (5, 0)
    assert major_minor(versions["tensorflow-metadata"]) < (1, 18)


def test_pins_of_the_newest_stack_match_each_other():
    versions = pins("requirements-latest.txt")
    assert major_minor(versions["tensorflow"]) == major_minor(versions["tf-keras"])
    assert "tensorflow-cpu" not in versions and "tensorflow-addons" not in versions


def test_a_users_mistake_ends_a_program_in_one_line_with_exit_code_2():
    result = run_python(
        "from hypertransformer_tf.errors import UserError, run_program\n"
        "def main(argv):\n"
        "    raise UserError('no folder images:\\n  make it or pass --data_dir')\n"
        "run_program(main)\n"
    )
    assert result.returncode == 2
    assert result.stderr == "error: no folder images: make it or pass --data_dir\n"
    assert result.stdout == ""


def test_a_fault_of_ours_keeps_its_traceback():
    result = run_python("from hypertransformer_tf.errors import run_program\nrun_program(lambda argv: 1 / 0)")
    assert result.returncode == 1
    assert "ZeroDivisionError" in result.stderr


def environment_script(*arguments, **variables):
    return run(["bash", "scripts/environment.sh", *arguments], **variables)


@pytest.fixture
def own_environment(tmp_path):
    """An environment that its user made, without pip: nothing can be installed into it."""
    folder = tmp_path / "own environment"
    venv.create(folder, with_pip=False, symlinks=True)
    return folder


def mark_as_installed(folder, file):
    version = ".".join(str(part) for part in sys.version_info[:2])
    text = f"# Python {version}\n" + (ROOT / file).read_text()
    (folder / ".hypertransformer-requirements").write_text(text)


@pytest.mark.parametrize("file", REQUIREMENTS)
def test_an_environment_whose_requirements_are_installed_is_used_as_it_is(own_environment, file):
    mark_as_installed(own_environment, file)
    result = environment_script(
        HYPERTRANSFORMER_VENV=own_environment, HYPERTRANSFORMER_REQUIREMENTS=ROOT / file, PATH=os.defpath
    )
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.strip() == str(own_environment / "bin" / "python")


def test_another_tensorflow_is_another_installation(own_environment):
    mark_as_installed(own_environment, "requirements.txt")
    result = environment_script(
        HYPERTRANSFORMER_VENV=own_environment,
        HYPERTRANSFORMER_REQUIREMENTS=ROOT / "requirements.txt",
        HYPERTRANSFORMER_TENSORFLOW="tensorflow[and-cuda]",
    )
    assert result.returncode == 2  # it set out to install, and there is no pip
    assert "installing requirements.txt" in result.stderr
    assert not (own_environment / ".hypertransformer-requirements").exists()
    wanted = (own_environment / ".hypertransformer-requirements.partial").read_text()
    assert "\ntensorflow[and-cuda]==2.15.1; sys_platform" in wanted and "tensorflow-cpu" not in wanted


def test_a_folder_that_is_no_environment_is_refused_and_kept(tmp_path):
    (tmp_path / "thesis.txt").write_text("the only copy")
    result = environment_script(HYPERTRANSFORMER_VENV=tmp_path, HYPERTRANSFORMER_PYTHON=sys.executable)
    assert result.returncode == 2
    assert result.stderr.startswith(f"error: {tmp_path} is no environment") and result.stderr.count("\n") == 1
    assert (tmp_path / "thesis.txt").read_text() == "the only copy"


@pytest.mark.parametrize(
    ("variable", "value"),
    [("HYPERTRANSFORMER_PYTHON", "/no/such/python"), ("HYPERTRANSFORMER_REQUIREMENTS", "/no/such/file")],
)
def test_a_variable_that_names_nothing_is_refused_in_one_line(tmp_path, variable, value):
    result = environment_script(**{"HYPERTRANSFORMER_VENV": tmp_path / "new", variable: value})
    assert result.returncode == 2
    assert variable in result.stderr and value in result.stderr and result.stderr.count("\n") == 1
    assert not (tmp_path / "new").exists()


def test_a_python_without_the_venv_module_is_named_with_the_remedy(tmp_path):
    (tmp_path / "bare").write_text(
        f'#!/bin/sh\nexec "{sys.executable}" "$1" -c "$(cat "{tmp_path}/block")$3"\n'
    )
    (tmp_path / "block").write_text("import sys\nsys.modules['ensurepip'] = None\n")
    (tmp_path / "bare").chmod(0o755)
    result = environment_script("--find", str(tmp_path / "bare"))
    assert result.returncode == 2
    assert "lacks the venv module" in result.stderr and "-venv" in result.stderr
