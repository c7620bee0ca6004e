"""Secrets are found by their kind, in any spelling, and never repeated; ordinary lines are let through."""

from __future__ import annotations

import random
import sysconfig
import time
from pathlib import Path

import pytest

from ipyagent.redaction import Secret, find_secrets, refusal

# Put together here, so that no scanner takes this file for a leak.
TAIL = "Zq7XkV2m9TfLw4Rb8NcYh3Jd6Gs1Pu5E"
KEYS = [
    ("an Anthropic API key", f"sk-ant-api03-{TAIL}"),
    ("an OpenAI API key", f"sk-proj-{TAIL}"),
    ("an OpenAI API key", f"sk-{TAIL}{TAIL[:16]}"),
    ("an AWS access key", "AKIA" + "IOSFODNN7EXAMPLE"),
    ("a GitHub token", f"ghp_{TAIL}abcd"),
    ("a GitHub token", f"github_pat_11ABCDEFG0_{TAIL}"),
    ("a GitLab token", "glpat-" + TAIL[:20]),
    ("a Slack token", "xoxb-" + "123456789012-" + TAIL[:12]),
    ("a Google API key", "AIza" + TAIL + "abc"),
    ("a Stripe key", "sk_live_" + TAIL[:24]),
    ("a Twilio key", "SK" + "0123456789abcdef" * 2),
    ("a SendGrid key", f"SG.{TAIL[:22]}.{TAIL}"),
    ("a Hugging Face token", f"hf_{TAIL}"),
    ("an npm token", f"npm_{TAIL}abcd"),
    ("a PyPI token", f"pypi-AgEIcHlwaS5vcmc{TAIL}"),
    ("a DigitalOcean token", "dop_v1_" + "0123456789abcdef" * 4),
    ("a Databricks token", "dapi" + "0123456789abcdef" * 2),
    ("a Telegram bot token", f"123456789:AA{TAIL}a"),
    ("an Azure key", f"AccountKey={TAIL}{TAIL}=="),
    ("a signed web token", f"eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.{TAIL}"),
]
REST = [
    ("a PEM block", "-----BEGIN RSA PRIVATE KEY-----\nMIIEpAIBAAKCAQEA\n-----END RSA PRIVATE KEY-----"),
    ("a PEM block", "-----BEGIN OPENSSH PRIVATE KEY-----"),
    ("a PEM block", "-----BEGIN CERTIFICATE-----"),
    ("a password in a web address", "postgres://bob:hunter2@db.example.com/sales"),
    ("a password in a web address", "the mirror is https://me:p%40ss@example.org/simple"),
    ("a password in a web address", "redis://:s3cr3tpw@cache:6379"),
    ("a bearer token", f"Authorization: Bearer {TAIL}"),
    ("a login with its password", "Authorization: Basic dXNlcjpwYXNzd29yZA=="),
    ("a login with its password", "curl -u bob:hunter2 https://example.org"),
    ("a password", "the db password is hunter2!"),
    ("a password", "password: hunter2"),
    ("a password", "**Password:** hunter22"),
    ("a password", "PASSWORD=swordfish"),
    ("a password", 'password = "swordfish"'),
    ("a password", '{"password": "abcd1234!"}'),
    ("a password", "Passwort ist geheim123"),
    ("a password", "密码：abc12345"),
    ("a password", "Server=db;User Id=sa;Password=Sup3rSecret;"),
    ("a key or token", f'API_KEY = "{TAIL}"'),
    ("a key or token", "aws_secret_access_key = wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"),
    ("a key or token", "token: 8c7d6e5f4a3b2c1d9e8f"),
    ("a random key", f"FOO = '{TAIL}{TAIL[:9]}'"),
]


def test_each_kind_of_secret_is_found_and_never_repeated() -> None:
    for kind, text in KEYS + REST:
        memory = f"# Access\n\nFor the nightly job: {text}\nIt runs at two."
        found = find_secrets(memory, environ={})
        assert found[0] == Secret(kind, 3)
        told = refusal(found) + repr(found)
        value = text.split()[-1].strip("'\"`;*!{}")
        assert value not in told, kind
        assert "line 3" in told, kind


