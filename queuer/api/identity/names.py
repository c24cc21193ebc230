"""Users and groups that the configuration names are told to who administers the queue, all else to everybody."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from queuer.api.identity.rights import Asker

_PEOPLE = ("user", "group")


def names_people(access: Mapping[str, Any], placement: Iterable[Mapping[str, Any]]) -> bool:
    """Whether users or groups are in it. `access` lists names, under every key."""
    listed = any(isinstance(value, list | tuple) and value for value in access.values())
    return listed or any(key in rule for rule in placement for key in _PEOPLE)


def nameless(said: Mapping[str, Any]) -> dict[str, Any]:
    """A queue as plain data (`access`, `placement`) without the people that it names."""
    found = dict(said)
    if "access" in said:
        found["access"] = {key: value for key, value in said["access"].items() if not isinstance(value, list)}
    if "placement" in said:
        found["placement"] = [rule for rule in said["placement"] if not any(key in rule for key in _PEOPLE)]
    return found


async def masked_for(asker: Asker, queues: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Queues by path as this caller may have them. It asks for rights, so hold no connection."""
    naming = [
        path
        for path, said in queues.items()
        if names_people(said.get("access", {}), said.get("placement", ()))
    ]
    own = await asker.administered(naming)
    return {
        path: nameless(said) if path in naming and path not in own else dict(said)
        for path, said in queues.items()
    }
