from __future__ import annotations

import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest
from recall_room import Folder

from ipyagent.parts.memory.ranking import rank, surely
from ipyagent.parts.memory.tokenizer import content_words, count, words

TOPICS = (
    ("plots", "Charts use the colour-blind palette", "图表使用色盲友好的配色", "グラフは色覚に配慮した配色"),
    ("invoice", "Invoices are sent on the first Monday", "发票在第一个星期一寄出", "請求書は最初の月曜日に送る"),
    ("backup", "The backup server is down at night", "备份服务器夜间停机", "バックアップサーバーは夜間停止する"),
    ("coffee", "Anna drinks her coffee without milk", "安娜喝咖啡不加牛奶", "アンナはコーヒーに牛乳を入れない"),
    ("train", "The team travels by train to Berlin", "团队乘火车去柏林", "チームは電車でベルリンへ行く"),
)


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path / "memory")


def test_each_language_finds_its_memory_among_300_mixed_ones(folder: Folder) -> None:
    """Those of a theme differ in a number."""
    for number in range(20):
        for topic, english, chinese, japanese in TOPICS:
            folder.add(f"{topic}_en_{number}.md", f"{english}, rule {number + 100}")
            folder.add(f"{topic}_zh_{number}.md", f"{chinese}，规则{number + 100}")
            folder.add(f"{topic}_ja_{number}.md", f"{japanese}、規則{number + 100}")
    assert len(folder.refresh()) == 300
    for query, right in (
        ("发票什么时候寄出？规则107", "invoice_zh_7.md"),
        ("備份服务器 规则113 夜间停机吗", "backup_zh_13.md"),
        ("請求書はいつ送りますか 規則105", "invoice_ja_5.md"),
        ("グラフの配色の規則118は何ですか", "plots_ja_18.md"),
        ("which palette do charts use by rule 111", "plots_en_11.md"),
    ):
        assert right in folder.names(query)[:3], query


def test_width_case_and_accents_do_not_matter(folder: Folder) -> None:
    folder.add("a.md", "ＡＰＩ Ｒｅｐｏｒｔ の ﾃﾞｰﾀﾍﾞｰｽ 接続")
    folder.add("b.md", "Café Größe naïve")
    for query in ("api report", "API REPORT", "ａｐｉ ｒｅｐｏｒｔ", "データベース", "ﾃﾞｰﾀﾍﾞｰｽ"):
        assert folder.names(query)[0] == "a.md", query
    for query in ("cafe grösse", "CAFÉ NAIVE"):
        assert folder.names(query)[0] == "b.md", query
    assert words("ＡＢＣ カタカナ") == words("abc ｶﾀｶﾅ")


def test_inflections_particles_and_dates_are_one_word(folder: Folder) -> None:
    folder.add("k.md", "데이터베이스를 매일 밤에 백업한다")
    folder.add("l.md", "회의는 월요일에 시작한다")
    assert folder.names("데이터베이스는 언제 백업합니까")[0] == "k.md"
    folder.add("a.md", "Anna bought the plotting licences on 2026-03-05")
    folder.add("b.md", "Nothing of the kind")
    assert folder.names("who buys a licence for plots")[0] == "a.md"
    assert folder.names("what happened in March 2026")[0] == "a.md"


def test_an_old_memory_that_fits_stands_before_newer_ones(folder: Folder) -> None:
    folder.add("old.md", "the parquet exporter needs polars")
    for number in range(220):
        folder.add(f"n{number}x{number * 7}.md", f"unrelated note about topic{number}")
    ranked = folder.names("why does the parquet exporter fail")
    assert ranked[0] == "old.md"
    assert len(ranked) <= 200


def test_a_word_that_leads_counts_more_than_one_in_passing(folder: Folder) -> None:
    folder.add("chat.md", "", "The weather was fine, and somebody mentioned Anna there.")
    folder.add("person.md", "", "Anna: likes her totals in thousands, the weather was fine.")
    assert folder.names("what does Anna like")[0] == "person.md"


def test_what_follows_in_a_series_comes_along_before_what_else_is_near_a_question(folder: Folder) -> None:
    folder.add("talk_6.md", "The weather is fine today")
    folder.add("talk_7.md", "Which boat did you rent in Sweden? [a photo of the harbour]")
    folder.add("talk_8.md", "The red one, for nine days.")
    folder.add("talk_9.md", "Lovely.")
    folder.add("talk_90.md", "Something else entirely.")
    assert folder.names("which boat was rented in Sweden") == ["talk_7.md", "talk_8.md", "talk_6.md", "talk_9.md"]


