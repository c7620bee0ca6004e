"""What runs without a question, and the many things that look like it and must not."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tools_workspace import ShellWorkspace

from ipyagent.tools.shell_reads import Unclear, only_reads, simple_commands

HARMLESS = """
ls
ls -la
ls -la src
ls src/*.py
cat a.txt
cat a.txt src/b.py
head -n 5 a.txt
head -5 a.txt
tail -n 3 a.txt
wc -l a.txt src/b.py
grep -rn "import os" src
grep -n 'a|b' a.txt
grep -e x -A 3 a.txt
grep "foo\\.bar" a.txt
find . -name '*.py'
find . -type f -not -name '*.txt' -maxdepth 2
find src '(' -name 'a' -o -name 'b' ')' -print
sort a.txt | uniq -c | sort -rn | head -3
cut -d, -f1 a.txt
tr a-z A-Z
diff a.txt src/b.py
stat a.txt
file a.txt
du -sh .
df -h
pwd
echo hello world
date
date +%Y
which python
nproc
uname -a
sed -n '1,5p' a.txt
sed -n 2p a.txt
ls;
pwd && ls; ls src || echo none
git status
git status --short
git log --oneline -n 5
git log -5
git log --format='%h %s' HEAD~1
git diff
git diff --stat HEAD
git diff HEAD~1 -- a.txt
git show HEAD:a.txt
git branch
git branch -a
git branch --list
git ls-files
git blame a.txt
git --no-pager log
""".strip().splitlines()

ASKING = [
    # git that writes or runs something
    "git describe --dirty", "git describe --always --dirty",
    "git log --output=x", "git log --output x", "git diff --output=x", "git diff -o x", "git show --output=x",
    "git -c core.pager=touch\\ x log", "git -c core.pager='touch x' status", "git --exec-path=. status",
    "git -C /etc status", "git --git-dir=x status", "git diff --ext-diff", "git diff --no-index --ext-diff a b",
    "git diff --no-index a.txt /etc/passwd", "git diff /etc/passwd /etc/shadow", "git diff --textconv",
    "git diff link/passwd a.txt", "git log -p --textconv", "git branch new", "git branch -D main",
    "git branch -m a b", "git branch --edit-description", "git tag v1", "git tag -d v1", "git remote add x y",
    "git remote -v update", "git push", "git checkout .", "git stash", "git config --list", "git status > x",
    "git grep -O'touch x' a", "git blame --contents=/etc/passwd a.txt", "git ls-files -X /etc/passwd",
    "git log -O/etc/passwd", "git fetch", "git log --show-signature", "git status;rm x",
    # find that does
    "find . -delete", "find . -exec rm {} +", "find . -exec rm x ';'", "find . -execdir x ';'", "find . -ok rm ';'",
    "find . -fprint x", "find . -fprintf x y", "find . -fls x", "find -L . -name x", "find . -files0-from x",
    "find / -name x", "find ../.. -name x", "find . -newer /etc/passwd", "find . -name *.py",
    # writers and runners that look like readers
    "sort -o f a.txt", "sort --output=f a.txt", "sort -of a.txt", "sort -ro f a.txt", "sort --outp=f a.txt",
    "sort -T /x a.txt", "sort --compress-program=sh a.txt", "sort --files0-from=x", "sort -S 1G a.txt",
    "uniq a.txt b.txt", "uniq src/*", "tee x", "cat a.txt | tee x", "xargs rm", "ls | xargs rm",
    "sed -i s/a/b/ a.txt", "sed s/a/b/w a.txt", "sed -n '1w x' a.txt", "sed -n '1e touch x' a.txt", "sed -n p -i a.txt",
    "awk 'BEGIN{system(\"rm x\")}'", "awk 1 a.txt", "perl -e 1", "python -c 1", "bash -c ls", "sh x", "env ls",
    "env", "printenv", "nohup ls", "time ls", "command ls", "exec ls", "eval ls", "sudo ls", "rg --pre cat x .",
    "rg -z x .", "rg -f /etc/passwd x", "grep -f /dev/stdin a.txt", "grep -f /etc/passwd a.txt", "grep -R x .",
    "tree -o x", "file -C -m x", "date -s 2020-01-01", "date --set=x", "date 010100002020", "less a.txt", "more a.txt",
    "vi a.txt", "tail -f a.txt", "diff -r src link", "diff src link", "column -c 1 --table-name=x -J",
    # outside of the project
    "cat /etc/passwd", "cat ../outside", "cat src/../../outside", "cat link/passwd", "cat ~/.ssh/id_rsa", "cat ~root/x",
    "head -n1 /etc/passwd", "ls /", "ls ..", "cat link/*", "cat l*/passwd", "wc -l /etc/*", "grep -r x /", "stat /etc",
    "cat /dev/stdin", "cat /proc/self/environ", "grep -e x /etc/passwd", "grep -- x /etc/passwd", "cat -- /etc/passwd",
    "diff a.txt /etc/passwd", "sed -n 1p /etc/passwd", "du -s /root", "cat a.txt /etc/passwd",
    # the shell's own
    "cat a.txt > b", "cat a.txt >> b", "cat < a.txt", "ls 2>x", "ls &> x", "ls >| x", "ls 2>&1", "cat <(rm x)",
    "ls >(rm x)", "cat <<< x", "cat <<EOF\nx\nEOF", "ls $(rm x)", "ls `rm x`", 'ls "$(rm x)"', 'ls "`rm x`"',
    "ls $HOME",
    'ls "$HOME"', "ls ${x:-y}", "ls $'\\n'", "ls\nrm x", "ls\rrm x", "ls\x0brm x", "ls &", "ls & rm x", "ls & ",
    "ls |& cat",
    "(ls)", "{ ls; }", "{rm,x}", "ls {a,b}", "!ls", "ls !$", "x=1 ls", "PATH=. ls", "LD_PRELOAD=x ls", "x=1",
    "ls;;rm x", "ls | | rm", "&& ls", "| ls", "", " ", ";", "ls # x", "#ls", "ls \\\nrm", "l\\s", "ls 'a", 'ls "a',
    'ls "a\\"b"', "if ls; then rm x; fi", "for x in a; do ls; done", "function ls() { rm x; }", "ls() { rm x; }",
    "[[ -f x ]]", "test -f x", ". x", "source x", "alias ls=rm", "cd / && ls", "export A=b", "trap rm EXIT", "set -x",
    "ls *", "cat *", "ls -l *", "ls ?x", "ls [a]x", "ls ''*", "ls '-'*", "cat 'l'*/'[p]'*",
    # not what they look like
    "ls\u00a0-la", "ls\u2003rm", "\u2028ls", "ls\u200b", "ｌｓ", "ls\u202e", "ls\x00rm", "ls\trm", "./ls", "/bin/ls",
    "bin/ls",
    "LS", "lss", "rm x", "ls|rm x", "ls&&rm x", "ls||rm x", "cat --help=x", "ls --color --unknown", "cat -Z a.txt",
    "echo a > .git/config", "printf -v PATH x", "ls --hyperlink", "head --lines", "grep --regexp", "ls --color /etc",
    "grep --color -f /etc/passwd a.txt",
]  # fmt: skip


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> ShellWorkspace:
    top = tmp_path_factory.mktemp("reads")
    root = top / "project"
    (root / "src").mkdir(parents=True)
    (root / "a.txt").write_text("a\n")
    (root / "src/b.py").write_text("import os\n")
    (top / "outside").write_text("secret")
    (top / "elsewhere").mkdir()
    (top / "elsewhere/passwd").write_text("secret")
    (root / "link").symlink_to(top / "elsewhere")
    (root / "ls").write_text("#!/bin/sh\ntouch pwned\n")
    (root / "ls").chmod(0o755)
    subprocess.run(["git", "init", "-q", "."], cwd=root, check=True)
    subprocess.run(["git", "remote", "add", "origin", "https://example.invalid/x"], cwd=root, check=True)
    return ShellWorkspace(root)


