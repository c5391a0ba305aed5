"""The child that speaks the engine's protocol to the chat and HTTP to an OpenAI-compatible server."""
