"""The command `caption`: captions written by another program or by a local vision-language model."""

from __future__ import annotations