@pytest.mark.parametrize("command", HARMLESS)
def test_plain_reading_needs_no_question(place: ShellWorkspace, command: str) -> None:
    from ipyagent.parts.shell.tool import shell

    words = command.split()
    if words[0] in ("file", "which", "git", "rg") and not _installed(words[0]):
        pytest.skip(f"{words[0]} is not installed")
    assert only_reads(command, place)
    assert not shell.writes({"command": command}, place)
    assert shell.permission({"command": command}, place) == "none"


def test_what_needs_no_question_changes_nothing(place: ShellWorkspace) -> None:
    def state() -> dict[str, bytes]:
        files = [path for path in place.root.rglob("*") if path.is_file()]
        return {str(path): path.read_bytes() for path in files}

    before = state()
    for command in HARMLESS:
        subprocess.run(
            ["bash", "--norc", "-c", command],
            cwd=place.root,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "GIT_OPTIONAL_LOCKS": "0"},
            timeout=20,
            check=False,
        )
    assert state() == before


def test_git_that_reads_writes_no_index(tmp_path: Path) -> None:
    """Not even where the index is out of date: git would refresh it in passing."""
    from ipyagent.parts.shell.tool import shell

    for words in (
        ["init", "-q", "."],
        ["add", "."],
        ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "x"],
    ):
        (tmp_path / "a.txt").write_text("a\n")
        subprocess.run(["git", *words], cwd=tmp_path, check=True)
    here = ShellWorkspace(tmp_path)
    index = tmp_path / ".git/index"
    before = index.read_bytes(), index.stat().st_mtime_ns
    more = ["git diff --quiet", "git diff --raw HEAD", "git describe --always", "git describe --always --dirty",
            "git ls-files -m", "git status --porcelain", "git diff --cached"]  # fmt: skip
    for day, command in enumerate([*(each for each in HARMLESS if each.startswith("git")), *more], 1):
        if not only_reads(command, here):
            continue
        os.utime(tmp_path / "a.txt", (day * 86_400, day * 86_400))
        asyncio.run(shell.run({"command": command}, here))
        assert (index.read_bytes(), index.stat().st_mtime_ns) == before, command


