"""Many ways of asking, in English and Chinese, get the numbers that pandas gives."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from palmerpenguins import load_penguins
from practice_room import Room, numbers

PENGUINS = load_penguins()


@pytest.fixture
def room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Room:
    """A room with penguins.csv in its folder, loaded as `penguins` by the user."""
    monkeypatch.setenv("MPLBACKEND", "Agg")
    PENGUINS.to_csv(tmp_path / "penguins.csv", index=False)
    made = Room(tmp_path)
    made.namespace["penguins"] = PENGUINS.copy()
    return made


def mean(by: list[str], column: str = "body_mass_g") -> list[float]:
    return [round(value, 2) for value in PENGUINS.groupby(by)[column].mean()]


BY_SEX = mean(["sex"])
BY_SPECIES = mean(["species"])
BOTH = mean(["species", "sex"])
COUNTS = PENGUINS["species"].value_counts().tolist()
ISLANDS = PENGUINS["island"].value_counts().tolist()
FLIPPER = round(PENGUINS["flipper_length_mm"].mean(), 2)
MEDIAN = PENGUINS["bill_depth_mm"].median()
MISSING = [19, 11, 2]
R = round(PENGUINS["body_mass_g"].corr(PENGUINS["flipper_length_mm"]), 3)
R_SHORT = round(R, 2)
SLOPE = 49.6856
TOP = PENGUINS["body_mass_g"].nlargest(3).tolist()
SMALL = PENGUINS["body_mass_g"].nsmallest(2).tolist()
GENTOO = int((PENGUINS["species"] == "Gentoo").sum())
OVER = int((PENGUINS["body_mass_g"] > 5000).sum())
DIFFERENCE = round(PENGUINS.groupby("species")["body_mass_g"].mean().loc[["Adelie", "Gentoo"]].diff().iloc[1] * -1, 2)
SEXES = round(BY_SEX[1] - BY_SEX[0], 2)

PHRASINGS: list[tuple[str, list[float]]] = [
    ("average body mass by species and sex", BOTH),
    ("Please compute the mean body mass for each species and sex.", BOTH),
    ("What is the average body_mass_g per species, sex?", BOTH),
    ("could you show me the mean weight grouped by species", BY_SPECIES),
    ("AVERAGE BODY MASS BY SEX!!", BY_SEX),
    ("按物种和性别计算平均体重", BOTH),
    ("请帮我计算每个物种的平均体重", BY_SPECIES),
    ("各性别的体重均值是多少？", BY_SEX),
    ("不同物种的平均体重", BY_SPECIES),
    ("what is the mean flipper length", [FLIPPER]),
    ("average flipper_length_mm", [FLIPPER]),
    ("平均鳍长是多少", [FLIPPER]),
    ("median bill depth", [MEDIAN]),
    ("喙深的中位数", [MEDIAN]),
    ("are there any missing values?", MISSING),
    ("count the nulls in penguins", MISSING),
    ("有缺失值吗", MISSING),
    ("检查空值", MISSING),
    ("profile the data", [344, 8, 4201.75]),
    ("give me an overview of penguins", [344, 8, 4201.75]),
    ("describe the dataset", [344, 8, 4201.75]),
    ("概览一下数据", [344, 8, 4201.75]),
    ("描述这个数据集", [344, 8, 4201.75]),
    ("how many rows are there?", [344, 8]),
    ("有多少行", [344, 8]),
    ("how many Gentoo are there", [GENTOO, 344]),
    ("有多少只巴布亚企鹅？", [GENTOO, 344]),
    ("how many penguins have a body mass over 5000?", [OVER]),
    ("体重大于5000的有多少", [OVER]),
    ("value counts of species", COUNTS),
    ("how many penguins of each species?", COUNTS),
    ("count by island", ISLANDS),
    ("每个岛屿有多少只企鹅", ISLANDS),
    ("how many different species are there", [3, *COUNTS]),
    ("top 3 heaviest penguins", TOP),
    ("the 3 largest body mass", TOP),
    ("体重最大的3个", TOP),
    ("bottom 2 by body mass", SMALL),
    ("体重最小的2只", SMALL),
    ("correlation between body mass and flipper length", [R]),
    ("体重和鳍长的相关系数", [R]),
    ("which columns are most correlated?", [R_SHORT]),
    ("哪些列最相关", [R_SHORT]),
    ("compare body mass between Adelie and Gentoo", [DIFFERENCE]),
    ("is there a difference in body mass between Adelie and Gentoo penguins?", [DIFFERENCE]),
    ("compare males and females in body mass", [SEXES]),
    ("比较雄性和雌性的体重", [SEXES]),
    ("fit a linear regression of body mass on flipper length", [SLOPE]),
    ("predict body mass from flipper length", [SLOPE]),
    ("用鳍长预测体重", [SLOPE]),
    ("plot body mass against flipper length", [R_SHORT, 342]),
    ("scatter plot of flipper length by body mass", [R_SHORT, 342]),
    ("画体重和鳍长的散点图", [R_SHORT, 342]),
    ("draw a histogram of flipper length", [FLIPPER]),
    ("画出鳍长的直方图", [FLIPPER]),
    ("box plot of body mass by species", PENGUINS.groupby("species")["body_mass_g"].median().tolist()),
    ("what columns are there?", [8, 344]),
    ("有哪些列", [8, 344]),
    ("what is 2+3*4?", [14]),
    ("计算 3*(4+5)", [27]),
    ("run: print(len(penguins) * 2)", [688]),
    ("运行：`len(penguins) + 1`", [345]),
    ("```python\nlen(penguins) - 1\n```", [343]),
    ("list my variables", [344]),
    ("我有哪些变量", [344]),
    ("which species is the heaviest?", BY_SPECIES),
    ("哪个物种最重", BY_SPECIES),
    ("Which island has the most penguins?", ISLANDS),
    ("哪个岛的企鹅最多", ISLANDS),
    ("show me the first rows", [344]),
    ("显示前5行", [344]),
    ("filter the rows with body mass above 6000", [int((PENGUINS["body_mass_g"] > 6000).sum())]),
    ("mean and standard deviation of body mass", [4201.75, 801.95]),
    ("is body mass related to flipper length?", [R]),
    ("鳍长和体重有关系吗", [R]),
    ("does sex affect body mass?", [SEXES]),
    ("drop the missing values", [333, 344]),
    ("删除缺失值", [333, 344]),
    ("describe body mass", [4201.75, 6300]),
    ("compute 15% of 80", [12]),
    ("how many female Adelie penguins are on Dream island?", [27]),
    ("2008年的平均体重", [round(PENGUINS[PENGUINS["year"] == 2008]["body_mass_g"].mean(), 2)]),
]


@pytest.mark.parametrize(("asked", "expected"), PHRASINGS, ids=[asked for asked, _ in PHRASINGS])
def test_a_phrasing_gets_the_numbers_pandas_gives(room: Room, asked: str, expected: list[float]) -> None:
    said = room.ask(asked)
    assert not [text for text, failed in room.results if failed]
    found = numbers(said)
    missing = [value for value in expected if not any(abs(value - each) < 0.006 for each in found)]
    assert not missing, said
    chinese = re.search(r"[\u3400-\u9fff]", re.sub(r"`.*?`", "", said))
    assert bool(chinese) == bool(re.search(r"[\u3400-\u9fff]", asked)), said
