"""The command `caption`: captions written by another program or by a local vision-language model.

From outside: `caption`, the command.
"""

from __future__ import annotations
