"""`python -m queuer`: the same program as the `queuer` command, for places where no script is installed."""

from queuer.cli.main import run

if __name__ == "__main__":
    run()
