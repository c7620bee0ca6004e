"""Windows by the order of who knows, and what tokens cost."""

from __future__ import annotations

import pytest

from ipyagent.errors import PromptTooLong
from ipyagent.journal.events import Usage
from ipyagent.journal.protocols import ModelInfo
from ipyagent.model.api_errors import ApiErrorInfo, failure
from ipyagent.model.capabilities import LONG_BETA, Capabilities, resolve
from ipyagent.model.prices import DEAREST, PriceOverrides, at_most, cost_of, price_of

TOLD = ModelInfo(model="m", window=300_000, max_output=9_000, source="Models API")
ENVIRON = {"IPYAGENT_DEFAULT_WINDOW": "50000"}


def test_the_window_is_told_by_the_first_who_knows() -> None:
    # the window is told by the first who knows
    everything = {"setting": 10_000, "betas": (LONG_BETA,), "environ": ENVIRON}
    assert resolve("claude-opus-5-5[1m]", TOLD, **everything).window == 10_000
    del everything["setting"]
    assert resolve("claude-opus-5-5[1m]", TOLD, **everything).window == 1_000_000
    assert resolve("claude-sonnet-4-6", TOLD, **everything).window == 300_000
    assert resolve("claude-sonnet-4-6", None, **everything).window == 1_000_000
    assert resolve("claude-sonnet-4-6", None, environ=ENVIRON).window == 50_000
    assert resolve("claude-sonnet-4-6", None, environ={"IPYAGENT_DEFAULT_WINDOW": "much"}).window == 200_000
    assert resolve("claude-sonnet-5-5", None).window == 1_000_000
    assert resolve("llama", None).window == 200_000
    assert resolve("llama", None).source == "default"
    # the suffix is not part of the name
    assert resolve("claude-sonnet-4-6[1M]", None).model == "claude-sonnet-4-6"


def test_cost() -> None:
    for model, usage, dollars in [
        ("claude-sonnet-5-5", Usage(input=1_000_000), 2.0),
        ("claude-sonnet-5-5", Usage(cache_read=1_000_000), 0.2),
        ("claude-sonnet-5-5", Usage(cache_write=1_000_000), 2.5),
        ("claude-sonnet-5-5", Usage(cache_write=1_000_000, cache_write_1h=1_000_000), 4.0),
        ("claude-sonnet-5-5", Usage(cache_write=1_000_000, cache_write_1h=400_000), 0.6 * 2.5 + 0.4 * 4.0),
        ("claude-opus-5-5", Usage(output=100_000), 2.0),
        ("claude-haiku-5-5", Usage(input=100_000, output=1_000), 0.0105),
        ("claude-haiku-5-5", Usage(input=50_000, cache_read=60_000, output=1_000), 0.0305),
        ("claude-haiku-5-5-20261001", Usage(input=100_000), 0.01),
        ("practice", Usage(input=100_000), 0.0),
        ("local:/a.gguf", Usage(input=100_000), 0.0),
        ("claude-sonnet-4-6[1m]", Usage(input=1_000_000), 3.0),
    ]:
        assert cost_of(model, usage) == pytest.approx(dollars)


def test_prefixes_and_older_families_have_their_price_and_an_unknown_model_has_none() -> None:
    # prefixes and older families have their price
    for names, dollars in [
        ("anthropic/claude-sonnet-4.5 openrouter/anthropic/claude-sonnet-4-6:beta claude-sonnet-4@20250514", (3, 15)),
        ("us.anthropic.claude-haiku-4-5-20251001-v1:0 bedrock/converse/eu.anthropic.claude-haiku-4-5-v1:0", (1, 5)),
        ("claude-opus-4-20250514 claude-opus-4-1@20250805 anthropic/claude-opus-4.1 claude-3-opus-latest", (15, 75)),
        ("vertex_ai/claude-opus-4-6@default claude-opus-4-8", (5, 25)),
        ("claude-3-7-sonnet-20250219 anthropic/claude-3.5-sonnet", (3, 15)),
        ("claude-3-5-haiku@20241022", (0.8, 4)),
        ("anthropic.claude-3-haiku-20240307-v1:0", (0.25, 1.25)),
        ("claude-2.1 anthropic.claude-v2:1", (8, 24)),
    ]:
        for name in names.split():
            price = price_of(name)
            assert price is not None, name
            assert (price.input, price.output) == dollars, name
    # an unknown model has no price
    assert cost_of("llama3", Usage(input=5)) is None


@pytest.mark.parametrize("name", ["Qwen3-14B-Claude-4.5-Opus-Distill", "claude-opus-7", "qwen-haiku-4-5", "gpt-9"])
def test_what_only_has_a_familys_word_in_its_name_has_no_price_and_counts_as_the_dearest(name: str) -> None:
    assert price_of(name) is None
    assert at_most(cost_of(name, Usage(output=1_000_000)), Usage(output=1_000_000)) == DEAREST.output == 75.0


def test_a_price_that_was_told_is_taken_but_for_nonsense_and_the_users_own_comes_first() -> None:
    told = PriceOverrides()
    told.hear("s", "m", (0.5e-6, 2e-6, None, None), "OpenRouter")
    price = told.of("m", "s")
    assert (price.input, price.output, price.read, price.source) == (0.5, 2.0, 0.5, "OpenRouter")
    for nonsense in ((-1.0, -1.0), (float("nan"), 1.0), (None, 1.0), (1.0, float("inf")), (5.0, 5.0)):
        told.hear("s", "n", nonsense, "OpenRouter")
        assert told.of("n", "s") is None
    told.set({"m": [1, 3, 0.1]})
    price = told.of("m", "s")
    assert (price.input, price.output, price.read, price.write) == (1.0, 3.0, 0.1, 1.25)
    told.set({})
    assert told.of("m", "s") is not None


