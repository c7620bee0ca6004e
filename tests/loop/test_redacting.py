"""What looks like a secret is taken out, the same way each time, and nothing else is touched."""

from __future__ import annotations

import base64
import json
import random
import time
import uuid
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_linear import grows
from test_secrets_everywhere import CELLS, KINDS, TABLES

import ipyagent
from ipyagent.kernel.output import OutputLog
from ipyagent.redaction import (
    Redactor,
    find_secrets,
    mask,
    mask_named,
    redacted,
    secrets_in,
    stand_ins,
    without_keys,
)
from ipyagent.redaction.names import name_strength
from ipyagent.redaction.stream import MOMENT, Stream
from ipyagent.tools.answers import capped

ANTHROPIC = "sk-ant-" + "api03-" + "Qm4NcYh3Jd6Gs1Pu5EZq7XkV2m9TfLw4Rb8aZ9"
GITHUB = "ghp_" + "aB3dE6gH9jK2mN5pQ8sT1vW4yZ7aB3dE6gH9"
STRIPE = "sk_live_" + "4eC39HqLyjWDarjtT1zdp7dc"
TELEGRAM = "123456789:" + "AAHk3jd8fKJ3kd93kd9zQ7pR2mW5xB8nC1v"
BODY = "MIIEowIBAAKCAQEAz9" * 3 + "\n"
GIVEN = Path(ipyagent.__file__).parents[2] / "shared" / "data" / "tables"


def test_a_secret_gives_way_to_its_kind_and_length() -> None:
    for text, shown in [
        (f"the key is {ANTHROPIC}.", "the key is [secret: Anthropic API key, 51 characters]."),
        (f"    3\tTOKEN={GITHUB}", "    3\tTOKEN=[secret: GitHub token, 40 characters]"),
        (f'{{"stripe": "{STRIPE}"}}', '{"stripe": "[secret: Stripe key, 32 characters]"}'),
        (TELEGRAM, "[secret: Telegram bot token, 45 characters]"),
        ("postgres://ann:s3cr3tpw@db/x", "postgres://ann:[secret: password in a web address, 8 characters]@db/x"),
        ("DB_PASSWORD: 'correct horse 1'", "DB_PASSWORD: '[secret: password, 15 characters]'"),
        ("curl -u ann:s3cr3tpw9 https://x", "curl -u ann:[secret: login with its password, 9 characters] https://x"),
        (
            f"-----BEGIN RSA PRIVATE KEY-----\n{BODY * 4}-----END RSA PRIVATE KEY-----\nafter",
            "-----BEGIN RSA PRIVATE KEY-----[secret: private key, 220 characters]\n"
            "-----END RSA PRIVATE KEY-----\nafter",
        ),
    ]:
        made, kinds = redacted(text)
        assert (made, len(kinds)) == (shown, 1)
        assert redacted(made) == (made, []), text  # what was taken out stays as it is
        assert len(stand_ins(made)) == 1, text


def test_the_value_of_a_secret_of_the_environment_is_known_wherever_it_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEATHER_API_KEY", "q7f2zz81mmpl")
    monkeypatch.setenv("WEATHER_NAME", "q7f2zz81mmpx")
    assert redacted("sent q7f2zz81mmpl, q7f2zz81mmpx")[0] == (
        "sent [secret: value of WEATHER_API_KEY, 12 characters], q7f2zz81mmpx"
    )


def piecewise(said: str, size: int) -> str:
    stream, made = Stream(Redactor()), ""
    for at in range(0, len(said), size):
        stream._due = 0
        made += stream.feed(said[at : at + size])
    return made + stream.end()


OPENED = {
    "a list": "{'user': ['ann'], 'password': ['@', '#']}",
    "an object": '{"password":{"0":"@","1":"#"}}',
    "a list over lines": "passwords = [\n  '@',\n  '#',\n]",
    "a pair": "[('user', 'ann'), ('password', '@'), (\"secret\", \"#\")]",
    "a YAML list": "users:\n  passwords:\n    - @\n    - '#'\n  names:\n    - ann",
    "a YAML list with numbered lines": "     1\tpasswords:\n     2\t  - @\n     3\t  - #",
    "a YAML block": "password: |\n  @\nother: 1",
    "the next line": "password:\n@\n",
    "an element": "<db><password>@</password><ns:secret kind='x'>#</ns:secret></db>",
    "an option": "mysql --password @ db; login --client-secret '#'",
    "a login": "machine db.example login ann password @",
    "escaped quotes": r'"{\"password\": \"@\"}", {\\\"passwd\\\": \\\"#\\\"}',
    "a blank that does not break": "password\u00a0:\u00a0@",
    "a Spanish column": "usuario,contraseña\nann,@\nbob,#",
    "a French column": "utilisateur,mot de passe\nann,@\nbob,#",
}
"""Where a value stands that only what was opened before it gives away."""