def test_what_the_best_memories_share_finds_what_has_no_word_of_the_request(folder: Folder) -> None:
    folder.add("loan.md", "The mortgage runs at Norbank until 2031")
    folder.add("rate.md", "Norbank raised its fee in spring")
    for number in range(30):
        folder.add(f"x{number * 9}.md", f"note on subject{number}")
    ranked = folder.found("when does the mortgage end")
    assert [item.memory.name for item in ranked] == ["loan.md", "rate.md"]
    assert (ranked[1].own, ranked[1].words, ranked[1].why) == (0.0, (), "close to one that fits")
    assert [item.memory.name for item in surely(ranked, 5)] == ["loan.md"]


def test_a_misspelt_word_finds_what_is_meant_but_makes_nothing_sure(folder: Folder) -> None:
    folder.add("party.md", "The summer festival is planned by Anna")
    folder.add("codes.md", "The codes case1234 and case1235 are retired")
    for number in range(30):
        folder.add(f"x{number * 9}.md", f"note on subject{number}")
    ranked = folder.found("the fesstival")
    assert [item.memory.name for item in ranked] == ["party.md"]
    assert surely(ranked, 5) == []
    assert folder.names("what was case1236") == [], "another number is another thing"


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("отчёты отправляются", "отчета отправляется"),
        ("αναφορές πωλήσεων", "αναφορά πωλήσεις"),
        ("التقارير", "تقارير"),
        ("रिपोर्टें", "रिपोर्टों"),
        ("organising meetings", "organised meeting"),
        ("мой", "МОЙ"),
    ],
)
def test_forms_of_a_word_are_one_word_in_the_scripts_that_have_a_stemmer(one: str, other: str) -> None:
    assert words(one) == words(other)
    assert len(words(one)) == len(one.split()), "vowel signs stand within words"


def test_without_a_selector_only_what_is_above_the_floor_is_sure(folder: Folder) -> None:
    folder.add("plots.md", "Plots use the colour-blind palette", name="Plots")
    folder.add("other.md", "The invoices of the scatter company are late")
    for number in range(30):
        folder.add(f"x{number * 3}.md", f"note on subject{number}")
    sure = surely(folder.found("make a scatter plot of bill length against depth"), 5)
    assert [item.memory.name for item in sure] == ["plots.md"]
    assert "plot" in sure[0].why
    assert surely(folder.found("compute the median of the fourth column please"), 5) == []


def test_changed_and_removed_files_are_seen_at_once(folder: Folder) -> None:
    folder.add("a.md", "zebras")
    assert folder.names("about zebras") == ["a.md"]
    folder.add("a.md", "giraffes now")
    assert folder.names("about zebras") == []
    assert folder.names("about giraffes") == ["a.md"]
    (folder.path / "a.md").unlink()
    assert folder.names("about giraffes") == []

    folder.add("a.md", "the orders AND the NEAR table")
    for query in ('orders" OR *', "lead : x AND (", "NEAR(orders)", "\x00\ud800 orders", "^orders -table", "'; DROP x"):
        folder.found(query)
    assert folder.names('"orders')[0] == "a.md", "the syntax of a query is only text"


# ---------------------------------------------------------------------- the cache


def test_damage_in_the_middle_of_the_file_costs_a_rebuild_and_no_answer(tmp_path: Path) -> None:
    cache = tmp_path / "cache" / "recall.sqlite"
    folder = Folder(tmp_path / "memory", cache)
    for number in range(300):
        folder.add(f"a{number * 2}.md", f"zebra number{number} " + "lorem ipsum " * 40)
    assert len(folder.names("zebra herd")) == 200
    folder.index.close()
    content = bytearray(cache.read_bytes())
    content[4096:-4096] = b"\xa5" * (len(content) - 8192)
    cache.write_bytes(bytes(content))
    again = Folder(tmp_path / "memory", cache)
    assert len(again.names("zebra herd")) == 200


