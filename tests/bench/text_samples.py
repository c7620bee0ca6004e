"""Texts of the kinds that fill a context window, the same in every run, several hundred to several
thousand tokens each. The Chinese and Japanese paragraphs were written for this file."""

from __future__ import annotations

import base64
import hashlib
import inspect
import json
from collections.abc import Iterator

CHINESE = (
    "上个季度的销售数据已经整理完毕，共有一万两千多条记录，其中约百分之三缺少客户编号。我们先把重复的行去掉，再按地区和产品类别汇总，"
    "结果显示华东地区的增长最快，而西南地区因为仓库搬迁出现了明显下滑。建议下个月重点检查物流环节，并与去年同期进行比较。",
    "请先读取文件，看看每一列的类型和缺失情况，然后画出价格随时间变化的折线图。如果发现异常值，不要直接删除，先告诉我它们在哪些行，"
    "可能是什么原因造成的。最后用一段话总结主要结论，语言尽量简单，方便没有统计背景的同事阅读。",
    "清晨的雾还没有散，码头上已经有人在搬运木箱。老人坐在石阶上抽烟，看着江面发呆，偶尔和路过的船工打个招呼。他年轻的时候也跑过船，"
    "去过许多地方，后来腿受了伤，就回到镇上开了一家小茶馆，一开就是三十年。",
    "模型在训练集上的准确率达到 0.97，但在测试集上只有 0.81，说明存在过拟合。"
    "可以尝试增加正则化强度（例如把 alpha 从 0.01 调到 0.1）、"
    "减少特征数量，或者使用交叉验证来选择参数。随机森林的结果比逻辑回归稳定，平均 F1 分数为 0.84，标准差 0.02。",
    "城市的地下水位在过去十年里持续下降，专家认为主要原因是过度开采和降水减少。为了缓解这一问题，市政府从今年起实行阶梯水价，"
    "同时鼓励工厂使用再生水。初步统计，第一季度居民用水量同比下降了百分之六，工业用水量下降了百分之十一。",
    "函数接收一个列表作为参数，返回其中所有偶数的平方和。如果列表为空，则返回零；如果出现非整数元素，应当抛出异常并说明是第几个元素出了问题。"
    "请补充单元测试，覆盖空列表、负数、很大的数以及混合类型这几种情况。",
)
JAPANESE = (
    "先月のアンケートには全国から二千三百件の回答が集まり、そのうち約八割が三十代以下の利用者でした。満足度の平均は五段階で四・一となり、"
    "前回の調査より少し上がっています。ただし、配送の遅れに関する不満が増えているため、来月までに原因を詳しく調べる必要があります。",
    "まずファイルを読み込んで、列ごとの型と欠損値の数を確認してください。そのあと、地域別の売上を"
    "グラフにして、特に目立つ変化があれば説明してください。"
    "外れ値を見つけた場合は、すぐに削除せずに、どの行にあるのかを教えてください。",
    "駅から続く坂道を上りきると、海が見える小さな公園がある。夕方になると"
    "近所の子どもたちが集まって、暗くなるまでボールを追いかけていた。"
    "祖母はベンチに座って編み物をしながら、その声を聞くのが好きだと言っていた。",
    "このモデルは訓練データに対する精度が 0.95 でしたが、検証データでは 0.82 に下がりました。"
    "過学習の可能性があるので、正則化を強くするか、特徴量の数を減らすことを検討してください。"
    "交差検証の結果、ランダムフォレストの F1 スコアは平均 0.84、標準偏差 0.03 でした。",
    "データベースへの接続に失敗した場合は、三回まで自動的に再試行し、"
    "それでも成功しなければエラーメッセージを表示します。"
    "ログファイルには日時、利用者の番号、失敗した理由を記録してください。パスワードなどの個人情報は絶対に書き込まないでください。",
    "昨日の会議では、新しいプロジェクトの予定について話し合いました。デザインの確認は十五日まで、テストは月末まで、公開は来月の十日を予定しています。"
    "変更があれば、担当者はできるだけ早く全員に連絡してください。",
)
_TOPICS = ("strings", "exceptions", "numbers", "import", "naming", "typesseq", "formatstrings", "customization")
_MODULES = ("json.decoder", "argparse", "csv", "statistics", "textwrap", "dataclasses", "shutil", "asyncio.locks")
PIECE = 2_400
"""Characters of one piece of a long text."""