@pytest.mark.parametrize(
    "text",
    [
        "\uff53\uff4b-ant-api03-" + TAIL,  # full-width letters
        f"sk-ant-\u200bapi03-{TAIL[:10]}\u200b{TAIL[10:]}",  # invisible characters between
        f'curl -H "x-api-key: sk-ant-api03-{TAIL}"',
        f"(sk-ant-api03-{TAIL}).",
        f"key\n```\nsk-ant-api03-{TAIL}\n```",
    ],
)
def test_another_look_of_a_key_does_not_hide_it(text: str) -> None:
    assert find_secrets(text, environ={})


def test_what_only_speaks_of_a_secret_is_let_through() -> None:
    for line in [
        "password: required",
        "the password is stored in the vault, ask Kim",
        'password = os.environ["DB_PASSWORD"]',
        "password: str | None = None",
        "API_KEY=$ANTHROPIC_API_KEY",
        "export TOKEN=<your token>",
        "use sk-ant-xxxxxxxxxxxxxxxxxxxx as the key",
        "https://user:<password>@host/path and postgres://user:${PW}@host",
        "token = get_token()",
        "max_tokens = 32000 and the tokens: 123456 were cached",
        'sort_key = "region"; the primary key: order_id',
        "first pass: 2023-01-04 was clean; passengers: 2201 on board",
        "git commit 9f8e7d6c5b4a39281706f5e4d3c2b1a0deadbeef",
        "sha256 = e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
        'path = "data/Raw/2024/FileName01/AnotherFolder/Summary"',
        "sk-learn-compatible-estimators-2024 are in use",
        "http://localhost:8888/lab and https://docs.python.org:443/3/@x",
        "password_hash: bcrypt, secret_name: prod-db-2024-credentials",
    ]:
        assert find_secrets(line, environ={}) == []


def test_a_thousand_ordinary_lines_of_code_and_prose_raise_no_alarm() -> None:
    code = sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py"))
    lines = [line for file in code for line in file.read_text(errors="replace").splitlines() if len(line.strip()) > 8]
    here = Path(__file__).parents[3]
    for file in ("README.md", "CHANGELOG.md"):
        lines += (here / file).read_text(encoding="utf-8").splitlines()
    chosen = random.Random(7).sample(lines, 1_000)
    wrong = [line for line in chosen if find_secrets(line, environ={})]
    assert wrong == []


def test_the_value_of_a_secret_in_the_environment_counts_however_it_looks() -> None:
    environ = {"MY_SERVICE_TOKEN": "blue-Horse-77-battery", "PATH": "/usr/bin:/bin:/usr/local/bin"}
    found = find_secrets("say blue-Horse-77-battery at the door", environ=environ)
    assert [secret.kind for secret in found] == ["the value of the environment variable MY_SERVICE_TOKEN"]
    assert find_secrets("it is in /usr/bin:/bin:/usr/local/bin", environ=environ) == []


def test_what_a_file_held_before_does_not_stop_the_edit_that_takes_it_out() -> None:
    old = f"key sk-ant-api03-{TAIL}\npassword: hunter2"
    assert find_secrets(f"key sk-ant-api03-{TAIL}", known=old, environ={}) == []
    assert find_secrets(f"{old}\nghp_{TAIL}abcd", known=old, environ={}) == [Secret("a GitHub token", 3)]


def test_long_lines_take_no_longer_than_long_texts() -> None:
    for piece in ("a", "password", "a.b-", "Ab1+/", "x=", "password='", "http://", "bearer "):
        took = []
        for length in (4_000, 16_000):
            began = time.thread_time()
            find_secrets(piece * (length // len(piece)), environ={})
            took.append(time.thread_time() - began)
        assert took[1] < max(10 * took[0], 0.1), piece