def _installed(name: str) -> bool:
    import shutil

    return shutil.which(name) is not None


def test_everything_else_asks(place: ShellWorkspace) -> None:
    for command in ASKING:
        assert not only_reads(command, place)


@pytest.mark.parametrize(
    "text",
    [
        '[core]\n\tfsmonitor = "touch pwned"', "[include]\n\tpath = x", '[includeIf "gitdir:/"]\n path = x',
        '[diff "x"]\n\ttextconv = touch pwned', '[filter "x"]\n\tclean = touch pwned', "[core] fsmonitor = x",
        "[core]\n\tpager = x", "[core]\n\tsshCommand = x", "[core]\n\thooksPath = x", "[diff]\n\texternal = x",
        '[remote "o"]\n\tpromisor = true', '[remote "o"]\n\tuploadpack = x', "[gpg]\n\tprogram = x",
        "[user]\n\tname = x \\\n[core]\n\tfsmonitor = x", "[CORE]\n\tFSMonitor = x", "[log]\n\tshowSignature = true",
        "[alias]\n\tx = !rm", '[submodule "x"]\n\turl = x', "[core]\n\tfsmonitor", "\x00",
        "[diff]\n# x\r[user]\n\texternal = touch pwned;true", "[core]\n# x\x0c[user]\n\tfsmonitor = x",
    ],
)  # fmt: skip
def test_a_repository_that_could_run_something_asks(tmp_path: Path, text: str) -> None:
    subprocess.run(["git", "init", "-q", "."], cwd=tmp_path, check=True)
    here = ShellWorkspace(tmp_path)
    assert only_reads("git status", here)
    with open(tmp_path / ".git/config", "ab") as file:
        file.write(f"\n{text}\n".encode())
    assert not only_reads("git status", here)


def _dangling_head(place: Path) -> None:
    (place / "HEAD").symlink_to("refs/heads/main")


def _other_objects(place: Path) -> None:
    (place / "HEAD").write_text("ref: refs/heads/main\n")
    (place / "commondir").write_text("x\n")


def _hook(place: Path) -> None:
    (place / ".git/hooks").mkdir(exist_ok=True)
    (place / ".git/hooks/post-index-change").write_text("#!/bin/sh\ntouch pwned\n")


def _broken_head(place: Path) -> None:
    (place / ".git/HEAD").write_text("nonsense\n")


def _linked_head(place: Path) -> None:
    (place / ".git/HEAD").unlink()
    (place / ".git/HEAD").symlink_to("elsewhere")


def _no_objects(place: Path) -> None:
    (place / ".git/objects").rename(place / ".git/moved")


def _linked_configuration(place: Path) -> None:
    (place / ".git/config").unlink()
    (place / ".git/config").symlink_to("nowhere")