def samples() -> dict[str, list[str]]:
    """Texts by kind."""
    return {
        "English": list(_english()),
        "Chinese": [*CHINESE, "\n\n".join(CHINESE[:3]), "\n\n".join(CHINESE[3:])],
        "Japanese": [*JAPANESE, "\n\n".join(JAPANESE[:3]), "\n\n".join(JAPANESE[3:])],
        "code": list(_code()),
        "JSON": list(_json()),
        "base64": list(_base64()),
        "DataFrame": list(_frames()),
    }


def _english() -> Iterator[str]:
    from pydoc_data.topics import topics

    for name in _TOPICS:
        yield topics[name][300 : 300 + PIECE]


def _code() -> Iterator[str]:
    from importlib import import_module

    for name in _MODULES:
        source = inspect.getsource(import_module(name))
        yield source[len(source) // 2 :][:PIECE]


def _records() -> list[dict[str, object]]:
    from palmerpenguins import load_penguins

    return json.loads(load_penguins().to_json(orient="records"))


def _json() -> Iterator[str]:
    rows = _records()
    yield json.dumps(rows[:20])
    yield json.dumps(rows[100:116], indent=2)
    yield json.dumps({name: [row[name] for row in rows[:60]] for name in rows[0]})
    cells = [
        {"cell_type": "code", "id": hashlib.sha256(bytes([at])).hexdigest()[:8], "metadata": {"collapsed": False},
         "source": [f"df = load({at})\n", "df.describe()"], "outputs": [], "execution_count": at} for at in range(14)
    ]
    yield json.dumps({"cells": cells, "nbformat": 4, "nbformat_minor": 5}, indent=1)
    schema = {
        f"setting_{at}": {"type": ["integer", "string", "boolean"][at % 3], "default": [at * 10, "auto", True][at % 3],
                          "description": f"How many retries of step {at} are made before it counts as failed."}
        for at in range(24)
    }
    yield json.dumps({"type": "object", "properties": schema, "required": sorted(schema)})
    yield json.dumps([{"user": f"u{at:04}", "lat": 52.5 + at / 977, "lon": 13.4 - at / 1013, "ok": at % 4 > 0,
                       "tags": ["a", "new", None][: at % 3]} for at in range(40)], separators=(",", ":"))


def _bytes(size: int, seed: str) -> bytes:
    return b"".join(hashlib.sha256(f"{seed}{at}".encode()).digest() for at in range(size // 32 + 1))[:size]


def _base64() -> Iterator[str]:
    for at in range(4):
        yield base64.b64encode(_bytes(1_500, f"plain {at}")).decode()
    yield base64.encodebytes(_bytes(1_500, "lines")).decode()
    picture = base64.b64encode(_bytes(1_200, "json")).decode()
    yield json.dumps({"image/png": picture, "text/plain": "<Figure size 640x480>"})
    yield base64.urlsafe_b64encode(_bytes(900, "url")).decode()
    yield "\n".join(f"{hashlib.sha256(bytes([at])).hexdigest()}  part-{at:05}.parquet" for at in range(24))


def _frames() -> Iterator[str]:
    import pandas as pd
    from palmerpenguins import load_penguins
    from vega_datasets import local_data

    frame = load_penguins()
    cars, stocks, weather = local_data.cars(), local_data.stocks(), local_data.seattle_weather()
    yield frame.head(40).to_string()
    yield frame.describe().to_string() + "\n" + frame.groupby(["species", "island"]).mean(numeric_only=True).to_string()
    yield frame.isna().sum().to_string() + "\n" + frame["species"].value_counts().to_string() + "\n" + repr(frame)
    yield cars.head(30).to_string()
    yield cars.describe().to_string() + "\n" + cars.corr(numeric_only=True).to_string()
    yield stocks.pivot_table(index="date", columns="symbol", values="price").head(30).to_string()
    yield weather.tail(40).to_string()
    months = weather.set_index("date").resample("ME").mean(numeric_only=True)
    yield repr(pd.crosstab(cars["Origin"], cars["Cylinders"])) + "\n" + repr(months)
