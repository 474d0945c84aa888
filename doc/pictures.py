"""Draw the pictures of examples that the guide shows: python doc/pictures.py [EXAMPLE ...].

The pages of the guide show the figures of some examples. They are files of the repository, so that
a build that does not run the examples (``-D plot_gallery=0``) shows them too. Draw a picture anew
when its example has changed. Without names, all pictures of the guide are drawn.
"""

import io
import re
import runpy
import sys
from pathlib import Path

import matplotlib.pyplot as plt
from PIL import Image

DOC = Path(__file__).resolve().parent
PICTURES = DOC / "_static" / "examples"


def shown_in_the_guide() -> list[str]:
    """Return the names of the examples whose pictures are in the guide."""
    pages = (path.read_text(encoding="utf-8") for path in sorted(DOC.glob("guide/*.rst")))
    return sorted(set(re.findall(r"/_static/examples/(\w+)\.png", "\n".join(pages))))


def draw(name: str) -> None:
    """Run an example, and save its figure with 64 colours, which takes a third of the bytes."""
    with plt.rc_context():
        runpy.run_path(str(DOC.parent / "examples" / f"{name}.py"), run_name="__main__")
        file = io.BytesIO()
        plt.gcf().savefig(file, dpi=100)
        plt.close("all")
    picture = Image.open(file).convert("RGB").quantize(64, dither=Image.Dither.NONE)
    picture.save(PICTURES / f"{name}.png", optimize=True)


if __name__ == "__main__":
    sys.path.insert(0, str(DOC.parent))
    plt.switch_backend("agg")
    for example in sys.argv[1:] or shown_in_the_guide():
        draw(example)
