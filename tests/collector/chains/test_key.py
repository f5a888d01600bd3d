"""The key of an installation: made once, for its owner alone, the same for all who ask."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from cachemodel.errors import UserError
from collector.chains.key import KEY_BYTES, installation_key, parse_key


def test_it_is_made_once_and_is_its_owners(tmp_path: Path) -> None:
    file = tmp_path / "home" / "key"
    key = installation_key(file)
    assert len(key) == KEY_BYTES
    assert file.stat().st_mode & 0o777 == 0o600
    assert installation_key(file) == key == bytes.fromhex(file.read_text())
    assert installation_key(tmp_path / "other") != key
    assert [path.name for path in file.parent.iterdir()] == ["key"], "no draft stays"


def test_processes_that_begin_at_once_have_one_key(tmp_path: Path) -> None:
    code = "import sys; from pathlib import Path; from collector.chains.key import installation_key\n"
    code += "print(flush=True); sys.stdin.read(); print(installation_key(Path(sys.argv[1])).hex())"
    command = [sys.executable, "-c", code, str(tmp_path / "key")]
    running = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(4)
    ]
    for process in running:  # all are ready before the first may go
        assert process.stdout is not None
        process.stdout.readline()
    for process in running:
        assert process.stdin is not None
        process.stdin.close()
    keys = set()
    for process in running:
        assert process.stdout is not None
        keys.add(process.stdout.read())
        process.stdout.close()
        assert process.wait() == 0
    assert len(keys) == 1
    assert len(bytes.fromhex(keys.pop().strip())) == KEY_BYTES


@pytest.mark.parametrize("text", ["", "no hex", "ab" * 15, "ab" * 65])
def test_what_is_no_key_is_refused(text: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="hexadecimal digits"):
        parse_key(text)
    file = tmp_path / "key"
    file.write_text(text)
    with pytest.raises(UserError, match="holds no key"):
        installation_key(file)
    assert file.read_text() == text, "a key that was is not replaced"


def test_a_folder_that_is_a_file_is_told(tmp_path: Path) -> None:
    (tmp_path / "home").write_text("")
    with pytest.raises(UserError, match="the key of this installation"):
        installation_key(tmp_path / "home" / "key")


def test_a_file_that_others_may_read_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = tmp_path / "key"
    key = installation_key(file)
    assert not caplog.messages
    for mode in (0o644, 0o640, 0o604):
        file.chmod(mode)
        assert installation_key(file) == key
        assert f"chmod 600 {file}" in caplog.messages.pop()
        caplog.clear()
