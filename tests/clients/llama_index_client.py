# SPDX-License-Identifier: Apache-2.0
"""What LlamaIndex does with the gateway through OpenAILike: completions, chats and their streams.

    llama_index_client.py BASE_URL
"""
import sys

import openai
from llama_index.core.llms import ChatMessage
from llama_index.llms.openai_like import OpenAILike

url = sys.argv[1]
model = openai.OpenAI(base_url=url, api_key="none").models.list().data[0].id
options = {"model": model, "api_base": url, "api_key": "none", "temperature": 0, "max_tokens": 8, "context_window": 512}
plain = OpenAILike(is_chat_model=False, **options)
assert plain.complete("37+48=").text == "85"
assert list(plain.stream_complete("37+48="))[-1].text == "85"
chat = OpenAILike(is_chat_model=True, **options)
messages = [ChatMessage(role="system", content="You add."), ChatMessage(role="user", content="37+48=")]
assert chat.chat(messages).message.content == "85"
assert list(chat.stream_chat(messages))[-1].message.content == "85"
print("LlamaIndex: completions, chats, streams")