def test_what_a_secrets_name_opens_holds_secrets() -> None:
    for text in OPENED.values():
        for each in (said := text.replace("@", "tigerlily9").replace("#", "mK4zWq81xB"), f"first\n{said}\nlast\n"):
            shown, kinds = redacted(each)
            assert "tigerlily9" not in shown, text
            assert "mK4zWq81xB" not in shown, text
            assert len(kinds) == text.count("@") + text.count("#")
            for size in (1, 3, 11):
                assert piecewise(each, size) == shown, text


ROWS = pd.DataFrame({"user": ["ann", "bob"], "password": ["tigerlily9", "mK4zWq81xB"], "city": ["Ulm", "Bonn"]})
NOTED = ROWS.assign(note=["first\nsecond", "a\n\nb"])[["user", "note", "password", "city"]]
AUTH = base64.b64encode(b"ann:tigerlily9").decode()
SHAPES = {
    "quoted line breaks": NOTED.to_csv(index=False),
    "quoted line breaks, semicolons": NOTED.to_csv(index=False, sep=";", quoting=1),
    "quoted line breaks, tabs": NOTED.to_csv(sep="\t"),
    "csv in a string": repr(ROWS.to_csv(index=False)),
    "csv in JSON": json.dumps({"content": NOTED.to_csv(index=False)}),
    "two lines of heads": pd.concat({"a": ROWS, "b": ROWS}, axis=1).to_csv(),
    "names and values": ROWS.melt(id_vars="user").to_csv(index=False),
    "names and values printed": ROWS.melt(id_vars="user").to_string(),
    "on its side": ROWS.T.to_string(),
    "on its side, csv": ROWS.T.to_csv(),
    "on its side, html": ROWS.T.to_html(),
    "in the index": ROWS.set_index("password").to_string(),
    **{f"to_json {how}": ROWS.to_json(orient=how) for how in ("split", "table", "records", "index", "columns")},
    "to_json split, indented": ROWS.to_json(orient="split", indent=2),
    "json of json": json.dumps(ROWS.to_json(orient="split")),
    "json lines": ROWS.to_json(orient="records", lines=True),
    "a dict of lists": str(ROWS.to_dict("tight")),
    "a list of rows": json.dumps([list(ROWS), *ROWS.to_numpy().tolist()], indent=1),
    "tuples": repr([tuple(ROWS), *ROWS.itertuples(index=False, name=None)]),
    "a row of another length": '[["user", "password", "n"], ["all"], ["ann", "tigerlily9", 1]]',
    "insert": "INSERT INTO `u` (`id`, `password`) VALUES\n(1, 'tigerlily9'),\n(2, 'mK4zWq81xB');",
    "copy": "COPY public.u (id, password) FROM stdin;\n1\ttigerlily9\n2\tmK4zWq81xB\n\\.\n",
    "html": ROWS.to_html(),
    "html in a line": ROWS.to_html(index=False).replace("\n", ""),
    "html without th": "<table><tr><td>user</td><td>password</td></tr><tr><td>ann</td><td>tigerlily9</td></tr></table>",
    "html, tags in cells": "<tr><th><b>user</b></th><th class='x'><b>password</b></th></tr>"
    "<tr><td>ann</td><td><code>tigerlily9</code></td></tr>",
    "a list of terms": "<dl><dt>user</dt><dd>ann</dd><dt>password</dt><dd>tigerlily9</dd></dl>",
    "a property list": "<dict><key>password</key><string>tigerlily9</string></dict>",
    "attributes": '<add key="Password" value="tigerlily9" /><property name="db.password">mK4zWq81xB</property>',
    "a form": '<input type="password" name="pw" value="tigerlily9">',
    "latex": "user & password \\\\\n\\midrule\nann & tigerlily9 \\\\\nbob & mK4zWq81xB \\\\\n\\bottomrule\n",
    "pgpass": "db.example:5432:sales:ann:tigerlily9\n*:*:*:bob:mK4zWq81xB\n",
    "odbc": "Driver={X};Server=db;UID=sa;PWD={tigerlily9!};Encrypt=yes",
    "jdbc": "jdbc:sqlserver://db:1433;user=sa;password=tigerlily9;x=1 jdbc:x://h/?user=a&password=mK4zWq81xB",
    "jdbc oracle": "jdbc:oracle:thin:scott/tigerlily9@db.example:1521/orcl",
    "sqlplus": "sqlplus scott/tigerlily9@//db.example:1521/orcl",
    "netrc": "machine api.example\n  login ann\n  password tigerlily9\nmachine b login bob password mK4zWq81xB\n",
    "my.cnf": "[client]\nuser = ann\npassword = tigerlily9x\n",
    "a plain word below a user": "user: ann\npassword: tigerlily\n",
    "docker": f'{{"auths": {{"https://index.example/v1/": {{"auth": "{AUTH}"}}}}}}',
    "npmrc": f"_auth = {AUTH}",
    "a variable's default": 'variable "db_password" {\n  default = "tigerlily9"\n}\n',
    "an address in an address": "next=https%3A%2F%2Fx%2F%3Fpassword%3Dtigerlily9%26b%3D1",
    "a connection in an address": "odbc_connect=Server%3Ddb%3BPWD%3Dtigerlily9%3BEncrypt%3Dyes",
    "a part of a form": 'Content-Disposition: form-data; name="password"\r\n\r\ntigerlily9\r\n--b0--\r\n',
    "a tuple": "requests.get(url, auth=('ann', 'tigerlily9')), HTTPBasicAuth('bob', 'mK4zWq81xB')",
    "a subscript": "config['password'] = 'tigerlily9'",
    "an unwrapped secret": "Conf(user='ann', key=SecretStr('tigerlily9'))",
    "users of a database": "CREATE USER a IDENTIFIED BY 'tigerlily9'; CREATE ROLE b WITH LOGIN PASSWORD 'mK4zWq81xB';",
    "a container's variable": '[{"name": "DB_PASSWORD", "value": "tigerlily9"}]\n- name: DB_PASSWORD\n',
    "commands": "sshpass -p tigerlily9 ssh x; mysql -uann -pmK4zWq81xB sales",
    "files of settings": "requirepass tigerlily9\nENV DB_PASSWORD mK4zWq81xB\n",
    "signed": "https://x.blob.example/c?sv=2020&sig=tigerlily9mK4zWq81xB2R5tRd0PzX2q%3D&se=1",
}  # fmt: skip
"""What a secret's name stands above, before, or around; and what takes a password without a name."""
WHOLE_ONLY = {
    "rows before their names": '{"data": [["ann", "tigerlily9"]], "columns": ["user", "password"]}',
    "a Series": repr(ROWS["password"]),
    "an Index": repr(ROWS.set_index("password").index),
    "a cluster's secret": "apiVersion: v1\nkind: Secret\nstringData:\n  primary: tigerlily9\n",
    "a sensitive output": '{"db": {"sensitive": true, "type": "string", "value": "tigerlily9"}}',
}
"""What is only known by what stands behind it, or far above."""
HASHES = (
    "$6$Zq7XkV2m$9TfLw4Rb8NcYh3Jd6Gs1Pu5E9TfLw4Rb8NcYh3Jd6Gs1Pu5EaaBBccDDee",
    "$y$j9T$F5Jx5fExrKuPp53xLKQ..1$X3DX6M94c7o",
    "$apr1$hRwXq1Zy$5Bv7o9m3o8w6o6Ck7k9q1.", "$2b$12$c4WoMPo3SXsafkva.HHa6uXQZWr7oboPiC2bT/r7q1BB8I2s0BRqC",
    "{SHA}W6ph5Mm5Pz8GgiULbPgzG37mj9g=", "{SSHA}W6ph5Mm5Pz8GgiULbPgzG37mj9gabcd1",
    "$argon2id$v=19$m=65536,t=3,p=4$Zq7XkV2m9TfLw4Rb8NcY$h3Jd6Gs1Pu5EZq7XkV2m9TfLw4Rb8NcYh3Jd6Gs1Pu5",
    "pbkdf2_sha256$260000$Zq7XkV2m9TfL$w4Rb8NcYh3Jd6Gs1Pu5EZq7XkV2m9TfLw4Rb8NcY=",
    "scrypt:32768:8:1$Zq7XkV2m9TfLw4Rb$8NcYh3Jd6Gs1Pu5EZq7XkV2m9TfLw4Rb8NcYh3Jd6Gs1Pu5E",
    "*2470C0C06DEE42FD1618BB99005ADCA2EC9D1E19",
)  # fmt: skip


