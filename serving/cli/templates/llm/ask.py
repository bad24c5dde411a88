"""Ask the deployed Model by OpenAI's SDK: python ask.py TEXT. $OPENAI_BASE_URL sets another address."""

import os
import sys

from openai import OpenAI

MODEL = "{{name}}"
HERE = "http://127.0.0.1:8080/openai/v1"  # of `knodel up`


def client() -> OpenAI:
    """Return a client of the platform."""
    return OpenAI(base_url=os.environ.get("OPENAI_BASE_URL", HERE), api_key=os.environ.get("OPENAI_API_KEY", "none"))


def main() -> None:
    """Print the answer while it is generated."""
    messages = [{"role": "user", "content": " ".join(sys.argv[1:])}]
    for part in client().chat.completions.create(model=MODEL, messages=messages, stream=True):
        print(part.choices[0].delta.content or "" if part.choices else "", end="", flush=True)
    print()


if __name__ == "__main__":
    main()
