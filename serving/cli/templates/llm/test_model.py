"""Test the deployed Model: `knodel deploy -f model.yaml --wait`, then `pytest`."""

from ask import MODEL, client

ASKED = {"model": MODEL, "messages": [{"role": "user", "content": "Name three colours."}], "max_tokens": 8}


def test_the_model_is_listed():
    assert MODEL in [one.id for one in client().models.list()]


def test_a_question_has_an_answer():
    answer = client().chat.completions.create(**ASKED)

    assert answer.choices[0].message.content
    assert 0 < answer.usage.completion_tokens <= 8


def test_an_answer_comes_in_parts():
    parts = [part for part in client().chat.completions.create(**ASKED, stream=True) if part.choices]

    assert len(parts) > 1
