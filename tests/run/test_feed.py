"""The feed between jobs and engine: what it hands over, and what it knows of those under way."""

from types import SimpleNamespace
from typing import Any, cast

from batchrunner.run.feed import Feed
from batchrunner.spec.engine import EngineConfig
from tests.engine.scheduling.schedulers import request


def test_what_is_saved_of_a_request_can_be_gone_on_with() -> None:
    """One that has ended, and leaves with the next pass, is saved without its last token: that one is asked again."""
    engine: Any = SimpleNamespace(config=EngineConfig(), num_waiting=0)
    feed = Feed(engine, [], lambda job, request_id, completion: None)
    under_way, ended, fresh, one = (request([3, 4], 3, name=f"{index:032x}") for index in range(4))
    for item, tokens in ((under_way, [7, 8]), (ended, [7, 8, 9]), (one, [])):
        for token_id in tokens:
            item.append(token_id)
    assert ended.finish_reason == "length"
    feed.owners = dict.fromkeys((under_way, ended, fresh, one), cast(Any, None))
    assert [(item.request_id[-1], item.output_token_ids) for item in feed.unfinished()] == [(0, [7, 8]), (1, [7, 8])]