@pytest.mark.parametrize("name", [*SHAPES, *WHOLE_ONLY])
def test_a_layout_hides_no_secret(name: str) -> None:
    text = {**SHAPES, **WHOLE_ONLY}[name]
    for said in (text, f"first\n{text}\nlast\n"):
        shown, _ = redacted(said, environ={})
        assert [value for value in ("tigerlily", "mK4zWq81xB", AUTH) if value in shown] == []
        assert not said.endswith("last\n") or (shown.startswith("first\n") and shown.endswith("last\n"))
        assert redacted(shown, environ={}) == (shown, [])
        assert "tigerlily" not in mask(said)
        for size in () if name in WHOLE_ONLY else (1, 16):
            made = piecewise(said, size)
            assert [value for value in ("tigerlily", "mK4zWq81xB", AUTH) if value in made] == [], size


@pytest.mark.parametrize("hashed", HASHES)
def test_the_hash_of_a_password_is_a_secret(hashed: str) -> None:
    body = hashed.split("$")[-1] if "$" in hashed else hashed.strip("*").partition("}")[2] or hashed[1:]
    for said in (f"ann:{hashed}:19000:0:99999:7:::\nlast", f"ann:{hashed}\n", f"pw = '{hashed}'"):
        assert body[4:-4] not in redacted(said, environ={})[0]
        for size in (1, 16):
            assert body[4:-4] not in piecewise(said, size)


