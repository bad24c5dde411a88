"""Texts to token ids, by the folder's `tokenizer.json`. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec
import numpy as np

from serving.engines.base.datatypes import Tensor
from serving.engines.base.errors import InputRefused, LoadFailed, short_reason
from serving.engines.huggingface.config import TOKENIZER, FolderConfig
from serving.engines.huggingface.library import Encoding, Tokenizer

_MASKS: Final = ("[MASK]", "<mask>")
"""The mask tokens of BERT and RoBERTa, for folders that do not name theirs."""


class Tokens(msgspec.Struct, frozen=True):
    """Tokens of several texts: `feeds` are the model's inputs [texts, length], `encodings` have places and lengths."""

    feeds: dict[str, Tensor]
    encodings: Sequence[Encoding]

    @property
    def mask(self) -> Tensor:
        """Return 1 for tokens and 0 for padding."""
        return self.feeds["attention_mask"]

    @property
    def counts(self) -> Tensor:
        """Return the number of tokens of each text, without padding."""
        counts: Tensor = self.mask.sum(axis=1)
        return counts


class TextTokenizer:
    """The tokenizer of a folder; texts are cut to the model's length, and padded to the longest."""

    def __init__(self, content: bytes, config: FolderConfig, uri: str) -> None:
        """Load the tokenizer from the `content` of its file. Raises LoadFailed."""
        try:
            self._tokenizer = Tokenizer.from_buffer(content)
        except Exception as error:  # the package has no class for its errors
            raise LoadFailed(f"{uri}: {TOKENIZER} cannot be loaded ({short_reason(error)}): save it again") from error
        tokenizer = self._tokenizer
        given = tokenizer.padding or {}
        named = config.specials.get("pad_token")
        pad = tokenizer.token_to_id(named) if named else None
        pad = next((one for one in (pad, given.get("pad_id"), config.pad) if one is not None), 0)
        added = tokenizer.num_special_tokens_to_add(is_pair=True)
        if config.max_length <= added:
            raise LoadFailed(
                f"{uri}: texts of at most {config.max_length} tokens have no room for {added} special ones"
            )
        try:
            tokenizer.enable_truncation(config.max_length)
            tokenizer.enable_padding(pad_id=pad, pad_type_id=given.get("pad_type_id", 0))
        except Exception as error:  # as above
            raise LoadFailed(f"{uri}: {TOKENIZER} cannot pad with {pad} ({short_reason(error)})") from error
        masks = (config.specials.get("mask_token", ""), *_MASKS)
        self.mask_id: int | None = next((i for one in masks if (i := tokenizer.token_to_id(one)) is not None), None)

    def encode(self, texts: Sequence[str], pairs: Sequence[str] | None = None) -> Tokens:
        """Return the tokens of texts, or of pairs of texts. Raises InputRefused."""
        sent = texts if pairs is None else list(zip(texts, pairs, strict=True))
        try:
            found = self._tokenizer.encode_batch(sent)
        except Exception as error:  # as above
            raise InputRefused(f"the text has no tokens: {short_reason(error)}") from error
        feeds = {
            "input_ids": np.array([one.ids for one in found], np.int64),
            "attention_mask": np.array([one.attention_mask for one in found], np.int64),
            "token_type_ids": np.array([one.type_ids for one in found], np.int64),
        }
        return Tokens(feeds, found)

    def text_of(self, ids: Sequence[int]) -> str:
        """Return the text of token ids, with special tokens left out."""
        text: str = self._tokenizer.decode(list(ids))
        return text

    def token_of(self, token: int) -> str:
        """Return a token as the vocabulary has it; "" for an id that it does not have."""
        return self._tokenizer.id_to_token(token) or ""
