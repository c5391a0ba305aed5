"""The chat screen. It knows the session manager, its events and the session types, and nothing below them."""
