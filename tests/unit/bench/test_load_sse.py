"""The token counter of an event stream, wherever the network cuts it."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from headway.bench.load_sse import SseCounter


def chunk(text: str | None, *, finish: str = "null", usage: str = "null", space: str = "") -> bytes:
    """One event as servers write it; `text` None: a role-only chunk."""
    delta = f'"role":{space}"assistant"' if text is None else f'"content":{space}"{text}"'
    return (
        f'data: {{"id":"x","choices":{space}[{{"index":0,"delta":{space}{{{delta}}},"logprobs":null,'
        f'"finish_reason":{finish}}}],"usage":{usage}}}\n\n'
    ).encode()


USAGE = b'data: {"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":5,"total_tokens":12}}\n\n'
STREAM = b"".join(
    [
        b"\xef\xbb\xbf: keep-alive\n\n",
        chunk(None),
        chunk(""),
        chunk("Hello"),
        b": keep-alive\n\n",
        chunk(r"\"content\":\"", space=" "),
        chunk("wörld\\n").replace(b"\n\n", b"\r\n\r\n"),
        b'event: message\r\nid: 4\r\ndata: {"choices":[{"index":0,\r\ndata: "delta":{"content":"two lines"}}]}\r\n\r\n',
        b'data:{"choices":[{"index":0,"delta":{"content":"old mac"}}]}\r\r',
        chunk("", finish='"length"'),
        USAGE,
        b"data: [DONE]\n\n",
    ]
)


def read(pieces: list[bytes], *, chat: bool = True) -> SseCounter:
    """The n-th piece comes at second n."""
    counter = SseCounter(chat=chat)
    for number, piece in enumerate(pieces):
        counter.feed(piece, float(number))
    counter.close(float(len(pieces)))
    return counter


def counts(counter: SseCounter) -> tuple[object, ...]:
    c = counter
    return c.chunks, c.finish, c.done, c.error, c.prompt_tokens, c.completion_tokens, len(c.gaps)


def test_only_chunks_with_text_count() -> None:
    assert counts(read([STREAM])) == (5, True, True, None, 7, 5, 4)


@given(st.sets(st.integers(0, len(STREAM))))
def test_cuts_change_nothing(cuts: set[int]) -> None:
    edges = [0, *sorted(cuts), len(STREAM)]
    counter = read([STREAM[a:b] for a, b in pairwise(edges)])
    assert counts(counter) == counts(read([STREAM]))
    assert sum(counter.gaps) == counter.last - counter.first


def test_a_byte_at_a_time() -> None:
    assert counts(read([STREAM[i : i + 1] for i in range(len(STREAM))])) == counts(read([STREAM]))


def test_times_are_those_of_chunks_with_text() -> None:
    counter = read([chunk(None), b": ping\n\n", chunk("a"), b": ping\n\n", chunk("b"), USAGE, b"data: [DONE]\n\n"])
    assert (counter.first, counter.last, list(counter.gaps)) == (2.0, 4.0, [2.0])


def test_usage_in_every_chunk_keeps_the_last() -> None:
    usage = '{"prompt_tokens":3,"completion_tokens":%d}'
    counter = read([chunk("a", usage=usage % 1), chunk("b", finish='"stop"', usage=usage % 2)])
    assert counts(counter) == (2, True, False, None, 3, 2, 1)


def test_completions_count_text() -> None:
    event = b'data: {"choices":[{"index":0,"text":%s,"logprobs":null,"finish_reason":%s}]}\n\n'
    counter = read([event % (b'"a"', b"null"), event % (b'""', b"null"), event % (b'"b"', b'"stop"')], chat=False)
    assert counts(counter)[:3] == (2, True, False)


def test_thinking_and_tool_calls_are_tokens_too() -> None:
    deltas = [b'{"reasoning_content":"hm"}', b'{"tool_calls":[{"index":0}]}', b'{"refusal":"no"}', b'{"tool_calls":[]}']
    assert read([b'data: {"choices":[{"delta":%s}]}\n\n' % delta for delta in deltas]).chunks == 3


def test_errors() -> None:
    counter = read([chunk("a"), b'data: {"error":{"message":"boom","code":"engine_lost"}}\n\n', b"data: [DONE]\n\n"])
    assert (counter.chunks, counter.error, counter.done) == (1, "engine_lost: boom", True)
    assert read([b'event: error\ndata: {"detail":"boom"}\n\n']).error == "boom"
    assert read([b'event: error\n\ndata: {"choices":[]}\n\n']).error is None  # an event without data is none
    assert read([b"data: {oops\n\n"]).error == "not JSON"
    assert read([b"data: 1\n\n"]).error == "not an object"


def test_an_event_without_its_blank_line_counts_at_the_end() -> None:
    assert read([chunk("a"), b"data: [DONE]"]).done