@pytest.mark.skipif(not GIVEN.is_dir(), reason="tables that stand beside the project")
def test_real_tables_hold_no_secret_in_any_layout() -> None:
    for file in sorted(GIVEN.glob("*.csv")):
        frame = pd.read_csv(file).head(300)
        for said in (
            file.read_text("utf-8", "replace"), frame.to_json(orient="split"), frame.to_html(), frame.to_string(),
            frame.head(40).T.to_csv(), frame.head(40).melt().to_csv(), repr(frame.to_csv()),
            str(frame.to_dict("tight")),
        ):  # fmt: skip
            assert secrets_in(said, environ={}) == [], file


NAMED_SO = (
    "Signature SoHo Suites", "Secret Garden Ltd", "Secret Garden", "Secret", "Signature", "Password Manager Pro",
    "API Key Services", "Token Ring", "Private Key West", "Access Code Review", "Cookie Monster", "PIN Pad",
    "Key West", "Secret-Garden-2", "Password-Safe-3", "The Secret Garden", "密码管理器", "密钥服务公司", "Access Key",
)  # fmt: skip
"""Customers, hotels and products whose names begin as a secret's does."""
BELOW = ("Green-Valley-2020", "Easyliving-harlem", "a1b2c3-room", "R2D2-Unit-9988776655443", "Studio54")


def shapes(rows: list[tuple[str, int, str]]) -> dict[str, str]:
    frame = pd.DataFrame(rows, columns=["customer", "n", "city"])
    marked = "| customer | n | city |\n|---|---|---|\n"
    return {
        "csv": frame.to_csv(index=False),
        "csv without a head": frame.to_csv(index=False, header=False),
        "tabs": frame.to_csv(index=False, sep="\t"),
        "semicolons": frame.to_csv(index=False, sep=";", header=False),
        "frame": frame.to_string(),
        "frame without an index": frame.to_string(index=False),
        "rows of a frame": frame.to_string(header=False),
        "series": frame["customer"].to_string(),
        "counts": frame["customer"].value_counts().to_string(),
        "html": frame.head(3).to_html(),
        "html as text": "\n".join("  ".join(map(str, row)) for row in rows),
        "bars": "\n".join(" | ".join(map(str, row)) for row in rows),
        "markdown": marked + "".join(f"| {a} | {n} | {b} |\n" for a, n, b in rows),
        "records": frame.to_json(orient="records", indent=1, force_ascii=False),
        "lists": str(frame.to_dict("list")),
        "lines": "customer\n" + "\n".join(row[0] for row in rows),
        "pairs": "".join(f"{a}: A-77-x\n" for a, _, _ in rows if a not in ("Secret", "Access Key")),
    }


def test_a_row_that_begins_as_a_secrets_name_is_no_head() -> None:
    for name in NAMED_SO:
        for at in (0, 1):
            cells = [*BELOW[:at], name, *BELOW[at:]]
            rows = [(cell, 3 * number + 1, "New York City") for number, cell in enumerate(cells)]
            for shape, said in shapes(rows).items():
                for text in (said, f"Here are the rows:\n{said}\n"):
                    assert redacted(text, environ={}) == (text, []), shape
                if at == 1 and shape != "html":
                    assert piecewise(said, 31) == said, shape


