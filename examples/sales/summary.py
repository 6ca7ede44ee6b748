"""Summarises sales.csv beside it: report.md and chart.svg. Plain Python, as a model would write it."""

import collections
import csv
import pathlib
import sys

here = pathlib.Path(__file__).parent
totals = collections.Counter()
months = collections.Counter()
with open(here / "sales.csv", newline="") as table:
    for row in csv.DictReader(table):
        amount = int(row["units"]) * float(row["price"])
        totals[row["product"]] += amount
        months[row["date"][:7]] += amount

print(f"{sum(totals.values()):,.2f} in all, {len(totals)} products, {len(months)} months", flush=True)
for product, amount in totals.most_common():
    print(f"  {product:<10} {amount:>12,.2f}", flush=True)

lines = ["# Sales", "", "| product | revenue |", "|---|---:|"]
lines += [f"| {product} | {amount:,.2f} |" for product, amount in totals.most_common()]
(here / "report.md").write_text("\n".join(lines) + "\n")

width, height, gap = 480, 200, 8
step = width / len(months)
top = max(months.values())
bars = []
for place, (month, amount) in enumerate(sorted(months.items())):
    tall = amount / top * (height - 40)
    left = place * step + gap / 2
    bars.append(f'<rect x="{left:.1f}" y="{height - 20 - tall:.1f}" width="{step - gap:.1f}" height="{tall:.1f}" fill="#4c72b0"/>')
    bars.append(f'<text x="{left:.1f}" y="{height - 5}" font-size="10">{month}</text>')
(here / "chart.svg").write_text(
    f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}">\n' + "\n".join(bars) + "\n</svg>\n"
)
print("wrote report.md and chart.svg", file=sys.stderr)
