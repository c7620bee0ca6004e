from __future__ import annotations

from pathlib import Path
from shlex import quote

import pytest
from shell_cases import DANGEROUS, HARMLESS

from ipyagent.tools.danger import code_danger, shell_danger
from ipyagent.tools.paths import in_force

SHELL_BAD = [
    *DANGEROUS,
    "install -m 755 a full", 'python3 -c \'import shutil; shutil.rmtree("sub")\' x',
]
SHELL_GOOD = [
    *HARMLESS,
    "git commit -m kill -a", "'' x", 'case "$1" in\n"") echo none;;\nesac', "python3 -c",
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "full").write_text("content")
    (tmp_path / "empty").touch()
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub/inner").write_text("content")
    (tmp_path / "other/sub").mkdir(parents=True)
    (tmp_path / "other/inner").write_text("other")
    (tmp_path / "other/sub/inner").write_text("other")
    return tmp_path


def test_a_destructive_command_needs_a_yes_and_an_everyday_one_does_not(folder: Path) -> None:
    for command in SHELL_BAD:
        assert shell_danger(command, folder)
    for command in SHELL_GOOD:
        assert shell_danger(command, folder) == ""


CODE_BAD = [
    "import shutil\nshutil.rmtree('x')", "import shutil as s\ns.rmtree('x')", "from shutil import rmtree as r\nr('x')",
    "import os\nos.remove('x')", "from os import unlink\nunlink('x')", "from pathlib import Path\nPath('x').unlink()",
    "for p in files:\n    p.rmdir()", "import os; os.kill(1, 9)", "!rm -r x", "!rm x", "out = !rm x", "%rm x",
    "%reset -f",
    "%reset", "%%bash\nls\nrm -r x", "%%sh\nrm x", "%sx rm x", "%pip uninstall -y x", "%time !rm x", "%%time\n!rm x",
    "import subprocess\nsubprocess.run(['rm', '-r', 'x'])", "import subprocess\nsubprocess.run('rm x', shell=True)",
    "from subprocess import run\nrun(['git', 'push', '--force'])", "import os\nos.system('rm x')",
    "import os\nos.system(cmd)",
    "import subprocess as sp\nsp.Popen(args)", "db.execute('DROP TABLE x')", "cur.execute('delete  from t')",
    "exec(code)", "eval(text)", "exec('import os; os.remove(1)')", "getattr(os, 'remove')('x')",
    "__import__('os').remove('x')",
    "import importlib\nimportlib.import_module('shutil').rmtree('x')", "import os\nos._exit(0)",
    "import shutil\nshutil.move(a, b)",
    "get_ipython().system('rm x')", "get_ipython().run_line_magic('reset', '-f')", "process.kill()",
    "metadata.drop_all(engine)",
    "import subprocess, sys\nsubprocess.run([sys.executable, '-c', 'import shutil; shutil.rmtree(1)'])",
    "rm a.txt", "rm -f b.txt", "rm *.txt", "rmdir x", "reset", "system rm x", "time rm a.txt", "pip uninstall x",
    "import os\nlist(map(os.unlink, files))", "from os import remove as r\nfor f in [r]:\n    f('x')",
    "from pathlib import Path\nlist(map(Path.unlink, files))", "import os\nlist(map(os.system, commands))",
    "command = 'rm x'\n!{command}", "!{commands[0]}", "!$command",
    "def f():\n    import os\n    return os.unlink('x')", "import os.path\nos.remove('x')",
]  # fmt: skip
CODE_GOOD = [
    "x = 1", "df.drop(columns=['a'])", "items.remove(3)", "names.pop()", "text.replace('a', 'b')", "!ls",
    "%pip install x",
    "%matplotlib inline", "%timeit sum(range(3))", "import subprocess\nsubprocess.run(['ls'])", "df.eval('a + b')",
    "del x",
    "print('shutil.rmtree(1)')", "# os.remove('x')", "'''doc: drop table x'''", "model.fit(X, y)", "await thing()",
    "import subprocess, sys\nsubprocess.run([sys.executable, 'x.py'])", "df.to_csv('x.csv')", "not python at all (",
    "eval('1 + 1')",
    "rm", "rm = 3", "rm.x", "mv in names", "time = 3", "time.sleep(1)", "pip install x", "x = bash(1)", "!echo {x}",
    "!ls {folder}/x", "!awk '{print $1}' x", "rm = 1\nrm",
    "df.query('a > 1')", "?print", "%%time\nx = 1", "plt.show()", "getattr(x, 'y')",
]  # fmt: skip


def test_destructive_code_needs_a_yes_and_everyday_code_does_not(folder: Path) -> None:
    for code in CODE_BAD:
        assert code_danger(code, folder)
    for code in CODE_GOOD:
        assert code_danger(code, folder) == ""