def test_an_index_that_is_damaged_lies_or_is_of_another_version_is_made_anew_and_without_a_place_is_in_memory(
    tmp_path: Path,
) -> None:
    cache = tmp_path / "cache" / "recall.sqlite"
    lies = ("PRAGMA user_version = 99", "UPDATE files SET body = NULL", "DROP TABLE files")
    for damage in (b"no database at all" * 500, b"", *lies):
        folder = Folder(tmp_path / "memory", cache)
        folder.add("a.md", "zebras live here")
        assert folder.names("where do zebras live") == ["a.md"]
        folder.index.close()
        if isinstance(damage, bytes):
            cache.write_bytes(damage)
        else:
            with closing(sqlite3.connect(cache)) as db:
                db.execute(damage)
                db.commit()
        again = Folder(tmp_path / "memory", cache)
        assert again.names("where do zebras live") == ["a.md"], damage
        again.index.close()
    (tmp_path / "file").write_text("a file, not a folder")
    assert Folder(tmp_path / "memory", tmp_path / "file" / "recall.sqlite").names("where zebras live") == ["a.md"]


def test_an_index_that_another_kernel_holds_delays_nobody(tmp_path: Path) -> None:
    cache = tmp_path / "cache" / "recall.sqlite"
    folder = Folder(tmp_path / "memory", cache)
    folder.add("a.md", "zebras live here")
    folder.found("zebras here")
    holder = sqlite3.connect(cache, isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    folder.add("b.md", "lions live here")
    assert folder.names("lions alone") == ["b.md"]
    holder.execute("ROLLBACK")
    holder.close()


WRITER = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[3])
from recall_room import Folder
folder = Folder(Path(sys.argv[1]), Path(sys.argv[2]))
for number in range(12):
    assert "common.md" in folder.names("zebras everywhere"), number
    folder.add(f"own{sys.argv[4]}x{number}.md", f"zebras of {sys.argv[4]} {number}")
