"""`ds4chat bench`: what checkpoints cost and save on this machine, with this model.

The measuring happens in a child process, `ds4chat.engine.bench`; here is what asks for it and what shows it.
"""
