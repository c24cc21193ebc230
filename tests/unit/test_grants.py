"""Commands that an admin pastes to grant a right: safe whatever a user is called, and good for the second user, too."""

from __future__ import annotations

import shlex

import pytest

from queuer.domain.grants import binding, queue_admin


@pytest.mark.parametrize("user", ["alice", "system:serviceaccount:ci:quota", "x; rm -rf /", "o'neill $(id)"])
def test_a_user_is_one_word_of_the_command(user: str) -> None:
    words = shlex.split(binding("queuer-viewer", user, namespace="team-a"))
    assert words[:3] == ["kubectl", "create", "rolebinding"]
    assert words[4:] == ["-n", "team-a", "--clusterrole=queuer-viewer", f"--user={user}"]
    assert set(" ;$/'").isdisjoint(words[3])


def test_users_of_like_names_have_bindings_of_their_own() -> None:
    """A second binding of one name is refused with AlreadyExists."""
    names = {shlex.split(binding("queuer-viewer", user))[3] for user in ("a/b", "a-b", "a b")}
    assert len(names) == 3
    assert "queuer-viewer-a-b" in names


def test_a_second_user_gets_the_role_of_a_queue_that_is_there_already() -> None:
    """`kubectl create clusterrole` alone would fail with AlreadyExists, and nothing after `&&` would run."""
    assert queue_admin("root.a", "bob") == (
        "kubectl create clusterrole queuer-root.a --verb=get,update --resource=queues.queuer.dev "
        "--resource-name=root.a --dry-run=client -o yaml | kubectl apply -f - && "
        "kubectl create clusterrolebinding queuer-root.a-bob --clusterrole=queuer-root.a --user=bob"
    )