def test_a_cell_that_is_a_secrets_name_as_a_whole_is_a_head() -> None:
    for head in ["password", "api_key", "API key", "db_password", "contraseña", "Password", "User Password",
                 "password_2", "password2", "password-old", "api_key_openai", "PROD_DB_PASSWORD",
                 "dbPassword", "Secret Access Key"]:
        for separator in [",", ";", "\t", " | ", "    "]:
            said = separator.join(["user", head, "city"]) + "\n" + separator.join(["ann", "mK4zWq81xB", "Ulm"])
            for text in (said, f"Here it is:\n{said}\n", f"Found 12 files.\n\n{said}\n", f"a.csv is read\n{said}"):
                assert "mK4zWq81xB" not in redacted(text)[0], text
                assert "Ulm" in redacted(text)[0], (head, separator)


def test_our_own_source_has_no_false_alarm() -> None:
    for path in Path(ipyagent.__file__).parent.rglob("*.py"):
        assert secrets_in(path.read_text("utf-8")) == [], path


def test_tables_have_no_false_alarm() -> None:
    made = random.Random(4)
    rows = [
        {"id": str(uuid.UUID(int=made.getrandbits(128))), "token": n, "key": f"k{n}", "x": made.random(), "auth": "no"}
        for n in range(2_000)
    ]
    assert secrets_in(json.dumps(rows, indent=1)) == []
    assert secrets_in(base64.encodebytes(made.randbytes(200_000)).decode()) == []


@given(st.text(max_size=300), st.sampled_from((ANTHROPIC, GITHUB, STRIPE)), st.text(max_size=300))
def test_a_key_is_found_in_any_text(before: str, key: str, after: str) -> None:
    text = f"{before} {key} {after}"
    made, _ = redacted(text)
    assert key not in made
    assert redacted(made)[0] == made
    assert redacted(text)[0] == made


def test_the_user_is_told_once_and_may_turn_it_off() -> None:
    told: list[str] = []
    on = [True]
    redact = Redactor(lambda: on[0], told.append)
    assert redact("nothing") == "nothing"
    assert told == []
    redact.of("the result of `python`")(GITHUB)
    redact(STRIPE)
    redact.of("the result of `shell`")(STRIPE)
    assert told == [
        "something that looks like a secret (GitHub token) was hidden from the model in the result of `python`; "
        "if it is not one: IPyAgent.redact_secrets = False"
    ]
    on[0] = False
    assert redact(GITHUB) == GITHUB


def test_the_folder_that_a_shell_is_in_is_no_password() -> None:
    """Met in a folder with a digit in its name: the path of every skill was masked."""
    environ = {"PWD": "/home/ann/dev/Project17", "OLDPWD": "/home/ann/x9Zk2Qw/", "KEY_FILE": str(Path(__file__))}
    for text in (
        "Folder: /home/ann/dev/Project17/skills/profile", "PWD=/home/ann/dev/Project17", "pwd: /home/ann/x9Zk2Qw/a",
        f"cat {Path(__file__)}", "OLDPWD=C:\\Users\\ann7\\work",
    ):  # fmt: skip
        assert secrets_in(text, environ=environ) == [], text
        assert find_secrets(text, environ=environ) == [], text
    assert len(secrets_in("x Zq7XkV2m9TfLw4Rb8NcY", environ={"MY_TOKEN": "Zq7XkV2m9TfLw4Rb8NcY"})) == 1
    assert len(secrets_in("pwd=Zq7XkV2m9Tf", environ={})) == 1


def test_bytes_that_are_no_text_keep_their_length() -> None:
    redact = Redactor()
    assert redact.raw(f"GH={GITHUB}\n".encode()) == b"GH=[secret: GitHub token, 40 characters]\n"
    picture = b"\x89PNG\xff\x00" + bytes(range(256)) * 20
    assert redact.raw(picture) == picture
    made = redact.raw(picture + f" {GITHUB} ".encode() + picture)
    assert made == picture + b" " + b"*" * 40 + b" " + picture


@pytest.mark.parametrize("key", [ANTHROPIC, GITHUB, STRIPE, "xai-" + "Qm4NcYh3Jd6Gs1Pu5EZq7XkV2m9T", "sk-1234abcd"])
def test_what_a_server_says_is_shown_without_keys_of_any_kind(key: str) -> None:
    assert without_keys(f"invalid key {key} (request 7)") == "invalid key [key] (request 7)"
    assert without_keys(f"https://{key}@host/v1: no such host") == "https://[key]@host/v1: no such host"
    assert without_keys("own-value-1 is wrong", "own-value-1") == "[key] is wrong"


