"""Follow-up rebalances: when the assignor says, but no storm of them."""

from __future__ import annotations

from task_assignor.group.followups import FollowUps


def test_a_deadline_in_time_is_kept() -> None:
    followups = FollowUps(200)
    for now_ms in range(0, 10_000, 300):
        assert followups.due_ms(now_ms + 200, now_ms) == now_ms + 200
    assert followups.due_ms(None, 10_000) is None


def test_what_is_asked_for_at_once_again_and_again_comes_less_and_less_often() -> None:
    """An assignor whose deadlines had always passed was asked a hundred times a second, with a commit each time."""
    followups, now_ms, pauses = FollowUps(200), 0, []
    for _ in range(1_000):
        due_ms = followups.due_ms(-1, now_ms)
        assert due_ms is not None
        pauses.append(max(due_ms - now_ms, 0))
        now_ms += pauses[-1]
    assert pauses[:6] == [0, 200, 400, 800, 1_600, 3_200]
    assert set(pauses[10:]) == {60_000}
    assert followups.due_ms(None, now_ms) is None
    assert followups.due_ms(0, now_ms) == 0, "once is right"
    assert followups.due_ms(now_ms + 199, now_ms) == now_ms + 200, "it is nearly at once"
    assert followups.due_ms(now_ms + 5_000, now_ms) == now_ms + 5_000
    assert followups.due_ms(now_ms, now_ms) == now_ms
