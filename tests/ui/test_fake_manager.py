"""The fake manager of these tests has what the real one has."""

from __future__ import annotations

import inspect

from ds4chat.sessions.manager import SessionManager
from tests.ui.fake_manager import FakeManager

NOT_FOR_THE_SCREEN = {"engine_pid", "wait_turn"}


def test_the_fake_manager_has_the_methods_of_the_real_one_with_the_same_parameters() -> None:
    for name, member in inspect.getmembers(SessionManager):
        if name.startswith("_") or name in NOT_FOR_THE_SCREEN:
            continue
        if not callable(member):
            assert hasattr(FakeManager(), name), name
            continue
        real, fake = inspect.signature(member), inspect.signature(getattr(FakeManager, name))
        assert list(real.parameters) == list(fake.parameters), name
        for parameter in real.parameters.values():
            other = fake.parameters[parameter.name]
            assert (other.kind, other.default) == (parameter.kind, parameter.default), (name, parameter.name)
