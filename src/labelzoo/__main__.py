"""``python -m labelzoo``: the command line."""

from labelzoo.cli import main

if __name__ == "__main__":
    main()
