"""`python -m ds4chat`."""

from ds4chat.cli import main

if __name__ == "__main__":
    main()