HARMLESS = (
    # what only speaks of secrets
    "the password is wrong; ask for another token",
    "token = os.environ['TOKEN']\npassword = getpass()",
    "tokens: 51234, max_tokens=32000, key=value, keyboard: qwerty12",
    "session_id=3f2a9c1b7d8e4f60, next_page_token=CAEQAA1234567890",
    "https://user:password@host/ and git@github.com:a/b.git",
    "sk-ant-xxxxxxxxxxxxxxxxxxxxxxxx and ghp_XXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXX",
    "d41d8cd98f00b204e9800998ecf8427e 123e4567-e89b-12d3-a456-426614174000",
    "-----BEGIN CERTIFICATE-----\n" + BODY * 3 + "-----END CERTIFICATE-----",
    mask(f"KEY={ANTHROPIC}"),
    # what a secret's name opens and is none
    "password: str\nname: str\n", "passwords = ['short', 'long', 'with a digit']", "<password>string</password>",
    "secrets:\n  - name: db\n    path: a/b\n", "--password PASSWORD", "password reset2024 was sent",
    "('password', 'required')", "password:\n\nWrite it down.", "tokens = ['w0rd1x', 'w0rd2x']",
    # what looks like a layout of secrets
    "uses: actions/checkout@v4 and octo/repo2@9f8e7d6c, npm i @scope/pkg9@1.2.3",
    "a.py:1200:x: y\nhttp://localhost:8888:x\n[fe80:1234:ab:cd:ef12]\n2024:12:30:ab:cd9",
    "it costs $5$ or $6$ a piece; $x$ and $y$ are variables of the formula $y$=x",
    "login(user, password)\ncall('ann', 'Green-Valley-2020')\n[('password', 'realm'), ('a1b2c3d', 'x9y8z7w6')]",
    "df[['user', 'city']]\nrows = [['ann', 'Green-Valley-2020']]",
    "<ul><li>Secret</li><li>Green-Valley-2020</li></ul><label>Password</label>",
    "user = ann\npassword = required\n[login]\npassword: str\n",
    "name,value\nregion,Green-Valley-2020\ncity,R2D2-Unit-99\n",
    'f"Server={host};UID={user};PWD={password};" {"kind": "Secretary", "data": 5}',
    "docker run -p3306:3306 mysql; mysql --protocol=tcp -h db9.example",
    # ordinary rows and prose
    "69   Signature SoHo Suites   NaN  New York City\n754   Easyliving-harlem   NaN  New York City",
    "customer,note\nSecret Garden Ltd,a\nGreen-Valley-2020,b\nOther-Company-77,c",
    "0  Password Manager Pro   12\n1  Office-365-Business   10\n2  Norton-360-Deluxe   9",
    "The password field is empty. Next: Alpha-Beta-77",
    "Secret Garden\na1b2c3d4 park\n",
    "user\nPassword\nAlpha-Beta-77\n",
    '{"credentials": {"type": "oauth2", "user": "ann7smith", "secretName": "tls-cert-2"}}',
    "commit 9f8e7d6c5b4a39281706f5e4d3c2b1a0deadbeef\nAuthor: Ann\n",
    "sha256,file\ne3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855,a.csv\n",
    "id,md5,password_hash,tokens,key\n1,d41d8cd98f00b204e9800998ecf8427e,bcrypt,512,region\n",
    "123e4567-e89b-12d3-a456-426614174000 is the id of the run",
    "model  tokens  cost\nopus   51234   0.25\nhaiku  8123    0.01\n",
    "data:image/png;base64," + base64.b64encode(random.Random(5).randbytes(600)).decode(),
    "The password and the secret token are kept in the vault, ask Kim.\nNext line of prose, with words, and more\n",
    "key,value\nregion,eu-west-1\nrun,123e4567-e89b-12d3-a456-426614174000\n",
    "from secrets import token_hex\nimport sqlite3\ntoken = token_hex(16)\npassword = request.form['password']\n",
    "user  password_set  secret_count\nann   True          3\nbob   False         12\n",
    '{"password": "string", "token": null, "max_tokens": 32000, "secretName": "prod-db"}',
    "def login(user, password, token):\n    return call(user, password, token)\n",
    "Loading… 50%\rLoading… 100%\nThe key idea is simple: sort by key=len.\n",
)


def test_what_is_no_secret_stays_as_it_is_whole_or_in_pieces() -> None:
    for said in HARMLESS:
        assert redacted(said, environ={}) == (said, [])
        stream = Stream(Redactor())
        assert "".join(map(stream.feed, said)) + stream.end() == piecewise(said, 3) == said


