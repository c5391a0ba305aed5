"""Tools a model may call: a few built in, and those of MCP servers. Must not know: sessions, the engine, the screen."""