print(len(folder.names("zebras everywhere")))
"""


def test_several_kernels_share_one_index(tmp_path: Path) -> None:
    cache = tmp_path / "cache" / "recall.sqlite"
    folder = Folder(tmp_path / "memory", cache)
    folder.add("common.md", "zebras everywhere")
    tests = str(Path(__file__).parent)
    given = [str(folder.path), str(cache), tests]
    running = [
        subprocess.Popen([sys.executable, "-c", WRITER, *given, f"{who}"], stdout=-1, cwd=Path(__file__).parents[3])
        for who in range(2)
    ]
    for process in running:
        process.communicate(timeout=60)
        assert process.returncode == 0
    assert len(folder.names("zebras everywhere")) == 25


# ---------------------------------------------------------------------- words


def test_words_are_counted_as_a_person_would_and_a_query_of_empty_words_alone_keeps_them() -> None:
    assert count("continue") == count("继续") == count("続き") == 1
    assert count("go on") == 2
    assert count("画图表吧") == 2
    assert count("") == 0
    assert content_words("what is this")
    assert content_words("what is the palette") == ["palett"]


# ---------------------------------------------------------------------- vectors


def test_vectors_find_what_shares_no_word_and_are_kept_with_the_index(tmp_path: Path) -> None:
    pytest.importorskip("wordllama", reason="the extra `embeddings` is not installed")
    from ipyagent.parts.memory import fulltext

    cache = tmp_path / "cache" / "recall.sqlite"
    folder = Folder(tmp_path / "memory", cache)
    folder.add("pet.md", "Anna has a puppy and two kittens")
    for number in range(30):
        folder.add(f"x{number * 3}.md", f"Invoice {number} is paid by bank transfer")
    folder.refresh()
    model = fulltext.load()
    first = rank([folder.shelf], "which dogs and cats live there", embedder=model)[0]
    assert first.memory.name == "pet.md"
    assert first.likeness > 0
    asked: list[int] = []
    folder.index.close()
    again = Folder(tmp_path / "memory", cache)
    again.refresh()
    stored = again.index.vectors(fulltext.KIND, lambda texts: asked.append(len(texts)) or model.stored(texts))
    assert (len(stored), asked) == (31, [])
    again.add("new.md", "a new one")
    again.refresh()
    again.index.vectors(fulltext.KIND, lambda texts: asked.append(len(texts)) or model.stored(texts))
    assert asked == [1]


def test_a_run_of_letters_is_no_word_to_take_apart() -> None:
    """Its stem would take time with the square of its length."""
    began = time.process_time()
    assert content_words("a" * 100_000 + " migrations") == ["a" * 100_000, *content_words("migrations")]
    assert time.process_time() - began < 1


def test_another_wording_of_what_is_asked_is_found_in_any_language_and_makes_nothing_sure(folder: Folder) -> None:
    for number, text in enumerate(TOPICS):
        folder.add(f"m{7 * number}x.md", text[1])
        folder.add(f"z{7 * number}y.md", text[2])
    for query, right in (
        ("wann wird die Rechnung verschickt", ("Invoices are sent on the first Monday", "发票在第一个星期一寄出")),
        ("quelles couleurs pour les graphiques", ("Charts use the colour-blind palette", "图表使用色盲友好的配色")),
        ("when are invoices sent", ("Invoices are sent on the first Monday", "发票在第一个星期一寄出")),
    ):
        ranked = folder.found(query)
        assert {item.memory.description for item in ranked[:2]} == set(right), query
        assert {item.memory.description for item in surely(ranked, 5)} <= {right[0]}, query


# ---------------------------------------------------------------------- many languages in one folder

MIXED = (
    "Plots use the colour-blind palette and no grid",
    "Totals are shown in thousands of euros, one decimal",
    "The nightly export fails on Sundays since the database is read-only",
    "Anna reviews every report before it goes to the board",
    "Berichte gehen jeden Freitag an die Schadenabteilung",
    "Die Testdaten liegen auf dem Server in Hamburg",
    "Les factures sont envoyées le premier lundi du mois",
    "Los clientes de Madrid pagan en treinta días",
    "图表使用色盲友好的配色，不要网格线",
    "每周五把销售报表发给财务部",
    "数据库服务器夜间停机维护",
    "会议纪要保存在共享文件夹里",
    "グラフは色覚に配慮した配色にする",
    "請求書は毎月最初の月曜日に送る",
    "会議の議事録は共有フォルダに保存する",
    "データベースは日曜の夜に停止する",
    "보고서는 매주 금요일에 재무팀에 보낸다",
    "데이터베이스를 매일 밤에 백업한다",
    "그래프에는 색맹 친화적인 색상을 쓴다",
    "Отчёты отправляются каждый понедельник в бухгалтерию",
    "Резервная копия базы данных делается ночью",
    "التقارير الشهرية ترسل إلى قسم المالية",
)
UNRELATED = (
    "今天天气怎么样？", "帮我写一首关于春天的诗", "如何用快速排序算法排列一个列表", "推荐一部好看的电影",
    "今日の天気はどうですか", "美味しいカレーの作り方を教えてください", "円周率を百桁計算してください",
    "東京から大阪までの距離は", "오늘 날씨가 어때요?", "맛있는 김치찌개 만드는 법을 알려줘",
    "피보나치 수열을 계산해 줘", "서울에서 부산까지 얼마나 걸려요", "Какая сегодня погода?", "Как приготовить борщ?",
    "Вычисли факториал двадцати", "ما هي حالة الطقس اليوم؟", "كيف أطبخ الأرز؟", "what is the capital of Norway",
    "how do I reverse a list", "write a haiku about spring", "Wie wird das Wetter morgen?",
    "Quelle est la capitale de l'Australie ?",
)  # fmt: skip
RELATED = (
    ("图表用什么配色", 8), ("销售报表什么时候发给财务部", 9), ("数据库服务器什么时候停机", 10),
    ("会议纪要在哪里", 11), ("グラフの配色はどうする", 12), ("請求書はいつ送りますか", 13),
    ("議事録はどこに保存しますか", 14), ("データベースはいつ停止しますか", 15), ("보고서는 언제 보내나요", 16),
    ("데이터베이스는 언제 백업합니까", 17), ("그래프 색상은 무엇을 쓰나요", 18), ("когда отправляются отчёты", 19),
    ("когда делается резервная копия базы", 20), ("متى ترسل التقارير الشهرية", 21),
    ("which palette do the plots use", 0), ("wann gehen die Berichte raus", 4), ("quand envoyer les factures", 6),
)  # fmt: skip


@pytest.mark.parametrize("vectors", [False, True])
def test_unrelated_requests_of_any_script_show_nothing_and_related_ones_their_memory(
    folder: Folder, vectors: bool
) -> None:
    """Vectors know the Latin script alone: of others they told that the script was the same."""
    from ipyagent.parts.memory import fulltext

    model = fulltext.load() if vectors else None
    if vectors and model is None:
        pytest.skip("the extra `embeddings` is not installed")
    for number, text in enumerate(MIXED):
        folder.add(f"m{7 * number}x.md", text)
    folder.refresh()

    def sure(query: str) -> list[str]:
        return [item.memory.description for item in surely(rank([folder.shelf], query, embedder=model), 5)]

    assert {query: found for query in UNRELATED if (found := sure(query))} == {}
    assert [query for query, right in RELATED if MIXED[right] not in sure(query)] == []