def test_pieces_give_away_no_more_than_the_whole() -> None:
    for size in [1, 3, 16, 1_000]:
        for name in [*KINDS, *TABLES]:
            said, secret = KINDS.get(name, (TABLES.get(name, "").format(*CELLS), ""))
            said = f"begin {said} and, then\nmore of it" if secret else f"begin \n{said}\nmore of it"
            stream = Stream(Redactor())
            pieces = [stream.feed(said[at : at + size]) for at in range(0, len(said), size)]
            made = "".join(pieces) + stream.end()
            assert "[secret: " in made, (size, name)
            assert made.startswith("begin "), (size, name)
            assert made.endswith("more of it"), (size, name)
            for each in [secret] if secret else [cell for cell in CELLS if cell in said]:
                assert each not in made, (size, name)
                assert each not in mask(said), (size, name)


def test_a_stream_holds_back_no_ordinary_word_longer_than_a_moment() -> None:
    stream = Stream(Redactor())
    for piece in ("Working", "…", " on", " it: 50%", "\n", "done", " (3 files)"):
        assert stream.feed(piece) == piece
        time.sleep(MOMENT)
    assert stream.end() == ""


def test_what_a_look_costs_is_in_proportion_to_the_text_and_not_to_its_pieces() -> None:
    said = "rows by key and token count, total 12.5 of the table of sales " * 200

    def fed(size: int) -> float:
        stream, began = Stream(Redactor()), time.thread_time()
        made = [stream.feed(said[at : at + size]) for at in range(0, len(said), size)]
        assert "".join([*made, stream.end()]) == said
        return time.thread_time() - began

    assert min(fed(1) for _ in range(3)) < 30 * min(fed(500) for _ in range(3))


UNITS = (
    '["password","a"],[', '"columns":["password"],', "(password,a) VALUES (1,'", "<tr><th>password</th>",
    "<td>password",
    'password,a\n"b\n', '"password\\n', "a/b@", ":5432:", "$6$a", ";pwd={", 'name="password" value="', "&sig=",
    "auth=(\'a\',",
    "password=[", "'password', '", "<password>", "password:\n- a1b2c3d\n", "--password ", "login a password ",
    "password: |\n  ",
    "xoxb-", "eyJ", "eyJa.", "eyJ-", "SG.", "sk-", "sk-ant-", "sk-a1", ":AA", "12345678:AA", "/api/webhooks/1", "AIza",
    "ghp_",
    "://a:", "://", "a@", "bearer ", "bearer", "authorization: basic ", " -u a:", "cookie: ", "cookie", "a=b; ",
    "password",
    "password='", "password is ", "key: ", "token=", "secret,", "password,a\n", "password\n", "| password | a |\n",
    "token\t",
    "-----BEGIN ", "-----BEGIN PRIVATE KEY-----", "-----BEGIN PRIVATE KEY-----\nab", "a.b-", "Ab1+/", "M" * 24 + ".",
    "MNO",
    " ", "\t", '"', '"a",', "[secret: ", "…[", "密码:", "password  a\n", "apikey ", "pass", "_key", "a", "1", "a1-",
)  # fmt: skip


def streamed(said: str) -> None:
    stream = Stream(Redactor())
    for at in range(0, len(said), 500):
        stream.feed(said[at : at + 500])
    stream.end()


