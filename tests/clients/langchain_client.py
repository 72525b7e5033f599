# SPDX-License-Identifier: Apache-2.0
"""What LangChain does with the gateway: a chain, a stream, a batch, a completion.

    langchain_client.py BASE_URL
"""
import sys

import openai
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate
from langchain_openai import ChatOpenAI, OpenAI

url = sys.argv[1]
model = openai.OpenAI(base_url=url, api_key="none").models.list().data[0].id
chat = ChatOpenAI(model=model, base_url=url, api_key="none", temperature=0, max_tokens=8)
chain = ChatPromptTemplate.from_messages([("system", "You add."), ("human", "{a}+{b}=")]) | chat | StrOutputParser()
assert chain.invoke({"a": 37, "b": 48}) == "85"
assert "".join(chain.stream({"a": 1, "b": 1})) == "2"
assert chain.batch([{"a": n, "b": n} for n in range(1, 5)]) == ["2", "4", "6", "8"]
answer = chat.invoke("2+2=")
assert answer.response_metadata["finish_reason"] == "stop" and answer.usage_metadata["output_tokens"] > 0, answer
assert OpenAI(model=model, base_url=url, api_key="none", temperature=0, max_tokens=8).invoke("37+48=") == "85"
print("LangChain: chains, streams, batches, completions")
