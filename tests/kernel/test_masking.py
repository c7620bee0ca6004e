"""Secret-looking values are masked, other text is left as it is."""


from hypothesis import given
from hypothesis import strategies as st

from ipyagent.redaction import mask, mask_named
from ipyagent.redaction.names import name_strength

SECRETS = [
    "sk-ant-" + "api03-" + "aB3dE6gH9jK2mN5pQ8",
    "sk-proj-" + "aB3dE6gH9jK2mN5pQ8sT",
    "ghp_" + "aB3dE6gH9jK2mN5pQ8sT1vW4yZ7aB3dE6gH9",
    "github_pat_" + "11ABCDEFG0aB3dE6gH9jK2",
    "AKIA" + "IOSFODNN7EXAMPLE",
    "AIza" + "SyA1234567890abcdefghijklmnopqrstuv",
    "xoxb-" + "123456789012-abcdefghij",
    "hf_" + "aB3dE6gH9jK2mN5pQ8sT1vW4yZ",
    "glpat-" + "aB3dE6gH9jK2mN5pQ8sT",
    "eyJhbGciOiJIUzI1NiJ9" + ".eyJzdWIiOiIxMjM0NTY3ODkwIn0" + ".dozjgNryP4J3jVmNHl0w5N_XgL0n3I9PlFUP0THsR8U",
]


def test_keys_of_common_kinds_are_masked_wherever_they_stand() -> None:
    for secret in SECRETS:
        for frame in ["{}", "value is {} here", "x={}", "'{}'", "Authorization: Bearer {}"]:
            shown = mask(frame.format(secret))
            assert secret not in shown
            assert secret[8:] not in shown
            assert f"{secret[:4]}…[{len(secret)} masked]" in shown


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
