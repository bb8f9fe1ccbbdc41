"""`python -m collage.cli`: the `collage` command where no script is installed."""

from collage.cli import main

if __name__ == "__main__":
    main(prog_name="collage")
