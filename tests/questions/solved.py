"""Code that answers questions of the data-analysis set, by the question's id: one cell each, written as an
analyst would in a notebook; the last line is the answer in the form that the question asks for."""

from __future__ import annotations

TITANIC = "import pandas as pd\nt = pd.read_csv('titanic.csv')\n"
INSURANCE = "import pandas as pd\ni = pd.read_csv('insurance.csv')\n"
JOBS = "import pandas as pd\nu = pd.read_csv('unemployement_industry.csv')\n"
STORMS = "import pandas as pd\ns = pd.read_csv('cost_data_with_errors.csv')\n"
WEATHER = """
import pandas as pd
b = pd.read_csv('baro_2015.csv', skipinitialspace=True)
b.columns = b.columns.str.strip()
"""
HOTELS = "import pandas as pd\nh = pd.read_csv('hotel_data.csv')\n"
COINS = "import pandas as pd\nc = pd.read_csv('YAHOO-BTC_USD_D.csv')\n"
CARS = """
import pandas as pd
a = pd.read_csv('auto-mpg.csv')
a['horsepower'] = pd.to_numeric(a['horsepower'], errors='coerce')
"""
NATIONS = "import pandas as pd\ng = pd.read_csv('gapminder_cleaned.csv')\n"
SCHOOLS = "import pandas as pd\no = pd.read_csv('oecd_education_spending.csv')\n"

