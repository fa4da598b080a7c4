from headway.core.errors import EngineUnavailable, RequestFailed
from headway.core.events import Emission, Finish
from headway.serving.emission_stream import EmissionStream


def make(limit: int = 4) -> tuple[EmissionStream, list[str]]:
    cancels: list[str] = []
    return EmissionStream(1, limit, cancels.append), cancels


def token(i: int, finish: Finish | None = None) -> Emission:
    return Emission(id=1, tokens=[i], finish=finish)


def test_gives_in_order_and_tells_of_each() -> None:
    stream, _ = make()
    news: list[None] = []
    stream.on_news = lambda: news.append(None)
    stream.put(token(1))
    stream.put(token(2))
    stream.put(token(3))
    assert len(news) == 3
    assert [stream.take(2), stream.take(2), stream.take(2)] == [[token(1), token(2)], [token(3)], []]


def test_cancels_once_and_not_after_the_end() -> None:
    stream, cancels = make()
    stream.close("disconnect")
    stream.close("again")
    assert cancels == ["disconnect"]
    ended, cancels = make()
    ended.put(token(1, Finish.LENGTH))
    ended.close("disconnect")
    assert cancels == []


def test_overflow_fails_this_stream_and_frees_its_buffer() -> None:
    stream, cancels = make(limit=3)
    calls: list[None] = []
    stream.on_overflow = lambda: calls.append(None)
    for i in range(10):
        stream.put(token(i))
    assert cancels == ["slow reader"] and len(calls) == 1
    assert stream.take(10) == []
    assert isinstance(stream.error, RequestFailed) and "slow" in stream.error.message


def test_what_came_before_a_failure_is_still_read() -> None:
    stream, _ = make()
    stream.put(token(1))
    stream.fail(EngineUnavailable("gone"))
    stream.put(token(2))
    assert stream.take(10) == [token(1)]
    assert isinstance(stream.error, EngineUnavailable)
