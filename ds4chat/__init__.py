"""ds4chat: a terminal chat over a local llama.cpp engine, with resumable conversations."""

__version__ = "0.1.0"
