"""What the transcript is made of: messages, notices and rules, each painting itself into cached lines.

An entry paints for one `Page` (a width and a palette) and keeps the lines until the page or its content
changes. Nothing here is a widget: the transcript draws the lines and asks for new ones.
"""

from ds4chat.ui.entries.base import Entry, NoteEntry, RuleEntry
from ds4chat.ui.entries.message import MessageEntry, UserEntry
from ds4chat.ui.entries.page import Page
from ds4chat.ui.entries.reply import ReplyEntry
from ds4chat.ui.entries.summary import SummaryEntry, SummaryGrowingEntry
from ds4chat.ui.entries.thought import Memory
from ds4chat.ui.entries.tool import ToolEntry

__all__ = [
    "Entry",
    "Memory",
    "MessageEntry",
    "NoteEntry",
    "Page",
    "ReplyEntry",
    "RuleEntry",
    "SummaryEntry",
    "SummaryGrowingEntry",
    "ToolEntry",
    "UserEntry",
]
