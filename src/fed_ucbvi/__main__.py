"""``python -m fed_ucbvi`` is ``fed-ucbvi``."""

from fed_ucbvi.command_line import main

if __name__ == "__main__":  # not when tools look at all modules
    main()
