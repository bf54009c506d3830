import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from aoti_pack.atomic import exclusive, new_directory, write_bytes, write_text

# Writes folder versions 1, 2, 3 … for ever; each holds 5 files that all say its number. Kills itself (SIGKILL) at
# the given count of calls of os-level steps, which pass through Python's audit hooks.
WRITER = """
import os, signal, sys
from pathlib import Path
from aoti_pack.atomic import new_directory
final, limit = Path(sys.argv[1]), int(sys.argv[2])
seen = 0
def hook(event, args):
    global seen
    if event in ("os.rename", "os.rmdir", "os.remove", "os.mkdir", "open", "os.chmod", "shutil.rmtree",
                 "ctypes.call_function", "ctypes.dlsym", "os.scandir"):
        seen += 1
        if seen == limit:
            os.kill(os.getpid(), signal.SIGKILL)
sys.addaudithook(hook)
number = 1
while number < 4:
    with new_directory(final) as beside:
        (beside / "inner").mkdir()
        for index in range(4):
            (beside / f"{index}").write_text(str(number))
        (beside / "inner" / "4").write_text(str(number))
    number += 1
"""


def version_of(folder: Path) -> int:
    texts = {path.read_text() for path in folder.rglob("*") if path.is_file()}
    assert sum(path.is_file() for path in folder.rglob("*")) == 5
    assert len(texts) == 1, f"a mix of versions: {texts}"
    return int(texts.pop())


@pytest.mark.parametrize("first", [1, 40])
def test_a_writer_killed_anywhere_leaves_the_old_folder_or_the_new(tmp_path: Path, first: int) -> None:
    final = tmp_path / "model"
    with new_directory(final) as beside:
        (beside / "inner").mkdir()
        for name in ("0", "1", "2", "3", "inner/4"):
            (beside / name).write_text("0")
    killed = 0
    for limit in range(first, 120, 9):
        done = subprocess.run([sys.executable, "-c", WRITER, str(final), str(limit)], check=False)
        assert done.returncode in (0, -signal.SIGKILL)
        killed += done.returncode != 0
        assert version_of(final) in (0, 1, 2, 3)
    assert killed >= 5, "the limits never fell inside the writer"
    with new_directory(final) as beside:
        (beside / "inner").mkdir()
        for name in ("0", "1", "2", "3", "inner/4"):
            (beside / name).write_text("9")
    assert version_of(final) == 9
    assert [path.name for path in tmp_path.iterdir()] == ["model"], "leftovers of killed writers stay"


def test_a_failing_writer_leaves_nothing_of_its_own(tmp_path: Path) -> None:
    final = tmp_path / "model"
    with new_directory(final) as beside:
        (beside / "a").write_text("old")
    with pytest.raises(ZeroDivisionError), new_directory(final) as beside:
        (beside / "a").write_text("new")
        raise ZeroDivisionError
    assert (final / "a").read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_clears_only_its_own_leftovers(tmp_path: Path) -> None:
    for name in (".a.tmp-abcdefgh", ".a.tmp-x.tmp-abcdefgh", ".[a].tmp-abcdefgh", ".b.tmp-abcdefgh"):
        (tmp_path / name).mkdir()
    with new_directory(tmp_path / "a"):
        pass
    with new_directory(tmp_path / "[a]"):
        pass
    assert {path.name for path in tmp_path.iterdir()} == {
        "a",
        "[a]",
        ".a.tmp-x.tmp-abcdefgh",  # at work on the model called `a.tmp-x`
        ".b.tmp-abcdefgh",
    }


@pytest.mark.parametrize("dangling", [False, True])
def test_a_link_is_replaced_and_its_target_stays(tmp_path: Path, dangling: bool) -> None:
    target = tmp_path / "elsewhere"
    if not dangling:
        target.mkdir()
        (target / "keep").write_text("1")
    (tmp_path / "model").symlink_to(target)
    with new_directory(tmp_path / "model") as beside:
        (beside / "a").write_text("new")
        (beside / "broken").symlink_to("nowhere")
    assert not (tmp_path / "model").is_symlink()
    assert (tmp_path / "model" / "a").read_text() == "new"
    assert dangling or (target / "keep").read_text() == "1"


def test_write_bytes_replaces_whole_and_leaves_nothing_on_failure(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write_text(path, "old é")
    write_bytes(path, b"new")
    assert path.read_bytes() == b"new" and path.stat().st_mode & 0o777 == 0o644
    path.unlink()
    path.mkdir()
    (path / "inside").write_text("1")
    with pytest.raises(OSError):
        write_bytes(path, b"newer")
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


def test_the_lock_excludes_and_leaves_no_file(tmp_path: Path) -> None:
    lock, counter = tmp_path / "lock", tmp_path / "counter"
    counter.write_text("0")

    def work() -> None:
        for _ in range(50):
            with exclusive(lock):
                counter.write_text(str(int(counter.read_text() or "-1000") + 1))

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert counter.read_text() == "300"
    assert not lock.exists()


def test_the_lock_of_a_killed_holder_is_free(tmp_path: Path) -> None:
    code = (
        "import os, signal, sys; from pathlib import Path; from aoti_pack.atomic import exclusive\n"
        "with exclusive(Path(sys.argv[1])): os.kill(os.getpid(), signal.SIGKILL)"
    )
    lock = tmp_path / "lock"
    done = subprocess.run([sys.executable, "-c", code, str(lock)], check=False)
    assert done.returncode == -signal.SIGKILL and lock.exists()
    with exclusive(lock):
        assert lock.exists()
    assert not lock.exists()
