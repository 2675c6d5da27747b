"""Options of commands that write a result become a job."""

from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from graphpass.cli.job import job_options


def run(*arguments, pipeline=True, verify=False):
    jobs = []

    @click.command()
    @job_options(output="Where to write.", verify=verify, pipeline=pipeline)
    @click.option("--more", is_flag=True)
    def command(job, *, more):
        jobs.append((job, more))

    done = CliRunner().invoke(command, [*arguments])
    return done, jobs


def test_arguments_and_options_are_fields_of_a_job():
    done, ((job, more),) = run(
        "in", "out", "--verify", "--cache", "a=kv", "--weights", "share", "--if-changed", "--more"
    )
    assert done.exit_code == 0, done.output
    assert (job.model, job.output, job.verify, job.declared) == (Path("in"), Path("out"), True, ("a=kv",))
    assert (job.weights, job.if_changed, job.replace, job.dump_dir, more) == ("share", True, False, None, True)


@pytest.mark.parametrize("verify", [False, True])
def test_verification_has_a_default(verify):
    assert run("in", "-o", "out", verify=verify)[1][0][0].verify is verify


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("in", "a", "-o", "b"), "the output is given twice: as OUTPUT and with -o"),
        (("in",), "Missing argument 'OUTPUT', or option '-o'"),
        (("in", "out", "--weights", "both"), "'both' is not one of 'auto', 'share', 'copy'"),
    ],
)
def test_wrong_options_are_refused(arguments, words):
    done, jobs = run(*arguments)
    assert (done.exit_code, jobs) == (2, [])
    assert words in done.output


def test_commands_without_a_pipeline_have_fewer_options():
    assert run("in", "out", pipeline=False)[0].exit_code == 0
    assert "No such option" in run("in", "out", "--if-changed", pipeline=False)[0].output
