"""The chat screen's keys. None of them is one that terminals keep for themselves or cannot tell from
another.
"""

from __future__ import annotations

from textual.binding import Binding, BindingType


def _key(key: str, action: str, description: str, id: str, tooltip: str, *, show: bool = False) -> Binding:
    return Binding(key, action, description, id=id, tooltip=tooltip, show=show)


CHAT_BINDINGS: list[BindingType] = [
    _key("escape", "stop", "Stop", "chat.stop", "Stop the reply; what was written stays.", show=True),
    _key("ctrl+n", "new_chat", "New", "chat.new", "Start a new chat.", show=True),
    _key("ctrl+o", "switch", "Open", "chat.switch", "Find a chat by a few letters of its title.", show=True),
    _key("ctrl+b", "toggle_sidebar", "Chats", "chat.sidebar", "Show or hide the list of chats.", show=True),
    _key(
        "ctrl+g",
        "continue_reply",
        "Continue",
        "chat.continue",
        "Go on with a reply that was cut off.",
        show=True,
    ),
    _key("f5", "fork", "Fork", "chat.fork", "Go on in a copy of this chat."),
    _key("f1", "help", "Help", "chat.help", "All keys.", show=True),
    _key("f2", "focus_list", "To the list", "chat.list", "Go to the list of chats; 1 to 9 there open one."),
    _key("f3,alt+up", "step(-1)", "Newer chat", "chat.newer", "The chat above in the list (also Alt+Up)."),
    _key("f4,alt+down", "step(1)", "Older chat", "chat.older", "The chat below in the list (also Alt+Down)."),
    *(
        _key(f"alt+{n}", f"number({n})", f"Chat {n}", f"chat.number{n}", f"Open chat number {n} of the list.")
        for n in range(1, 10)
    ),
    _key("f9", "rename", "Rename", "chat.rename", "Give this chat another title."),
    _key("f8", "delete", "Delete", "chat.delete", "Delete this chat, after asking."),
    _key("pageup", "scroll_page(-1)", "Page up", "chat.pageup", "Scroll the chat up by a page."),
    _key("pagedown", "scroll_page(1)", "Page down", "chat.pagedown", "Scroll the chat down by a page."),
    _key("ctrl+up", "scroll_lines(-3)", "Scroll up", "chat.up", "Scroll the chat up a little."),
    _key("ctrl+down", "scroll_lines(3)", "Scroll down", "chat.down", "Scroll the chat down a little."),
    _key("ctrl+home", "scroll_to_start", "To the start", "chat.start", "Go to the first message."),
    _key("ctrl+end", "scroll_to_end", "To the end", "chat.end", "Go to the end, and follow the reply."),
]
