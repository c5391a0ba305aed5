"""What the keys of the chat screen do: each module has its keys and the part of the screen that acts on them."""
