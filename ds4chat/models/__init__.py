"""Models as files: which there are, what they say of themselves, and how one comes here from the Hugging Face hub.

Nothing here loads a model, and only `hub` and `pull` use the network, when the user asks for it by `models pull`.
"""
