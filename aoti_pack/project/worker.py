"""One model compiled in a process of its own: no module of another model's recipe is there, and a crash ends it alone.

Run as `python -P -c BOOTSTRAP ROOT RESULT`, with the request as JSON on stdin; the answer is written to RESULT.
"""

from __future__ import annotations

import json
import sys
import time
import traceback
from pathlib import Path
from typing import Any

from aoti_pack.errors import ProofError, UserError
from aoti_pack.progress import Progress

# aoti_pack is found where the parent has it, behind everything else.
BOOTSTRAP = "import sys; sys.path.append(sys.argv[1]); from aoti_pack.project.worker import main; main()"
STEP = "step: "


def main() -> None:
    """Compile what stdin asks for, and write what came of it to the file that is the last argument."""
    Path(sys.argv[2]).write_text(json.dumps(_answer(json.load(sys.stdin))), encoding="utf-8")


def _answer(request: dict[str, Any]) -> dict[str, Any]:
    try:
        return {
            "sources": _compile(request, lambda step: print(f"{STEP}{step}", file=sys.stderr, flush=True))
        }
    except (UserError, ProofError, OSError) as error:
        return {"error": " ".join(str(error).split())}
    except Exception as error:
        traceback.print_exc()
        return {"error": f"{type(error).__name__}: {' '.join(str(error).split())[:500]}"}


def _compile(request: dict[str, Any], progress: Progress) -> dict[str, str]:
    """Compile, and the digests of the files that the model consists of."""
    from contextlib import redirect_stdout

    from aoti_pack.compiler.build import compile_recipe
    from aoti_pack.compiler.options import CompileOptions
    from aoti_pack.project.stamp import source_digests
    from aoti_pack.sources.neighbours import source_files

    source, settings, began = request["source"], request["settings"], time.time()
    with redirect_stdout(sys.stderr):
        compile_recipe(
            source,
            Path(request["folder"]),
            options=CompileOptions(**request["options"]),
            settings=settings,
            progress=progress,
        )
    # What was edited meanwhile is not what was compiled.
    return source_digests(source_files(source, settings), until=began)
