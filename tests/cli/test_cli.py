"""The command line."""

from typer.testing import CliRunner

import covshift
from covshift.cli import app


def test_version_and_help():
    run = CliRunner().invoke
    assert run(app, ["--version"]).stdout == f"covshift {covshift.__version__}\n"
    assert "covariate shift" in run(app, ["--help"]).stdout
