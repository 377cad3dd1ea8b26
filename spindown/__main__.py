"""``python -m spindown``: the command, where nothing has put it on the PATH."""

from spindown.cli.main import main

if __name__ == "__main__":
    main()
