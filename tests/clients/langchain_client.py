"""What LangChain does with the gateway: a chain, a stream, a batch, and embeddings where they are served.

    langchain_client.py BASE_URL [--embeddings BASE_URL]
"""
import sys

import openai
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate
from langchain_openai import ChatOpenAI, OpenAI, OpenAIEmbeddings

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
if len(sys.argv) > 2:
    served = openai.OpenAI(base_url=sys.argv[3], api_key="none").models.list().data[0].id
    # Without a tokenizer of its own for this model it sends texts.
    vectors = OpenAIEmbeddings(model=served, base_url=sys.argv[3], api_key="none", check_embedding_ctx_length=False)
    both = vectors.embed_documents(["a text", "another"])
    assert len(both) == 2 and len(both[0]) == len(vectors.embed_query("a text"))
print("LangChain: chains, streams, batches, completions")
