"""After os.fork() the child leaves what it inherited: it closes its copies of the descriptors, and sends nothing on
them.
"""

from __future__ import annotations

import os
import weakref
from typing import Protocol


class Forkable(Protocol):
    def _leave_parent(self) -> None: ...


_living: weakref.WeakSet[Forkable] = weakref.WeakSet()


def tell_after_fork(one: Forkable) -> None:
    _living.add(one)


def _in_child() -> None:
    for one in list(_living):
        one._leave_parent()


os.register_at_fork(after_in_child=_in_child)