STANDING = """
AGENTS.md sub/CLAUDE.md claude.local.md GEMINI.md .cursorrules .claude/settings.json .cursor/rules/x.mdc .mcp.json
skills/birds/SKILL.md skills/birds/scripts/run.py .agents/skills/x/SKILL.md .ipyagent/rules/x.md .envrc .env
.vscode/tasks.json .vscode/settings.json .idea/workspace.xml .devcontainer/devcontainer.json x.code-workspace
conftest.py tests/conftest.py sitecustomize.py usercustomize.py lib/python3.11/site-packages/x.pth setup.py
pyproject.toml tox.ini noxfile.py .gitattributes .gitmodules .git/hooks/pre-commit .husky/pre-push
.pre-commit-config.yaml .github/workflows/x.yml .gitlab-ci.yml .circleci/config.yml Jenkinsfile Makefile
sub/makefile rules.mk justfile CMakeLists.txt package.json vite.config.ts Dockerfile Dockerfile.dev compose.yaml
.npmrc pip.conf .pypirc .condarc .cargo/config.toml build.rs jupyter_server_config.py jupyter_lab_config.json
.jupyter/custom/x.js .ipython/profile_default/startup/00.py ipython_config.py profile_x/startup/a.py .Rprofile
.vimrc .gdbinit .exrc ~/.bashrc $HOME/.zshrc ~/.profile ~/.ssh/authorized_keys ~/.config/systemd/user/x.service
~/.config/autostart/x.desktop ~/.gitconfig ~/Library/LaunchAgents/x.plist ~/.config/pip/pip.conf
~/.config/fish/config.fish /etc/cron.d/x /etc/profile.d/x.sh /var/spool/cron/root AGENTS.md::$DATA CLAUDE.MD
sub/../AGENTS.md
"""
ORDINARY = """
notes.md README.md data/agents.csv src/model.py x.json my_makefile.txt github/x.yml vscode.txt
results/environment.txt test_conftest.txt docs/claude.txt packages.json kernels/matmul.py skills.md skills/x.csv
/tmp/x.csv out/plot.png requirements.txt .gitignore config.json
"""


def test_a_file_that_others_obey_or_run_by_themselves_asks(folder: Path) -> None:
    """However it is written: by a tool, by code, by a command."""
    for path in [*STANDING.split(), "agents.md. ", "Conf\u200btest.py"]:
        assert in_force(path, folder).startswith("it writes ")
        shell = path if path[0] in "~$" else quote(path)
        commands = ["echo x >> {}", "echo x | tee -a {}", "cp new {}", "touch {}", "ls; cat new >{}"]
        if "/" not in path:
            commands += ["cd sub && echo x > {}", "wget https://example.com/{}"]
        for command in commands:
            assert shell_danger(command.format(shell), folder), command
        if path[0] == "$":
            continue
        for code in (
            "open({0!r}, 'w').write('x')", "with open({0!r}, mode='a') as f:\n    f.write('x')", "df.to_csv({0!r})",
            "p = Path({0!r})\np.write_text('x')", "name = {0!r}\nPath(name).write_bytes(b'')", "%%writefile {0}\nx",
            "shutil.copy('new', {0!r})", "f = os.path.join(base, {0!r})\njson.dump(x, open(f, 'w'))", "!echo x >> {1}",
        ):  # fmt: skip
            if "%%" in code and " " in path:
                continue
            assert code_danger(code.format(path, shell), folder), code


def test_an_ordinary_file_and_looking_at_one_that_others_obey_do_not_ask(folder: Path) -> None:
    for path in ORDINARY.split():
        assert in_force(path, folder) == ""
        assert in_force(str(folder / path), folder) == ""
        assert shell_danger(f"echo x >> {path} && cp empty {path}x", folder) == ""
        assert code_danger(f"open({path!r}, 'w').write('x')", folder) == ""
    for code in ("print(open('AGENTS.md').read())", "x = Path('pyproject.toml').read_text()\ndf.to_csv('x.csv')",
                 "if os.path.exists('conftest.py'): pass", "print('see AGENTS.md')", "files = ['Makefile']",
                 "open('x.txt', 'w').write(open('Makefile').read())"):  # fmt: skip
        assert code_danger(code, folder) == "", code
    for command in ("cat AGENTS.md && pytest", "git add Makefile", "cp Makefile new", "make -f Makefile",
                    "grep x .env | wc -l", "git config --get user.name", "git config user.email x@y", "pip config list",
                    "diff conftest.py a"):  # fmt: skip
        assert shell_danger(command, folder) == "", command


FROM_NOW_ON = r"""
crontab new
echo x | crontab -
git config core.hooksPath x
git config --global alias.x y
sudo tee /etc/cron.d/x
sed -i s/a/b/ Makefile
git config --add include.path x
curl -O https://x/conftest.py
ln -s new .envrc
bash -c 'echo x >> ~/.bashrc'
dd if=new of=.env
python -c 'open("conftest.py", "w")'
mkdir x && mv new .git/hooks/post-commit
"""


def test_a_command_that_has_something_run_from_now_on_asks(folder: Path) -> None:
    for command in FROM_NOW_ON.strip().splitlines():
        assert shell_danger(command, folder)
