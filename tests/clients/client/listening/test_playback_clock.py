from sonorant.client.listening.playback_clock import PlaybackClock
from tests.fakes import FakeClock


def test_audio_is_played_in_real_time() -> None:
    now = FakeClock()
    clock = PlaybackClock(now)
    assert clock.played_ms("a") == 0
    clock.add("a", 0.2)
    clock.add("a", 0.3)
    now.now_s += 0.1
    assert clock.played_ms("a") == 100
    now.now_s += 9
    assert clock.played_ms("a") == 500
    clock.add("a", 0.5)
    now.now_s += 0.1
    assert clock.played_ms("a") == 600
    clock.forget("a")
    assert clock.played_ms("a") == 0


def test_turns_follow_one_another() -> None:
    now = FakeClock()
    clock = PlaybackClock(now)
    clock.add("a", 1.0)
    clock.add("b", 1.0)
    now.now_s += 0.5
    assert (clock.played_ms("a"), clock.played_ms("b")) == (500, 0)
    now.now_s += 0.7
    assert (clock.played_ms("a"), clock.played_ms("b")) == (1000, 200)
    clock.drop()
    clock.add("c", 1.0)
    now.now_s += 0.1
    assert clock.played_ms("c") == 100


def test_a_player_may_begin_later() -> None:
    now = FakeClock()
    clock = PlaybackClock(now)
    clock.add("a", 1.0)
    now.now_s += 0.3
    clock.playback_started()
    assert clock.played_ms("a") == 0
    now.now_s += 0.5
    assert clock.played_ms("a") == 500
    now.now_s += 5
    clock.playback_started()  # another turn: audio that was already played does not move
    assert clock.played_ms("a") == 1000


def test_gaps_make_the_rest_late() -> None:
    now = FakeClock()
    clock = PlaybackClock(now)
    assert clock.late_s("a") == 0
    clock.add("a", 1.0)
    assert clock.late_s("a") == 0
    now.now_s += 1.25
    assert clock.late_s("a") == 0.25
    clock.add("a", 1.0)
    now.now_s += 0.5
    assert clock.late_s("a") == 0.25