@pytest.mark.timeout(900)
@pytest.mark.parametrize("work", [secrets_in, mask, pytest.param(streamed, marks=pytest.mark.slow)])
def test_finding_secrets_is_linear_in_hostile_text(work: Callable[[str], object]) -> None:
    slow = {unit: grows(work, lambda size, unit=unit: unit * (size // len(unit))) for unit in UNITS}
    assert {unit: seen for unit, seen in slow.items() if seen} == {}


def test_a_colour_or_an_escape_before_a_key_does_not_hide_it() -> None:
    for key in [ANTHROPIC, GITHUB, STRIPE, TELEGRAM]:
        for before in ["\x1b[31m", "\x1b[1;38;5;9m", "\\u001b[0m", "\\n", "%3D"]:
            text = f"error: {before}{key}\x1b[0m\n"
            assert key not in redacted(text)[0]
            stream = Stream(Redactor())
            assert key not in "".join([*map(stream.feed, text), stream.end()])


def test_no_half_of_a_secret_is_left_at_a_cut() -> None:
    for room in range(30, 150):
        for made in (capped(f"begin {'word ' * 4}{GITHUB} {'word ' * 30}{STRIPE} end", room), _logged(room)):
            shown = redacted(made)[0]
            for key in (GITHUB, STRIPE):
                assert not any(key[at : at + 6] in shown for at in range(4, len(key) - 6)), made


def _logged(room: int) -> str:
    log = OutputLog(room)
    for word in f"begin {'word ' * 4}{GITHUB} {'word ' * 30}{STRIPE} end".split():
        log.write(f"{word} ")
    return log.text()


def test_the_end_of_a_private_key_is_one_without_its_beginning() -> None:
    said = f"    7\t{BODY}    8\t{BODY}    9\tMIIE9a==\n   10\t-----END EC PRIVATE KEY-----\nafter"
    made, kinds = redacted(said)
    assert len(kinds) == 3
    assert BODY.strip() not in made
    assert made.endswith("-----END EC PRIVATE KEY-----\nafter")


# ---------------------------------------------------------------------- previews


def test_keys_of_common_kinds_are_masked_wherever_they_stand() -> None:
    known = [key for key, secret in KINDS.values() if key == secret]
    for key in [*known, "github_pat_" + "11ABCDEFG0aB3dE6gH9jK2"]:
        for frame in ["{}", "value is {} here", "x={}", "'{}'", "Authorization: Bearer {}"]:
            shown = mask(frame.format(key))
            assert key[8:] not in shown
            assert f"{key[:4]}…[{len(key)} masked]" in shown


def test_a_private_key_is_masked_also_when_its_end_is_cut_off() -> None:
    body = "MIIEowIBAAKCAQEA" * 20
    whole = f"-----BEGIN RSA PRIVATE KEY-----\n{body}\n-----END RSA PRIVATE KEY-----\nafter"
    assert "MIIE" not in mask(whole)
    assert mask(whole).endswith("after")
    assert "MIIE" not in mask(whole[:200])
    assert "MIIE" not in mask(whole.replace("\n", "\\n"))


def test_named_secrets_in_text_are_masked() -> None:
    for text, hidden, kept in [
        ("password=hunter2hunter", "hunter2", "password="),
        ("DB_PASSWORD: 'correct horse'", "horse", "DB_PASSWORD"),
        ('{"password": "x1y2z3w4", "user": "ann"}', "x1y2", '"user": "ann"'),
        ("postgres://ann:s3cr3tpw@db.example/x", "s3cr3tpw", "postgres://ann:"),
        ("client_secret = abcdefgh", "abcdefgh", "client_secret"),
        ("session_token=9f8a7b6c5d4e3f2a1b0c9d8e", "6c5d4e", "session_token"),
        ("PGPASSWORD=tiger123456", "tiger1", ""),
    ]:
        shown = mask(text)
        assert hidden not in shown
        assert kept in shown


def test_ordinary_text_is_left_alone() -> None:
    for text in [
        "the key idea: sort by key=lambda x: x",
        "tokens: 1500, keys: a, b",
        "def login(user: str, password: str) -> None",
        "password = getpass.getpass()",
        "monkey=banana",
        "https://example.org/a:b@c",
        "primary key: id",
        "12:30 = lunch",
        "species str, island str, bill_length_mm f64 (2 missing)",
    ]:
        assert mask(text) == text


def test_a_name_decides_for_values_that_do_not_look_like_keys() -> None:
    assert mask_named("password", "tiger") == "…[5 masked]"
    assert mask_named("api_key", "0123abcd4567") == "0123…[12 masked]"
    assert mask_named("apiKey", "0123abcd4567") == "0123…[12 masked]"
    assert mask_named("token", "9f8A7b6C5d4E3f2a1B0c") == "9f8A…[20 masked]"
    assert mask_named("token", "penguin") == "penguin"
    assert mask_named("species", "9f8A7b6C5d4E3f2a1B0c") == "9f8A7b6C5d4E3f2a1B0c"
    assert mask_named("PWD", "/home/ann") == "/home/ann"
    assert [name_strength(name) for name in ("monkey", "keyboard", "key", "secretKey", "AWS_SECRET_ACCESS_KEY")] == [
        0, 0, 1, 2, 2,
    ]


@given(st.text(alphabet="paswordkeytn=:'\"@/- \n…[]masked0123456789AKIBEGR", max_size=200))
def test_masking_twice_changes_nothing(text: str) -> None:
    assert mask(mask(text)) == mask(text)


@given(st.text(max_size=300))
def test_masking_takes_any_text(text: str) -> None:
    assert isinstance(mask(text), str)
