"""`python -m collage_core.cli`: the `collage` command where no script is installed."""

from collage_core.cli import main

if __name__ == "__main__":
    main(prog_name="collage")
