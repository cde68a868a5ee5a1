"""From an image or a clip to pixels: decoding, colour, resizing, frames.

From outside: `decoding`, `colour`, `clip_files`, `clip_transforms`, `timeouts`.
"""
