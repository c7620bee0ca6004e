"""Skills are read leniently and judged strictly, as the public specification and its validator have it."""

from __future__ import annotations

from pathlib import Path

from ipyagent.parts.skills.parse import FILE, Diagnostic, Skill, body_of, read_skill, violations


def made(tmp_path: Path, text: str | bytes, name: str = "my-skill") -> Path:
    folder = tmp_path / name
    folder.mkdir()
    (folder / FILE).write_bytes(text if isinstance(text, bytes) else text.encode())
    return folder


VALID = {
    "least": "---\nname: my-skill\ndescription: A test skill\n---\n# My Skill\n",
    "all fields": (
        "---\nname: my-skill\ndescription: A test skill\nlicense: MIT\ncompatibility: Python 3.11\n"
        "metadata:\n  author: Test\n  version: 1.0\nallowed-tools: Bash(git:*) Read\n---\nBody\n"
    ),
    "tools as a list": "---\nname: my-skill\ndescription: d\nallowed-tools:\n  - Read\n  - Write\n---\n",
    "windows line ends": "---\r\nname: my-skill\r\ndescription: A test skill\r\n---\r\nBody\r\n",
    "no last newline": "---\nname: my-skill\ndescription: A test skill\n---\nBody",
    "rule in the body": "---\nname: my-skill\ndescription: A test skill\n---\nBody\n\n---\n\nmore",
    "folded description": "---\nname: my-skill\ndescription: >\n  A test\n  skill\n---\n",
    "longest description": f"---\nname: my-skill\ndescription: {'x' * 1024}\n---\n",
}


def test_what_the_specification_allows_is_valid_and_read_without_a_word(tmp_path: Path) -> None:
    for case, text in VALID.items():
        (tmp_path / case).mkdir()
        folder = made(tmp_path / case, text)
        assert violations(folder) == [], case
        skill = read_skill(folder)
        assert isinstance(skill, Skill), case
        assert skill.name == "my-skill", case
        assert [problem for problem in skill.problems if "Windows" not in problem] == [], case
    for name in ("技能", "мой-навык", "навык", "café", "my-skill-2", "a", "a" * 64, "9", "日本語-スキル"):
        assert violations(made(tmp_path, f"---\nname: {name}\ndescription: d\n---\n", name)) == [], name


INVALID = {
    "upper case": ("---\nname: MySkill\ndescription: d\n---\n", "MySkill", "upper-case"),
    "upper case of another script": ("---\nname: НАВЫК\ndescription: d\n---\n", "НАВЫК", "upper-case"),
    "too long": (f"---\nname: {'a' * 70}\ndescription: d\n---\n", "a" * 70, "70 characters"),
    "leading hyphen": ("---\nname: -my\ndescription: d\n---\n", "-my", "hyphens"),
    "double hyphen": ("---\nname: my--skill\ndescription: d\n---\n", "my--skill", "hyphens"),
    "underscore": ("---\nname: my_skill\ndescription: d\n---\n", "my_skill", "letters, digits"),
    "another folder": ("---\nname: correct-name\ndescription: d\n---\n", "wrong-name", "differs"),
    "no name": ("---\ndescription: d\n---\n", "my-skill", "`name` is missing"),
    "no description": ("---\nname: my-skill\n---\n", "my-skill", "`description` is missing"),
    "empty description": ("---\nname: my-skill\ndescription:\n---\n", "my-skill", "not empty"),
    "unknown field": ("---\nname: my-skill\ndescription: d\ntags: [a]\n---\n", "my-skill", "no field tags"),
    "much too long": (f"---\nname: {'a' * 42_000}\ndescription: d\n---\n", "my-skill", "42,000 characters"),
    "long description": (f"---\nname: my-skill\ndescription: {'x' * 1100}\n---\n", "my-skill", "1,024"),
    "long compatibility": (
        f"---\nname: my-skill\ndescription: d\ncompatibility: {'x' * 550}\n---\n", "my-skill", "500"
    ),
    "no frontmatter": ("# My Skill\n", "my-skill", "no frontmatter"),
    "unclosed header": ("---\nname: my-skill\ndescription: d\n", "my-skill", "no closing"),
    "a list": ("---\n- just\n- a list\n---\n", "my-skill", "`key: value`"),
    "tools as a mapping": ("---\nname: my-skill\ndescription: d\nallowed-tools: {a: 1}\n---\n", "my-skill", "allowed"),
    "no compatibility": ("---\nname: my-skill\ndescription: d\ncompatibility: ''\n---\n", "my-skill", "not be empty"),
    "nested metadata": ("---\nname: my-skill\ndescription: d\nmetadata:\n  a: {b: c}\n---\n", "my-skill", "not a"),
    "tools with commas": (
        "---\nname: my-skill\ndescription: d\nallowed-tools: Read, Write\n---\n", "my-skill", "not commas"
    ),
    "closed by dots": ("---\nname: my-skill\ndescription: d\n...\n", "my-skill", "closed by"),
    "twice": ("---\nname: my-skill\nname: my-skill\ndescription: d\n---\n", "my-skill", "twice"),
}