CODE: dict[int, str] = {
    18: JOBS
    + """
x = u['Mar.2019'].dropna()
low, high = x.quantile([0.25, 0.75])
x = x[x.between(low - 1.5 * (high - low), high + 1.5 * (high - low))]
print(f'@mean_mar_2019[{x.mean():.2f}] @sd_mar_2019[{x.std():.2f}]')""",
    19: JOBS + "print('@is_normal[Yes]' if abs(u['Mar.2020'].skew()) <= 0.5 else '@is_normal[No]')",
    24: INSURANCE + "print(f\"@mean_age[{i['age'].dropna().mean():.2f}]\")",
    25: INSURANCE + "'@bmi_distribution[' + ('normal' if abs(i['bmi'].skew()) < 0.5 else 'not_normal') + ']'",
    26: INSURANCE + "f\"@correlation_coefficient[{i['charges'].corr(i['children']):.2f}]\"",
    27: INSURANCE
    + """
x = i['charges']
low, high = x.quantile([0.25, 0.75])
out = x[~x.between(low - 1.5 * (high - low), high + 1.5 * (high - low))]
for name, value in {'total_outliers': len(out), 'mean_charges_outliers': f'{out.mean():.2f}',
                    'median_charges_outliers': f'{out.median():.2f}'}.items():
    print(f'@{name}[{value}]')""",
    30: INSURANCE
    + """
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import train_test_split
d = i.dropna(subset=['age', 'bmi', 'charges'])
X, Z, y, w = train_test_split(d[['age', 'bmi']], d['charges'], test_size=0.2, random_state=42)
error = ((LinearRegression().fit(X, y).predict(Z) - w) ** 2).mean() ** 0.5
print(f'@model_rmse[{error:.2f}]')""",
    129: TITANIC + "print(f\"@mean_fare[{t['Fare'].mean():.2f}] @std_dev_fare[{t['Fare'].std(ddof=0):.2f}]\")",
    130: TITANIC
    + """
from scipy.stats import shapiro
p = shapiro(t['Age'].dropna()).pvalue
print(f'@norm_test_pvalue[{p:.4f}] @is_normal[{p > 0.05}]')""",
    132: TITANIC
    + """
z = (t['Fare'] - t['Fare'].mean()) / t['Fare'].std()
print(f'@outlier_count[{(z.abs() > 3).sum()}]')""",
    133: TITANIC
    + """
kept = t.dropna(subset=['Cabin'])
print(f"@row_count[{len(kept)}]\\n@median_age[{kept['Age'].median():.1f}]")""",
    136: TITANIC
    + """
from scipy.stats import shapiro
print(', '.join(f'@p_value_class_{k}[{shapiro(g).pvalue:.4f}]' for k, g in t.groupby('Pclass')['Fare']))""",
    174: TITANIC + "f\"@fare_skewness[{t['Fare'].skew():.2f}]\"",
    175: TITANIC + "from scipy.stats import zscore\nf\"@outliers_count[{(abs(zscore(t['Age'].dropna())) > 3).sum()}]\"",
    176: TITANIC
    + """
rich = t[(t['Sex'] == 'male') & (t['Survived'] == 1) & (t['Fare'] > t['Fare'].mean())]
f"@median_age[{rich['Age'].median()}]\"""",
    177: TITANIC
    + """
from scipy.stats import mannwhitneyu
ages = t.dropna(subset=['Age']).groupby('Pclass')['Age']
p = mannwhitneyu(ages.get_group(1), ages.get_group(3)).pvalue
print(f"@p_value[{p:.4f}]\\n@significance[{'Yes' if p < 0.05 else 'No'}]")""",
    179: TITANIC
    + """
d = t[(t['Survived'] == 1) & (t['Pclass'] == 1)]
f"@correlation_coefficient[{d['Age'].corr(d['Fare']):.3f}]\"""",
    180: TITANIC
    + """
from scipy.stats import zscore
for k, fares in t.groupby('Pclass')['Fare']:
    print(f'@class{k}_outliers[{(abs(zscore(fares)) > 3).sum()}]')""",
    425: STORMS + "f\"@missing_values_count[{s['max_sust_wind'].isna().sum()}]\"",
    426: STORMS + "f\"@max_wind_speed[{s.loc[s['max_storm_cat'].idxmax(), 'max_sust_wind']:.2f}]\"",
    427: STORMS + "f\"@null_entries_count[{s['min_p'].isna().sum()}]\"",
    446: WEATHER + "f\"@mean_windspeed[{pd.to_numeric(b['WINDSPEED'], errors='coerce').mean():.3f}]\"",
    447: WEATHER
    + """
x = pd.to_numeric(b['BARO'], errors='coerce').dropna()
low, high = x.quantile([0.25, 0.75])
print(f'@number_of_outliers[{((x > high + 1.5 * (high - low)) | (x < low - 1.5 * (high - low))).sum()}]')""",
    450: WEATHER
    + """
b['DATE TIME'] = pd.to_datetime(b['DATE TIME'])
m = b.groupby(b['DATE TIME'].dt.month)['WINDSPEED'].mean().round(2)
print('@monthly_avg_windspeed[' + str({f'month_{k}': float(v) for k, v in m.items()}) + ']')""",
    451: WEATHER + "print('@missing_values_per_column[' + str({k: int(v) for k, v in b.isna().sum().items()}) + ']')",
    472: SCHOOLS + "f\"@mean_value[{o['Value'].mean():.2f}]\"",
    474: SCHOOLS + "f\"@correlation_coefficient[{o['Value'].corr(o['TIME']):.2f}]\"",
    506: HOTELS + "f\"@average_reviews[{h['review_count'].mean():.2f}]\"",
    507: HOTELS + "f\"@total_hotels[{(h['star_rating'] == 5).sum()}]\"",
    508: HOTELS + "f\"@correlation_coefficient[{h['review_count'].corr(h['bubble_score']):.3f}]\"",
    516: TITANIC + "f\"@skewness_fare[{t['Fare'].skew():.2f}]\"",
    517: TITANIC + "f\"@correlation_pclass_fare[{t['Pclass'].corr(t['Fare']):.2f}]\"",
    518: TITANIC
    + "z = (t['Fare'] - t['Fare'].mean()) / t['Fare'].std()\nprint(f'@number_of_entries_left[{(z <= 3).sum()}]')",
    520: TITANIC
    + "t['FamilySize'] = t['SibSp'] + t['Parch']\n"
    + "f\"@correlation_coefficient[{t['FamilySize'].corr(t['Survived']):.2f}]\"",
    657: COINS
    + "x = c['Close']\nf'@mean_close[{x.mean():.2f}], @median_close[{x.median():.2f}], @std_close[{x.std():.2f}]'",
    659: COINS + "f\"@correlation_high_low[{round(c['High'].corr(c['Low']), 2)}]\"",
    719: CARS + "f\"@mean_mpg[{a['mpg'].mean():.2f}], @median_mpg[{a['mpg'].median():.2f}]\"",
    721: CARS + "f\"@correlation_coefficient[{a['mpg'].corr(a['weight']):.2f}]\"",
    722: CARS
    + """
year = a.loc[a['horsepower'].idxmax(), 'modelyear']
same = a[a['modelyear'] == year]['horsepower']
print(f'@highest_horsepower_vehicle[{1900 + year}]')
print(f'@average_horsepower[{round(same.mean(), 2)}]\\n@standard_deviation[{same.std(ddof=0):.2f}]')""",
    723: CARS
    + "r = a['horsepower'] / a['weight']\nprint(f'@mean_ratio[{r.mean():.2f}]\\n@std_ratio[{r.std(ddof=0):.2f}]')",
    724: CARS
    + """
x = a['acceleration']
x = x[((x - x.mean()) / x.std(ddof=0)).abs() <= 3]
print(f'@mean_acceleration[{x.mean():.2f}]\\n@std_acceleration[{x.std(ddof=0):.2f}]')""",
    727: CARS
    + """
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import train_test_split
X, Z, y, w = train_test_split(a[['weight', 'acceleration']], a['mpg'], test_size=0.2, random_state=42)
f"@test_mse[{((LinearRegression().fit(X, y).predict(Z) - w) ** 2).mean():.2f}]\"""",
    729: NATIONS
    + """
from scipy.stats import normaltest
f"@distribution_normality[{'normal' if normaltest(g['gdppercap']).pvalue > 0.05 else 'not normal'}]\"""",
    730: NATIONS
    + """
from scipy.stats import pearsonr
r, p = pearsonr(g['pop'], g['gdppercap'])
print(f'@correlation_coefficient[{r:.2f}]\\n@p_value[{p:.4f}]')""",
    733: NATIONS
    + """
import numpy as np
x = np.log10(g['gdppercap'])
print(f'@has_nan_values_in_new_feature[{x.isna().any()}]\\n@new_feature_mean[{x.mean():.2f}]\\n@new_feature_std[{x.std():.2f}]')""",
}
