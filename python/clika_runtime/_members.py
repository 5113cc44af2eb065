"""Members written in Python for the classes that C++ defines."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def member_of(*classes: type) -> Callable[[Any], Any]:
    """Makes the function, property or static method below it a member of the compiled `classes`."""

    def attach(member: Any) -> Any:
        function = member
        if isinstance(member, property):
            function = member.fget
        elif isinstance(member, staticmethod):
            function = member.__func__
        for cls in classes:
            function.__qualname__ = f"{cls.__name__}.{function.__name__}"
            setattr(cls, function.__name__, member)
            if function.__name__ == "__init__":
                cls.__doc__ = function.__doc__
        return member

    return attach
