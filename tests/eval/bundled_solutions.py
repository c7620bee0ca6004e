"""Code that answers the bundled questions, by id: one cell each, as an analyst would write it in a notebook."""

from __future__ import annotations

ORDERS = """
import pandas as pd
o = pd.read_csv('orders.csv').drop_duplicates()
o['region'] = o['region'].str.strip().str.title()
o['revenue'] = o['quantity'] * o['unit_price'] * (1 - o['discount'].fillna(0))
"""
WEATHER = """
import pandas as pd
w = pd.read_csv('weather.csv', na_values='n/a')
w['day'] = pd.to_datetime(w['day'], format='%d/%m/%Y')
"""
STAFF = """
import pandas as pd
s = pd.read_csv('staff.tsv', sep='\\t', thousands=',')
"""

CODE = {
    "orders-rows": ORDERS + "print(f'@orders[{len(o)}]')",
    "orders-revenue": ORDERS + "print(f'@revenue[{o.revenue.sum():.2f}]')",
    "orders-region": ORDERS
    + "r = o.groupby('region').revenue.sum()\nprint(f'@region[{r.idxmax()}] @revenue[{r.max():.2f}]')",
    "orders-returns": ORDERS
    + """
p = o[o['product'] == 'Novel']
share = (p.returned == 'yes').mean() * 100
most = (o.returned == 'yes').groupby(o['product']).mean().sort_values(ascending=False)
print(f'@novel_percent[{share:.1f}] @highest_product[{most.index[0]}]')
""",
    "orders-months": ORDERS
    + """
q = o.groupby(pd.to_datetime(o.date).dt.quarter).quantity.sum()
print(f'@books_by_quarter[{", ".join(map(str, q))}]')
""",
    "weather-mean": WEATHER + "print(f'@mean_temp[{w.temp_c.mean():.2f}] @missing[{w.temp_c.isna().sum()}]')",
    "weather-wettest": WEATHER
    + """
r = w.groupby(w.day.dt.to_period('M')).rain_mm.sum()
print(f'@month[{r.idxmax()}] @rain[{r.max():.1f}]')
""",
    "weather-wind": WEATHER
    + """
v = w.dropna()
r = v.temp_c.corr(v.wind_kmh)
print(f'@r[{r:.2f}] @direction[{"negative" if r < 0 else "positive"}]')
""",
    "staff-median": STAFF
    + "f = s[s.department == 'Finance'].salary\nprint(f'@finance_median[{f.median():.0f}] @finance_people[{len(f)}]')",
    "staff-outliers": STAFF
    + """
low, high = s.salary.quantile([0.25, 0.75])
out = s[(s.salary < low - 1.5 * (high - low)) | (s.salary > high + 1.5 * (high - low))]
rest = s.drop(out.index)
slope = rest.years.cov(rest.salary) / rest.years.var()
print(f'@outliers[{", ".join(sorted(out.name))}] @per_year[{slope:.0f}]')
""",
}
