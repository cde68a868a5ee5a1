"""The process that generates images for the page. It reads lines of JSON, `{"id", "words"}`, and writes lines of JSON:
messages, each step with a preview, and the end. It ends when its input is closed.
"""

from __future__ import annotations

import base64
import io
import json
import os
import sys
from typing import Any, TextIO

from mezzotint import startup

FIRST = "mezzotint-mini"
"""The model that is loaded at the start: the default of the form."""


def main(lines: TextIO, out: TextIO) -> None:
    """Processes requests one after another."""
    # `out` carries only answers; output of libraries goes to stderr
    from PIL import Image

    from mezzotint.errors import MezzotintError
    from mezzotint.tasks.sample.again import SampleRunner

    def answer(**facts: Any) -> None:
        out.write(json.dumps(facts) + "\n")
        out.flush()

    drawer = SampleRunner()
    drawer.warm(FIRST)
    answer(ready=True)
    for line in lines:
        request = json.loads(line)
        number = request["id"]

        def report_step(done: int, total: int, pixels: Any, number: int = number) -> None:
            encoded = ""
            if pixels is not None:
                image, content = Image.fromarray(pixels), io.BytesIO()
                image.thumbnail((384, 384))
                image.save(content, "WEBP", quality=70)
                encoded = base64.b64encode(content.getvalue()).decode("ascii")
            answer(id=number, step=done, of=total, image=encoded)

        try:
            drawer.run(
                request["words"],
                lambda text, number=number: answer(id=number, message=text),  # type: ignore[misc]
                report_step,
            )
            answer(id=number, done=True)
        except MezzotintError as error:
            answer(id=number, done=True, error=str(error), code=error.code)
        except Exception as error:
            answer(id=number, done=True, error=f"{type(error).__name__}: {error}", code="")


if __name__ == "__main__":
    startup.limit_spinning(os.environ, is_torch_loaded="torch" in sys.modules)
    startup.quiet_libraries()
    answers = sys.stdout
    sys.stdout = sys.stderr
    main(sys.stdin, answers)
