"""The process that draws for the page: lines of JSON in, `{"id", "words"}`, and lines of JSON out, of what is said,
each step with a picture on the way, and the end. It ends when nobody writes to it any more.
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
"""The model that is open before anybody asks: the form's first."""


def main(lines: TextIO, out: TextIO) -> None:
    """Follows requests one after another."""
    # what libraries print goes elsewhere: `out` carries answers alone
    from PIL import Image

    from mezzotint.errors import MezzotintError
    from mezzotint.tasks.sample.again import Drawer

    def answer(**facts: Any) -> None:
        out.write(json.dumps(facts) + "\n")
        out.flush()

    drawer = Drawer()
    drawer.warm(FIRST)
    answer(ready=True)
    for line in lines:
        request = json.loads(line)
        number = request["id"]

        def seen(done: int, total: int, pixels: Any, number: int = number) -> None:
            picture = ""
            if pixels is not None:
                image, content = Image.fromarray(pixels), io.BytesIO()
                image.thumbnail((384, 384))
                image.save(content, "WEBP", quality=70)
                picture = base64.b64encode(content.getvalue()).decode("ascii")
            answer(id=number, step=done, of=total, picture=picture)

        try:
            drawer.draw(request["words"], lambda text, number=number: answer(id=number, said=text), seen)  # type: ignore[misc]
            answer(id=number, done=True)
        except MezzotintError as error:
            answer(id=number, done=True, error=str(error), code=error.code)
        except Exception as error:
            answer(id=number, done=True, error=f"{type(error).__name__}: {error}", code="")


if __name__ == "__main__":
    startup.limit_spinning(os.environ, is_torch_loaded="torch" in sys.modules)
    startup.quiet_libraries()
    own = sys.stdout
    sys.stdout = sys.stderr
    main(sys.stdin, own)
