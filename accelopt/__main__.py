"""`python -m accelopt`: the `accelopt` command."""

from accelopt.cli import main

if __name__ == "__main__":
    main()