def test_what_the_specification_forbids_is_told(tmp_path: Path) -> None:
    for at, case in enumerate(INVALID):
        here = tmp_path / str(at)
        here.mkdir()
        text, name, said = INVALID[case]
        assert any(said in line for line in violations(made(here, text, name))), violations(here / name)


def test_a_folder_without_its_file_is_no_skill(tmp_path: Path) -> None:
    assert violations(tmp_path / "none") == [f"{tmp_path / 'none'} is no folder"]
    assert violations(tmp_path) == [f"there is no {FILE}"]


LENIENT = {
    "unquoted colon": ("name: my-skill\ndescription: Use this when: data comes", "my-skill", "colon"),
    "byte order mark": ("\ufeffNAME", "my-skill", "byte order mark"),
    "other folder": ("name: other\ndescription: d", "other", "differs"),
    "bad characters": ("name: My_Skill\ndescription: d", "My_Skill", "letters, digits"),
    "numeric name": ("name: 123\ndescription: d", "my-skill", "the folder's is taken"),
    "no name": ("description: d", "my-skill", "the folder's is taken"),
    "list as description": ("name: my-skill\ndescription: [one, two]", "my-skill", "joined"),
    "malformed tools": ("name: my-skill\ndescription: d\nallowed-tools: {Bash: '*'}", "my-skill", "malformed"),
    "a tag that builds": ("name: my-skill\ndescription: d\nx: !!python/object/apply:os.system [id]", "my-skill", "tag"),
}


def test_what_can_be_understood_is_loaded_with_a_warning(tmp_path: Path) -> None:
    for case, (header, name, warned) in LENIENT.items():
        text = f"---\n{header}\n---\nBody\n"
        if header.startswith("\ufeff"):
            text = "\ufeff---\nname: my-skill\ndescription: d\n---\nBody\n"
        (tmp_path / case).mkdir()
        skill = read_skill(made(tmp_path / case, text))
        assert isinstance(skill, Skill), case
        assert (skill.name, body_of(skill)) == (name, "Body"), case
        assert any(warned in problem for problem in skill.problems), skill.problems
        assert skill.allowed_tools == (), case


BOMB = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
BOMB += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 12)]
HOPELESS: dict[str | bytes, str] = {
    "---\nname: my-skill\n---\n": "line 1: no description",
    "---\nname: my-skill\ndescription: ''\n---\n": "line 1: no description",
    "no header at all": "line 1: no frontmatter",
    b"\xff\xfe\x00\x01 not text": "no frontmatter",
    "---\nname: my-skill\ndescription: d": "line 1: the frontmatter has no closing",
    "---\n" + "\n".join(BOMB) + "\nname: my-skill\ndescription: d\n---\n": "values",
}


def test_what_is_hopeless_is_skipped_with_the_file_and_the_line(tmp_path: Path) -> None:
    for number, (text, why) in enumerate(HOPELESS.items()):
        (tmp_path / str(number)).mkdir()
        got = read_skill(made(tmp_path / str(number), text))
        assert isinstance(got, Diagnostic)
        assert (got.skipped, got.file.name) == (True, FILE)
        assert got.why.startswith("line ")
        assert why in got.why


def test_an_empty_value_is_empty(tmp_path: Path) -> None:
    text = "---\nname: my-skill\ndescription: d\nlicense:\nmetadata:\n  author:\n  version: 1.0\n  on: true\n---\n"
    skill = read_skill(made(tmp_path, text))
    assert isinstance(skill, Skill)
    assert skill.metadata == {"author": "", "version": "1.0", "on": "true"}
    assert (skill.license, skill.manual) == ("", False)


def test_unknown_keys_are_kept_and_tools_are_for_reading_only(tmp_path: Path) -> None:
    skill = read_skill(
        made(tmp_path, "---\nname: my-skill\ndescription: d\ntags: [a, b]\nallowed-tools: Bash(git log:*) Read\n---\n")
    )
    assert isinstance(skill, Skill)
    assert skill.extra == {"tags": ["a", "b"]}
    assert skill.allowed_tools == ("Bash(git log:*)", "Read")