# ------------------------------------------------------------------ what a refusal tells

TOO_LONG = {  # product: how it says so, its window, the prompt that it counted
    "Anthropic": ("prompt is too long: 213462 tokens > 200000 maximum", 0),
    "Bedrock": ("Input is too long for requested model.", 0),
    "OpenAI": ("Your input exceeds the context window of this model. Please adjust your input and try again.", 0),
    "OpenAI chat": (
        "This model's maximum context length is 128000 tokens. However, your messages resulted in 167630 tokens. "
        "Please reduce the length of the messages.", 128_000,
    ),
    "vLLM": (
        "This model's maximum context length is 16384 tokens. However, you requested 122946 tokens (112946 in the "
        "messages, 10000 in the completion). Please reduce the length of the messages or completion.", 16_384,
    ),
    "llama.cpp": (
        "request (14429 tokens) exceeds the available context size (8192 tokens), try increasing it", 8_192,
    ),
    "LM Studio": (
        "The number of tokens to keep from the initial prompt is greater than the context length (n_keep: 13055>= "
        "n_ctx: 4096). Try to load the model with a larger context length, or provide a shorter input.", 4_096,
    ),
    "LM Studio 0.3": (
        "Trying to keep the first 111490 tokens when context the overflows. However, the model is loaded with context "
        "length of only 32768 tokens, which is not enough.", 32_768,
    ),
    "Gemini": ("The input token count (1196265) exceeds the maximum number of tokens allowed (1048575).", 1_048_575),
    "xAI": ("This model's maximum prompt length is 131072 but the request contains 537812 tokens.", 131_072),
    "Groq": ("Please reduce the length of the messages or completion.", 0),
    "OpenRouter": (
        "This endpoint's maximum context length is 65536 tokens. However, you requested about 70001 tokens (69001 of "
        "text input, 1000 in the output).", 65_536,
    ),
    "LiteLLM": ("litellm.ContextWindowExceededError: litellm.BadRequestError: too much", 0),
    "Kimi": ("Invalid request: Your request exceeded model token limit: 131072 (requested: 140000)", 131_072),
    "GLM": ("Prompt exceeds max length", 0),
    "MiniMax": ("invalid params, context window exceeds limit (2013)", 0),
    "Qwen": ("<400> InternalError.Algo.InvalidParameter: Range of input length should be [1, 30720]", 0),
    "SGLang": ("The input (40000 tokens) is longer than the model's context length (32768 tokens).", 32_768),
    "SGLang total": (
        "Requested token count exceeds the model's maximum context length of 32768 tokens. You requested a total of "
        "41000 tokens", 32_768,
    ),
    "TGI": ("`inputs` tokens + `max_new_tokens` must be <= 4096. Given: 5000 `inputs` tokens", 0),
    "Copilot": ("prompt token count of 130000 exceeds the limit of 128000", 0),
}  # fmt: skip


def test_a_prompt_that_does_not_fit_is_known_in_every_wording_and_the_window_learned() -> None:
    for product in TOO_LONG:
        words, window = TOO_LONG[product]
        told = failure(ApiErrorInfo(status=400, message=words), model="m", base_url="http://a")
        assert isinstance(told, PromptTooLong), product
        capabilities = Capabilities()
        assert not capabilities.learn("http://a", "m", words, {"max_tokens": 1_000}), product
        assert capabilities.window("http://a", "m")[0] == window, product
        assert resolve("m", None, refused=(window, "refusal")).window == (window or 200_000), product


@pytest.mark.parametrize(
    ("words", "limit", "window"),
    [
        (
            "max_tokens or max_completion_tokens is too large: 32000. This model's maximum context length is 32768 "
            "tokens and your request has 900 input tokens (32000 > 32768 - 900).", 31_804, 32_768,
        ),
        (
            "input length and `max_tokens` exceed context limit: 178959 + 64000 > 200000, decrease input length or "
            "`max_tokens` and try again", 20_977, 200_000,
        ),
        (
            "This model's maximum context length is 32768 tokens. However, you requested 34000 tokens (2000 in the "
            "messages, 32000 in the completion).", 30_704, 32_768,
        ),
        ("max_tokens: 64000 > 8192, which is the maximum allowed number of output tokens for claude-x", 8_192, 0),
        ("max_tokens is too large: 32000. This model supports at most 16384 completion tokens", 16_384, 0),
        (
            "The maximum tokens you requested exceeds the model limit of 4096. Try again with a maximum tokens value "
            "that is lower than 4096.", 4_096, 0,
        ),
    ],
)  # fmt: skip
def test_a_reply_that_does_not_fit_beside_the_prompt_is_asked_for_smaller(words: str, limit: int, window: int) -> None:
    capabilities = Capabilities()
    assert capabilities.learn("http://a", "m", words, {"max_tokens": 64_000})
    assert capabilities.largest_output("http://a", "m") == limit
    assert capabilities.window("http://a", "m")[0] == window
    assert not capabilities.learn("http://a", "m", words, {"max_tokens": limit}), "the same again helps nothing"