@pytest.mark.parametrize(
    "change",
    [_dangling_head, _other_objects, _hook, _broken_head, _linked_head, _no_objects, _linked_configuration],
    ids=lambda change: change.__name__.strip("_"),
)
def test_the_repository_that_git_takes_is_the_one_that_was_checked(
    tmp_path: Path, change: Callable[[Path], None]
) -> None:
    """What git does not take for a repository it passes over, and what stands further up decides."""
    for folder in (tmp_path, tmp_path / "sub"):
        folder.mkdir(exist_ok=True)
        subprocess.run(["git", "init", "-q", "."], cwd=folder, check=True)
    (tmp_path / ".git/config").write_text("[diff]\n\texternal = touch pwned\n")
    assert not only_reads("git diff", ShellWorkspace(tmp_path))
    here = ShellWorkspace(tmp_path / "sub")
    assert only_reads("git diff", here)
    (tmp_path / "sub/.git/HEAD").write_text("0123456789" * 4)
    assert only_reads("git diff", here)
    change(tmp_path / "sub")
    assert not only_reads("git diff", here)


def test_an_empty_folder_named_like_a_repository_hides_none(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", "."], cwd=tmp_path, check=True)
    (tmp_path / "sub/.git").mkdir(parents=True)
    assert not only_reads("git diff", ShellWorkspace(tmp_path / "sub"))


def test_a_program_of_the_project_is_not_the_systems(place: ShellWorkspace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{place.root}:/usr/bin:/bin")
    assert not only_reads("ls", place)
    assert only_reads("cat a.txt", place)
    for relative in (".:/usr/bin:/bin", "/usr/bin:/bin:", "/usr/bin::/bin", "bin:/usr/bin:/bin"):
        monkeypatch.setenv("PATH", relative)
        assert not only_reads("cat a.txt", place)


def test_what_would_show_a_hidden_cell_asks(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", "."], cwd=tmp_path, check=True)
    here = ShellWorkspace(tmp_path)
    (tmp_path / "sub").mkdir()
    (tmp_path / "open.ipynb").write_text('{"cells": []}')
    (tmp_path / "a.txt").write_text("a")
    showing = [
        "cat sub/n.ipynb", "head -n 3 sub/n.ipynb", "cat sub/*", "grep -rn x .", "grep -rn x", "grep x sub/n.ipynb",
        "sed -n 1,5p sub/n.ipynb", "ls | grep -r x", "sort sub/n.ipynb", "cut -c 1-9 sub/n.ipynb", "git diff",
        "git show", "git log -p", "git blame a.txt", "diff a.txt sub/n.ipynb", "tail sub/N.IPYNB",
    ]  # fmt: skip
    fine = ["cat a.txt open.ipynb", "ls -l sub", "wc -l sub/n.ipynb", "find . -name n", "git status", "grep x ./*.txt"]
    (tmp_path / "sub/n.ipynb").write_text('{"cells": []}')
    (tmp_path / "sub/N.IPYNB").write_text("{}")
    for command in (*showing, *fine):
        assert only_reads(command, here), command
    for name in ("n.ipynb", "N.IPYNB"):
        (tmp_path / "sub" / name).write_text('{"cells": [{"metadata": {"tags": ["agent-hide"]}}]}')
    for command in showing:
        assert not only_reads(command, here), command
    for command in fine:
        assert only_reads(command, here), command


def test_letters_after_an_option_of_tree_are_options_still(
    place: ShellWorkspace, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """It has a parser of its own: `tree -Lo 2 x` writes to x. Tried with Debian's tree 2.1.0."""
    (tmp_path / "tree").write_text("#!/bin/sh\n")
    (tmp_path / "tree").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    for command in ("tree", "tree -a -L 2 src", "tree -ad -I x -P y"):
        assert only_reads(command, place), command
    for command in ("tree -Lo 2 x", "tree -LR 1 src", "tree -Ll 2", "tree -Iox y z", "tree -PR x", "tree -aL2"):
        assert not only_reads(command, place), command


@settings(max_examples=300, deadline=None)
@given(st.text(alphabet="abc '\"|;&$`<>(){}*?[]~#\\!=-/.\n\t", max_size=20))
def test_words_are_those_of_the_shell_itself(text: str) -> None:
    """Whatever the parser takes, bash reads as the same words."""
    try:
        commands = simple_commands(text)
    except Unclear:
        return
    if len(commands) != 1 or any(word.glob for word in commands[0]):
        return
    typed = text.lstrip(" \t\n")  # a line that is empty before it is no command
    done = subprocess.run(
        ["bash", "--norc", "-c", f"printf '%s\\0' {typed}"], capture_output=True, text=True, timeout=10, check=False
    )
    assert done.stdout.split("\0")[:-1] == [word.text for word in commands[0]]
