"""Shell commands that look like others: each judged right, that is, run without a question only when it can do
nothing but read inside the project. What these commands really do was taken from the manuals of bash, GNU and git.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from tools_workspace import ShellWorkspace

from ipyagent.tools.shell_reads import only_reads

# The cases of the issue, by kind. True: runs without a question.
TRICKY: dict[str, dict[str, bool]] = {
    "substitution": {
        "cat $(echo a.txt)": False, "cat `ls`": False, 'echo "$(touch x)"': False, "echo '$(touch x)'": True,
        'echo "${x:=$(touch x)}"': False, "echo $((x=$(touch x)1))": False, "cat a.txt $((1))": False,
    },
    "redirects": {
        "grep -c a a.txt >n": False, "grep -c '>' a.txt": True, "cat a.txt 1>&2": False, "cat<a.txt": False,
        "echo hi>|a.txt": False, "ls 2>/dev/null": False, "echo 'a > b'": True, "exec 3<>a.txt": False,
    },
    "find": {
        "find . -name '*.py' -exec touch {} \\;": False, "find . -name '*.py' -exec touch {} +": False,
        "find . -name '-exec'": True, "find . -printf '%p\\n'": True, "find . '-delete'": False,
        "find . -type f -fprintf out x": False, "find -- . -delete": False, "find . -name x -o -delete": False,
    },
    "sed": {
        "sed -i.bak s/a/b/ a.txt": False, "sed -n -i p a.txt": False, "sed -n '1p' a.txt": True,
        "sed -n '1p;w out' a.txt": False, "sed --in-place s/a/b/ a.txt": False, "sed -ni 1p a.txt": False,
        "sed 's/a/touch x/e' a.txt": False, "sed -f prog.sed a.txt": False, "sed -n '$!d' a.txt": False,
    },
    "aliases and functions": {
        "alias ls='rm x'": False, "alias cat=rm; cat a.txt": False, "ls() { rm x; }; ls": False,
        "function cat { rm x; }; cat a.txt": False, "unalias ls; ls": False, "shopt -s expand_aliases; ls": False,
    },
    "newlines and here-docs": {
        "ls\ntouch x": False, "cat <<'E'\nx\nE": False, "cat <<-E\n\tx\nE\ntouch x": False, "cat <<<a.txt": False,
        "ls \\\n-la": False, "echo 'a\ntouch x'": False,
    },
    "git": {
        "git -c alias.log='!touch x' log": False, "git -c diff.external=x diff": False, "git st": False,
        "git --paginate log": False, "git -p diff": False, "git diff --ext-diff HEAD": False,
        "git log --textconv -p": False, "git --no-pager diff HEAD": True, "git log --format='%h %an'": True,
        "git log --format=%G?": False, "git log --pretty=format:%h%GS": False, "git log --show-signature": False,
        "git branch --format='%(signature)'": False, "git difftool": False, "git grep -Oless x": False,
        "git archive --output=x HEAD": False, "git diff --output=x": False, "git bundle create x HEAD": False,
        "git help log": False, "git fsck --lost-found": False, "git notes add": False, "git rev-parse HEAD": True,
    },
    "prefixes": {
        "PAGER='touch x' git log": False, "LC_ALL=C sort a.txt": False, "env -S 'touch x'": False,
        "env cat a.txt": False,
        "command cat a.txt": False, "builtin echo x": False, "command -v ls": False, "exec cat a.txt": False,
        "nice ls": False, "timeout 5 ls": False, "stdbuf -oL ls": False, "! ls": False, "time ls": False,
    },
    "runners": {
        "find . | xargs touch": False, "ls | xargs -I{} touch {}": False, "awk 'BEGIN{system(\"touch x\")}'": False,
        "awk '{print > \"x\"}' a.txt": False, "gawk -f x.awk": False, "cat a.txt | tee out": False,
        "tee -a out": False, "python3 -c 'print(1)'": False, "python -V": False, "perl -ne print a.txt": False,
        "bash a.txt": False, "sh <a.txt": False, "xxd a.txt": False, "jq . a.txt": False,
    },
    "process substitution and braces": {
        "diff <(sort a.txt) <(sort src/b.py)": False, "cat >(touch x)": False, "cat {a.txt,src/b.py}": False,
        "echo {1..3}": False, "ls a.{txt,md}": False,
    },
    "options that write or run": {
        "sort -o out a.txt": False, "sort -uo a.txt a.txt": False, "sort --compress-program=x a.txt": False,
        "less a.txt": False, "man ls": False, "LESSOPEN='|touch x' less a.txt": False, "rg --pre ./x y": False,
        "rg --pre=./x y .": False, "rg -n --hostname-bin=./x y": False,
        "tar --checkpoint=1 --checkpoint-action=exec=x -cf /dev/null .": False, "tar -tf a.tar": False,
        "tree -o out": False, "file -C -m magic": False, "date -s now": False, "split a.txt": False,
        "csplit a.txt 1": False, "uniq a.txt out": False, "tail -F a.txt": False, "column -t a.txt": True,
        "diff -l a.txt src/b.py": False, "dd if=a.txt": False, "hostname x": False, "xargs -a a.txt": False,
    },
}  # fmt: skip

# More, of our own.
MORE: dict[str, dict[str, bool]] = {
    "sets of characters": {
        "cat l[^x]nk/passwd": False, "cat l[[:alpha:]]nk/passwd": False, "cat l[!x]nk/passwd": False,
        "cat l[[=i=]]nk/passwd": False, "ls src/[a-c].py": True, "ls src/[!x].py": False, "ls src/b[.]py": True,
        "ls src/[b": False, "ls src/b]": False,
    },
    "wildcards": {
        "ls src/*.py": True, "wc -l src/?.py": True, "cat link/p*": False, "head -n 1 l*/passwd": False,
        "echo src/*": True, "grep a src/*.py a.txt": True, "uniq src/*.py": False, "cat ../*": False, "ls .*": False,
        "ls src/.[!x]*": False, "ls .?": False, "ls .g*": True, "grep -r x .*": False, "cat ./.*/outside": False,
    },
    "quotes": {
        "'ls'": True, '"ls" -l': True, "l's'": True, "grep 'a;b|c&d' a.txt": True, 'grep "a > b" a.txt': True,
        "grep \"it's\" a.txt": True, "cat 'a'.txt": True, "cat a\\ b": False, "grep $'a\\nb' a.txt": False,
        'echo "a`touch x`"': False, 'echo "a\\"; touch x; \\""': False, "echo 'a' ; touch x": False, "cat ''": True,
    },
    "paths": {
        "cat ./a.txt": True, "cat src/../a.txt": True, "cat src/../../outside": False, "cat link": False,
        "ls link/": False, "readlink link": False, "cat ~": False, "ls ~+": False, "ls --color=auto src": True,
        "cat -- a.txt": True, "cat -- -n": True, "cat /dev/null": False, "stat a.txt src": True,
    },
    "values of options": {
        "grep -e a -e b a.txt": True, "grep -f a.txt a.txt": False, "head -c 5 a.txt": True, "head -n -1 a.txt": True,
        "tail -n +2 a.txt": True, "cut -d ' ' -f 1 a.txt": True, "sort -t , -k 2 a.txt": True, "sort -k2n a.txt": True,
        "du -d 1 .": True, "grep --include='*.py' -r os .": True, "sort --parallel=9 a.txt": False,
        "sort --random-source=/etc/passwd a.txt": False, "grep -m": False, "ls --block-size=1": False,
        "date -f a.txt": False, "date -r a.txt": False, "wc --files0-from=a.txt": False,
    },
    "several commands": {
        "ls; pwd": True, "ls && cat a.txt || echo none": True, "ls; ls; touch x": False, "ls && (touch x)": False,
        "cat a.txt | sort | uniq -c | sort -rn": True, "cat a.txt | sh": False, "ls & pwd": False, "ls ;; pwd": False,
        "pwd || touch x": False, "cat a.txt | while read x; do touch $x; done": False,
    },
    "git once more": {
        "git status -sb": True, "git diff --cached --stat": True, "git log -p -- a.txt": True, "git show HEAD": True,
        "git log --since='2 weeks ago' --author=me": True, "git stash list": False, "git reflog": False,
        "git config user.name": False, "git remote show origin": False, "git ls-remote": False,
        "git diff --no-index a.txt ../outside": False, "git -C src log": False, "git log --exec=x": False,
        "git branch -r": True, "git tag": True, "git worktree list": False, "git submodule status": False,
        "git blame -L 1,5 a.txt": True, "git cat-file -p HEAD": False, "git log --outp=x": False,
    },
    "the shell's own": {
        "cd src": False, "pushd src": False, "set +e": False, "printf '%s' a": False, "read x": False,
        "wait": False, "ulimit -c 0": False, "umask 0": False, "type ls": False, "hash -r": False,
        "[ -f a.txt ]": False,
        "test -f a.txt && cat a.txt": False, "coproc ls": False, "select x in a; do ls; done": False, ": > x": False,
        "true": True, "history -w": False, "enable -f ./x.so x": False, "mapfile -C 'touch x' a": False,
    },
    "folders of two names": {
        "diff twi? a.txt": False, "diff a.txt twin": False, "diff a.txt tw[i]n": False, "diff a.t?t src/b.py": True,
        "cat twin/a.txt": False, "grep -r secret twin": True, "grep -R secret twin": False, "cat twin/*.txt": False,
    },
    "options behind operands": {
        "head a.txt -n 5": True, "head a.txt -n /etc/passwd": False, "grep x a.txt -A /etc/passwd": False,
        "sort a.txt -t ../outside": False, "uniq a.txt -c": False, "uniq -c a.txt": True, "ls src -la": True,
        "sort a.txt -o a.txt": False, "sort -- -o a.txt": True, "cut -d / -f 1 a.txt": True, "grep a a.txt -n": True,
        "uname -a": True, "nproc --all": True, "sed -n 1p a.txt -i": False, "wc a.txt --files0-from=x": False,
    },
    "ends of lines": {
        "ls\n": True, "\nls": True, "ls\n\nls": False, "ls\r\n": False, "ls\t": False, "ls\u2028touch x": False,
        "ls \\\n": False, "cat a\u00a0b": False, "echo 'a\u202eb'": False,
    },
    "signs in words": {
        "ls #x": False, "ls a#x": False, "echo a=~": False, "echo a:~": False, "echo a~": True, "echo @x": True,
        "echo a{b": False, "echo +(a)": False, "ls --": True, "'' ls": False, "ls ''": True, "cat ａ.txt": True,
        "cat a.txt&&ls": True, "cat a.txt|&ls": False, "cat a.txt|ls;pwd": True, "a=1 ": False, "./ls": False,
    },
    "git's own words": {
        "git log --graph --all --oneline -20": True, "git status --porcelain=v2 --branch": True, "git": False,
        "git log -Oa.txt": False, "git diff a.txt link/passwd": False, "git --no-pager --exec-path=. log": False,
        "git branch --set-upstream-to=x": False, "git tag -l 'v*'": False, "git rev-parse --git-path x": False,
        "git diff --stat -- src": True, "git remote prune origin": False, "git describe --dirty=x": False,
    },
}  # fmt: skip


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> ShellWorkspace:
    top = tmp_path_factory.mktemp("tricky")
    root = top / "project"
    (root / "src").mkdir(parents=True)
    (root / "a.txt").write_text("a\nb\n")
    (root / "src/b.py").write_text("import os\n")
    (top / "outside").write_text("secret")
    (top / "elsewhere").mkdir()
    (top / "elsewhere/passwd").write_text("secret")
    (root / "link").symlink_to(top / "elsewhere")
    (root / "twin").mkdir()
    (root / "twin/a.txt").symlink_to(top / "outside")
    subprocess.run(["git", "init", "-q", "."], cwd=root, check=True)
    return ShellWorkspace(root)


def cases(table: dict[str, dict[str, bool]]) -> list[tuple[str, bool]]:
    return [pair for kind in table.values() for pair in kind.items()]


def test_tricky_commands_are_judged_right(place: ShellWorkspace) -> None:
    for command, reads in cases(TRICKY):
        assert only_reads(command, place) is reads


def test_more_of_the_kind_are_judged_right(place: ShellWorkspace) -> None:
    for command, reads in cases(MORE):
        assert only_reads(command, place) is reads


def test_what_runs_without_a_question_writes_nothing(place: ShellWorkspace) -> None:
    def state() -> dict[str, bytes]:
        return {str(path): path.read_bytes() for path in place.root.rglob("*") if path.is_file()}

    before = state()
    for command, reads in [*cases(TRICKY), *cases(MORE)]:
        if reads:
            done = subprocess.run(
                ["bash", "--noprofile", "--norc", "-c", command], cwd=place.root, stdin=subprocess.DEVNULL,
                capture_output=True, text=True, timeout=20, check=False,
            )  # fmt: skip
            assert "secret" not in done.stdout + done.stderr, command
    assert state() == before


def git(folder: Path, *words: str) -> None:
    who = ["-c", "user.name=x", "-c", "user.email=x@example.invalid", "-c", "commit.gpgsign=false"]
    subprocess.run(["git", *who, *words], cwd=folder, check=True, capture_output=True)


def test_a_repository_within_the_repository_has_its_own_configuration_so_git_asks(tmp_path: Path) -> None:
    outer, inner = tmp_path / "outer", tmp_path / "outer" / "inner"
    inner.mkdir(parents=True)
    git(outer, "init", "-q", ".")
    git(inner, "init", "-q", ".")
    git(inner, "commit", "-q", "--allow-empty", "-m", "one")
    here = ShellWorkspace(outer)
    assert only_reads("git status", here)  # untracked: git does not look into it
    git(outer, "add", "inner")
    assert not only_reads("git status", here)
    assert not only_reads("git diff", here)


@pytest.mark.parametrize("name", ["GIT_DIR", "GIT_EXTERNAL_DIFF", "GIT_CONFIG_COUNT", "GIT_TRACE", "GIT_EXEC_PATH"])
def test_an_environment_that_leads_git_elsewhere_asks(
    place: ShellWorkspace, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv("GIT_AUTHOR_NAME", "me")
    assert only_reads("git status", place)
    monkeypatch.setenv(name, "1")
    assert not only_reads("git status", place)


def test_an_exported_function_is_not_the_program_of_that_name(
    place: ShellWorkspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BASH_FUNC_module%%", "() { :; }")
    assert only_reads("ls", place)
    monkeypatch.setenv("BASH_FUNC_ls%%", "() { touch x; }")
    assert not only_reads("ls", place)
