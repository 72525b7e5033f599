# SPDX-License-Identifier: Apache-2.0
"""What openai-python does with the gateway: lists, completions, chats, streams, tools, schemas, errors, timeouts.

    openai_client.py BASE_URL [--embeddings]    of a model that generates, or that embeds

Ends with an assertion at the first thing that is not as with OpenAI's server.
"""
import sys
import typing

import openai
import pydantic


def completions(client, model):
    answer = client.completions.create(model=model, prompt="37+48=", max_tokens=8, temperature=0)
    assert answer.object == "text_completion" and answer.id.startswith("cmpl-"), answer
    assert answer.choices[0].text == "85" and answer.choices[0].finish_reason == "stop", answer
    assert answer.usage.completion_tokens > 0 and answer.usage.total_tokens > answer.usage.prompt_tokens, answer
    several = client.completions.create(model=model, prompt=["1+1=", "2+2="], n=2, max_tokens=8, temperature=0)
    assert [c.index for c in several.choices] == [0, 1, 2, 3], several
    assert [c.text for c in several.choices] == ["2", "2", "4", "4"], several
    scored = client.completions.create(model=model, prompt="1+1=", max_tokens=4, temperature=0, logprobs=2)
    logprobs = scored.choices[0].logprobs
    assert len(logprobs.tokens) == len(logprobs.token_logprobs) == len(logprobs.top_logprobs), logprobs
    assert "".join(logprobs.tokens).startswith("2") and logprobs.token_logprobs[0] > -1, logprobs
    text, ends, usage = "", [], None
    options = {"include_usage": True}
    for event in client.completions.create(model=model, prompt="37+48=", max_tokens=8, temperature=0, stream=True, stream_options=options):
        usage = event.usage or usage
        for choice in event.choices:
            text += choice.text
            ends += [choice.finish_reason] if choice.finish_reason else []
    assert (text, ends) == ("85", ["stop"]) and usage.completion_tokens > 0, (text, ends, usage)


def chats(client, model):
    messages = [{"role": "system", "content": "You add."}, {"role": "user", "content": "37+48="}]
    answer = client.chat.completions.create(model=model, messages=messages, max_tokens=8, temperature=0)
    assert answer.object == "chat.completion" and answer.id.startswith("chatcmpl-"), answer
    message = answer.choices[0].message
    assert (message.role, message.content, message.tool_calls) == ("assistant", "85", None), answer
    scored = client.chat.completions.create(model=model, messages=messages, max_completion_tokens=8, temperature=0, logprobs=True, top_logprobs=3)
    first = scored.choices[0].logprobs.content[0]
    assert first.bytes == list(first.token.encode()) and len(first.top_logprobs) == 3, first
    deltas = list(client.chat.completions.create(model=model, messages=messages, max_tokens=8, temperature=0, stream=True))
    assert deltas[0].choices[0].delta.role == "assistant" and deltas[0].choices[0].delta.content == "", deltas[0]
    assert all(d.choices[0].delta.role is None for d in deltas[1:]), deltas
    assert "".join(d.choices[0].delta.content or "" for d in deltas) == "85", deltas
    assert deltas[-1].choices[0].finish_reason == "stop", deltas[-1]
    parts = [{"role": "user", "content": [{"type": "text", "text": "1+1="}]}]
    assert client.chat.completions.create(model=model, messages=parts, max_tokens=8, temperature=0).choices[0].message.content == "2"


def tools(client, model):
    add = {"type": "function", "function": {"name": "add", "parameters": {"type": "object", "properties": {}}}}
    messages = [{"role": "user", "content": "1+1="}]
    answer = client.chat.completions.create(model=model, messages=messages, tools=[add], tool_choice="none", max_tokens=8, temperature=0)
    assert answer.choices[0].message.content == "2", answer
    refused(client.chat.completions.create, "tool_choice", model=model, messages=messages, tools=[add], tool_choice="required")
    called = messages + [
        {"role": "assistant", "content": None, "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "add", "arguments": "{}"}}]},
        {"role": "tool", "tool_call_id": "c1", "content": "2"},
        {"role": "user", "content": "2+2="},
    ]
    assert client.chat.completions.create(model=model, messages=called, max_tokens=8, temperature=0).choices[0].message.content == "4"


def refused(call, param, kind=openai.BadRequestError, **request):
    try:
        call(**request)
    except kind as e:
        assert e.body["param"] == param, e.body
        return e
    raise AssertionError(f"{param} was not refused")


class Item(pydantic.BaseModel):
    name: typing.Literal["red", "green"]
    count: typing.Annotated[int, pydantic.Field(ge=0, le=99)]
    more: typing.Optional["Item"] = None


def structured(client, model):
    asked = [{"role": "user", "content": "37+48="}]
    for seed in range(5):
        answer = client.chat.completions.parse(model=model, messages=asked, response_format=Item, max_tokens=400, temperature=1, seed=seed)
        assert isinstance(answer.choices[0].message.parsed, Item), answer
    form = {"type": "json_object"}
    answer = client.chat.completions.create(model=model, messages=asked, response_format=form, max_tokens=20)
    assert answer.choices[0].message.content.startswith("{"), answer


def errors(client, model):
    refused(client.completions.create, "max_tokens", model=model, prompt="x", max_tokens=-7)
    refused(client.completions.create, "model", openai.NotFoundError, model="another", prompt="x")
    refused(client.completions.create, "temperature", model=model, prompt="x", temperature=1000)
    refused(client.chat.completions.create, "messages[0].role", model=model, messages=[{"content": "x"}])
    schema = {"type": "object", "properties": {"a": {"not": {}}}}
    form = {"type": "json_schema", "json_schema": {"name": "s", "schema": schema}}
    e = refused(client.chat.completions.create, "response_format.json_schema.schema/properties/a/not", model=model, messages=[{"role": "user", "content": "x"}], response_format=form)
    assert e.status_code == 400 and e.code == "unsupported", e
    long = refused(client.completions.create, "max_tokens", model=model, prompt="x", max_tokens=1000000)
    assert long.code == "context_length_exceeded", long.code


def timeouts(client, model):
    impatient = client.with_options(timeout=0.05, max_retries=0)
    request = {"model": model, "prompt": "1+1=", "max_tokens": 1000, "extra_body": {"ignore_eos": True}}
    try:
        impatient.completions.create(**request)
    except openai.APITimeoutError:
        pass
    else:
        raise AssertionError("an answer of 1,000 tokens came within 50 ms")
    with client.completions.create(stream=True, **request) as stream:
        next(iter(stream))  # and no more of it


def embeddings(client, model):
    one = client.embeddings.create(model=model, input=[6, 7], encoding_format="float").data[0].embedding
    both = client.embeddings.create(model=model, input=[[6, 7], [5]])  # base64, which the client asks for
    assert [d.index for d in both.data] == [0, 1] and both.usage.prompt_tokens > 2, both.usage
    assert max(abs(a - b) for a, b in zip(one, both.data[0].embedding)) < 1e-6
    assert abs(sum(x * x for x in one) - 1) < 1e-4
    refused(client.embeddings.create, "dimensions", model=model, input=[5], dimensions=12345)


def main():
    client = openai.OpenAI(base_url=sys.argv[1], api_key="none", max_retries=0)
    models = client.models.list().data
    assert len(models) == 1 and models[0].object == "model", models
    model = models[0].id
    assert client.models.retrieve(model).id == model
    generating = (completions, chats, tools, structured, errors, timeouts)
    for part in (embeddings,) if sys.argv[2:] == ["--embeddings"] else generating:
        part(client, model)
        print(part.__name__, "as with OpenAI's server")


main()
